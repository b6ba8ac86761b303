//! Lines over two axes.

use maud::{Markup, html};

use super::{Plot, Series, WIDTH, figure};
use crate::table::number;

const HEIGHT: f64 = 236.0;
/// The margins around the axes, for text.
const LEFT: f64 = 54.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 38.0;

const DASHES: [&str; 4] = ["", "7 3", "1.5 3", "8 3 1.5 3"];

/// The ranges of the axes.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
}

impl Plot {
    /// Returns an HTML figure with the heading, the legend and the drawing; None without data.
    pub fn figure(&self) -> Option<Markup> {
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
        let drawing = html! {
            (self.grid(&frame))
            @for series in drawn() { (self.line(series, &frame)) }
        };
        let legend = html! { @for series in drawn() { (legend(series)) } };
        let names = [&self.id, &self.title, &self.about].map(String::as_str);
        Some(figure(
            names,
            Some(legend),
            HEIGHT,
            &self.describe(),
            &drawing,
        ))
    }

    /// Returns a description for readers that can't see the plot: the first and the last point of each line.
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
    fn grid(&self, frame: &Frame) -> Markup {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let (center, middle) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        let y_ticks = self.y.scale.ticks(frame.y).into_iter();
        let y_ticks = y_ticks.map(|tick| (self.y_of(tick.value, frame), tick.text));
        let x_ticks = self.x.scale.ticks(frame.x).into_iter();
        let x_ticks = x_ticks.map(|tick| (self.x_of(tick.value, frame), tick.text));
        html! {
            g.grid {
                @for (y, text) in y_ticks {
                    path d=(format!("M{LEFT} {y:.1}H{right}")) {}
                    text x=(LEFT - 6.0) y=(format!("{:.1}", y + 3.5)) text-anchor="end" { (text) }
                }
                @for (x, text) in x_ticks {
                    path d=(format!("M{x:.1} {TOP}V{bottom}")) {}
                    text x=(format!("{x:.1}")) y=(bottom + 14.0) text-anchor="middle" { (text) }
                }
            }
            text.label x=(center) y=(HEIGHT - 6.0) text-anchor="middle" { (self.x.label) }
            text.label transform=(format!("translate(10 {middle:.1}) rotate(-90)")) text-anchor="middle" { (self.y.label) }
        }
    }

    fn line(&self, series: &Series, frame: &Frame) -> Markup {
        let places: Vec<(f64, f64)> = series
            .points
            .iter()
            .map(|&(x, y)| (self.x_of(x, frame), self.y_of(y, frame)))
            .collect();
        let path: Vec<String> = places
            .iter()
            .map(|(x, y)| format!("{x:.1} {y:.1}"))
            .collect();
        let says = |(x, y): &(f64, f64)| {
            let [x, y] = [x, y].map(|value| number(Some(*value)));
            format!("{}: {y} at {x}", series.name)
        };
        html! {
            g class={ "series " (series.who.class()) } {
                path.line d={ "M" (path.join("L")) } stroke-dasharray=(dashes(series)) {}
                @for (place, point) in places.into_iter().zip(&series.points) {
                    (series.who.mark(place, 2.6, Some(&says(point))))
                }
            }
        }
    }
}

fn dashes(series: &Series) -> &'static str {
    DASHES[series.style % DASHES.len()]
}

/// Draws the entry of a line in the legend: a sample of the line, and its meaning.
fn legend(series: &Series) -> Markup {
    html! {
        li {
            svg.swatch viewBox="0 0 26 10" aria-hidden="true" {
                g class={ "series " (series.who.class()) } {
                    path.line d="M1 5L25 5" stroke-dasharray=(dashes(series)) {}
                    (series.who.mark((13.0, 5.0), 2.8, None))
                }
            }
            (series.name)
        }
    }
}
