//! Bars of how often something happened out of so many times.

use super::{WIDTH, Who, escape, open};

/// Bars that lie, one below the other.
pub struct Bars {
    pub id: String,
    pub title: String,
    pub about: String,
    pub bars: Vec<Bar>,
}

/// How often, out of how many times.
pub struct Bar {
    pub name: String,
    pub who: Who,
    pub count: u32,
    pub of: u32,
}

/// Units a bar, its name included.
const STEP: f64 = 34.0;
/// Room for the count, right of the bar.
const COUNT: f64 = 60.0;

impl Bars {
    /// A figure with heading and drawing; none if there is nothing to draw.
    pub fn figure(&self) -> Option<String> {
        if self.bars.is_empty() {
            return None;
        }
        let says = |bar: &Bar| format!("{}: {} of {}.", bar.name, bar.count, bar.of);
        let says: Vec<String> = self.bars.iter().map(says).collect();
        let height = STEP * self.bars.len() as f64 + 6.0;
        let mut svg = open(&self.id, height, &self.title, &says.join(" "));
        for (index, bar) in self.bars.iter().enumerate() {
            svg += &draw(bar, STEP * index as f64);
        }
        Some(format!(
            "<figure class=\"plot\" id=\"{}\">\n<figcaption><h3>{}</h3><p>{}</p></figcaption>\n{svg}</svg>\n</figure>\n",
            self.id,
            escape(&self.title),
            escape(&self.about),
        ))
    }
}

fn draw(bar: &Bar, top: f64) -> String {
    let full = WIDTH - COUNT;
    let share = f64::from(bar.count) / f64::from(bar.of.max(1));
    // None at all is a line that can be seen.
    let width = (share * full).max(1.5);
    let (text, middle) = (top + 13.0, top + 25.0);
    format!(
        "<text x=\"0\" y=\"{text:.1}\">{}</text><path class=\"track\" d=\"M0 {middle:.1}H{full:.1}\"/>\
         <g class=\"series {}\"><path class=\"bar\" d=\"M0 {middle:.1}H{width:.1}\"/></g>\
         <text x=\"{:.1}\" y=\"{:.1}\">{} of {}</text>",
        escape(&bar.name),
        bar.who.class(),
        full + 8.0,
        middle + 4.0,
        bar.count,
        bar.of
    )
}
