//! Bars that show a number of events out of a number of trials.

use maud::{Markup, html};

use super::{WIDTH, Who, figure};

/// Horizontal bars, one below the other.
pub struct Bars {
    pub id: String,
    pub title: String,
    pub about: String,
    pub bars: Vec<Bar>,
}

/// The number of events, and the number of trials.
pub struct Bar {
    pub name: String,
    pub who: Who,
    pub count: u32,
    pub of: u32,
}

/// The height of a bar with its name, in units of the plot.
const STEP: f64 = 34.0;
/// Room for the count, right of the bar.
const COUNT: f64 = 60.0;

impl Bars {
    /// Returns an HTML figure with the heading and the drawing; None without data.
    pub fn figure(&self) -> Option<Markup> {
        if self.bars.is_empty() {
            return None;
        }
        let says = |bar: &Bar| format!("{}: {} of {}.", bar.name, bar.count, bar.of);
        let says: Vec<String> = self.bars.iter().map(says).collect();
        let height = STEP * self.bars.len() as f64 + 6.0;
        let drawing = html! {
            @for (index, bar) in self.bars.iter().enumerate() { (draw(bar, STEP * index as f64)) }
        };
        let names = [&self.id, &self.title, &self.about].map(String::as_str);
        Some(figure(names, None, height, &says.join(" "), &drawing))
    }
}

fn draw(bar: &Bar, top: f64) -> Markup {
    let full = WIDTH - COUNT;
    let share = f64::from(bar.count) / f64::from(bar.of.max(1));
    // Even zero is drawn as a visible line.
    let width = (share * full).max(1.5);
    let (text, middle) = (top + 13.0, top + 25.0);
    let line = |length: f64| format!("M0 {middle:.1}H{length:.1}");
    html! {
        text x="0" y=(text) { (bar.name) }
        path.track d=(line(full)) {}
        g class={ "series " (bar.who.class()) } { path.bar d=(line(width)) {} }
        text x=(full + 8.0) y=(middle + 4.0) { (bar.count) " of " (bar.of) }
    }
}
