//! Lines over two axes.

use super::{Plot, Series, WIDTH, escape, open};
use crate::table::number;

const HEIGHT: f64 = 236.0;
/// What is left around the axes for text.
const LEFT: f64 = 54.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 38.0;

const DASHES: [&str; 4] = ["", "7 3", "1.5 3", "8 3 1.5 3"];

/// From where to where the axes go.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
}

impl Plot {
    /// A figure with heading, legend and drawing; none if there is nothing to draw.
    pub fn figure(&self) -> Option<String> {
        let drawn = || {
            self.series
                .iter()
                .filter(|series| !series.points.is_empty())
        };
        let points = || drawn().flat_map(|series| &series.points);
        points().next()?;
        let frame = Frame {
            x: self.x.scale.range(points().map(|point| point.0)),
            y: self.y.scale.range(points().map(|point| point.1)),
        };
        let mut svg = open(&self.id, HEIGHT, &self.title, &self.describe());
        svg += &self.grid(&frame);
        drawn().for_each(|series| svg += &self.line(series, &frame));
        svg += "</svg>";
        let legend: Vec<String> = drawn().map(legend).collect();
        Some(format!(
            "<figure class=\"plot\" id=\"{}\">\n<figcaption><h3>{}</h3><p>{}</p></figcaption>\n\
             <ul class=\"legend\">{}</ul>\n{svg}\n</figure>\n",
            self.id,
            escape(&self.title),
            escape(&self.about),
            legend.concat()
        ))
    }

    /// For those who can't see it: where each line begins and ends.
    fn describe(&self) -> String {
        let ends = |series: &Series| {
            let (first, last) = (series.points.first()?, series.points.last()?);
            let at = |(x, y): &(f64, f64)| format!("{} at {}", number(Some(*y)), number(Some(*x)));
            Some(format!("{}: {}, {}.", series.name, at(first), at(last)))
        };
        let lines: Vec<String> = self.series.iter().filter_map(ends).collect();
        format!(
            "{} over {}. {}",
            self.y.label,
            self.x.label,
            lines.join(" ")
        )
    }

    fn x_of(&self, value: f64, frame: &Frame) -> f64 {
        LEFT + self.x.scale.share(value, frame.x) * (WIDTH - LEFT - RIGHT)
    }

    fn y_of(&self, value: f64, frame: &Frame) -> f64 {
        HEIGHT - BOTTOM - self.y.scale.share(value, frame.y) * (HEIGHT - TOP - BOTTOM)
    }

    /// Lines of the grid with their values, and the labels of the axes.
    fn grid(&self, frame: &Frame) -> String {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let mut svg = "<g class=\"grid\">".to_owned();
        for tick in self.y.scale.ticks(frame.y) {
            let y = self.y_of(tick.value, frame);
            svg += &format!("<path d=\"M{LEFT} {y:.1}H{right}\"/>");
            svg += &format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 3.5,
                tick.text
            );
        }
        for tick in self.x.scale.ticks(frame.x) {
            let x = self.x_of(tick.value, frame);
            svg += &format!("<path d=\"M{x:.1} {TOP}V{bottom}\"/>");
            svg += &format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 14.0,
                tick.text
            );
        }
        let middle = (TOP + bottom) / 2.0;
        svg + &format!(
            "</g><text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"label\" transform=\"translate(10 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 6.0,
            escape(&self.x.label),
            escape(&self.y.label),
        )
    }

    fn line(&self, series: &Series, frame: &Frame) -> String {
        let places: Vec<(f64, f64)> = series
            .points
            .iter()
            .map(|&(x, y)| (self.x_of(x, frame), self.y_of(y, frame)))
            .collect();
        let path: Vec<String> = places
            .iter()
            .map(|(x, y)| format!("{x:.1} {y:.1}"))
            .collect();
        let mut svg = format!(
            "<g class=\"series {}\"><path class=\"line\" d=\"M{}\" stroke-dasharray=\"{}\"/>",
            series.who.class(),
            path.join("L"),
            DASHES[series.style % DASHES.len()]
        );
        for ((x, y), value) in places.iter().zip(&series.points) {
            svg += &series.who.mark(*x, *y, 2.6);
            let text = format!(
                "{}: {} at {}",
                series.name,
                number(Some(value.1)),
                number(Some(value.0))
            );
            svg += &format!(
                "><title>{}</title>{}",
                escape(&text),
                series.who.end_of_mark()
            );
        }
        svg + "</g>"
    }
}

/// What a line means, with a piece of it.
fn legend(series: &Series) -> String {
    format!(
        "<li><svg class=\"swatch\" viewBox=\"0 0 26 10\" aria-hidden=\"true\"><g class=\"series {}\">\
         <path class=\"line\" d=\"M1 5L25 5\" stroke-dasharray=\"{}\"/>{}/></g></svg>{}</li>",
        series.who.class(),
        DASHES[series.style % DASHES.len()],
        series.who.mark(13.0, 5.0, 2.8),
        escape(&series.name)
    )
}
