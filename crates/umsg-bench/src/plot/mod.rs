//! Plots as SVG within a page. Text and lines take their colours from the page, also in the dark theme.
//!
//! A plot is 360 units wide, about what a phone shows, and grows with the page. A series is identified by its colour and by the form of its marks,
//! and a variant of a series by dashes. The colours are blue and orange, which all readers can distinguish.

mod bars;
mod lines;
mod scale;

use maud::{Markup, html};

pub use self::bars::{Bar, Bars};
pub use self::scale::{Axis, Scale};

/// The width of every plot, in units of its drawing.
const WIDTH: f64 = 360.0;

/// Lines over two axes.
pub struct Plot {
    pub id: String,
    pub title: String,
    /// The description of the figures that the plot shows, in a sentence.
    pub about: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

/// The side to which the figures belong. Each side has a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Umsg,
    Kernel,
    Third,
    Fourth,
}

/// A line, of points in the order of x.
pub struct Series {
    pub name: String,
    pub who: Who,
    /// The style of the line: solid, dashed, dotted.
    pub style: usize,
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// Makes a series of the points that exist and can be drawn on a logarithmic axis.
    pub fn new(
        name: impl Into<String>,
        who: Who,
        style: usize,
        points: impl IntoIterator<Item = (f64, Option<f64>)>,
    ) -> Self {
        let there = |(x, y): (f64, Option<f64>)| Some((x, y.filter(|&y| y > 0.0)?));
        Self {
            name: name.into(),
            who,
            style,
            points: points.into_iter().filter_map(there).collect(),
        }
    }
}

impl Who {
    /// Returns the CSS class, which gives the series its colour.
    fn class(self) -> &'static str {
        match self {
            Self::Umsg => "c0",
            Self::Kernel => "c1",
            Self::Third => "c2",
            Self::Fourth => "c3",
        }
    }

    /// Returns a mark of radius `r`, with the text that the browser shows under the mouse pointer.
    fn mark(self, (x, y): (f64, f64), r: f64, says: Option<&str>) -> Markup {
        let says = html! { @if let Some(says) = says { title { (says) } } };
        let path = |points: &[(f64, f64)]| {
            let points: Vec<String> = points
                .iter()
                .map(|(dx, dy)| format!("{:.1} {:.1}", x + dx, y + dy))
                .collect();
            html! { path d={ "M" (points.join("L")) "Z" } { (says) } }
        };
        match self {
            Self::Umsg => html! {
                circle cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r=(r) { (says) }
            },
            Self::Kernel => path(&[(-r, -r), (r, -r), (r, r), (-r, r)]),
            Self::Third => path(&[(0.0, -1.3 * r), (1.2 * r, r), (-1.2 * r, r)]),
            Self::Fourth => path(&[
                (0.0, -1.4 * r),
                (1.4 * r, 0.0),
                (0.0, 1.4 * r),
                (-1.4 * r, 0.0),
            ]),
        }
    }
}

/// Returns a drawing with its heading, its legend, and a description for readers who can't see the drawing.
fn figure(
    [id, title, about]: [&str; 3],
    legend: Option<Markup>,
    height: f64,
    description: &str,
    drawing: &Markup,
) -> Markup {
    html! {
        figure.plot id=(id) {
            figcaption { h3 { (title) } p { (about) } }
            @if let Some(legend) = legend { ul.legend { (legend) } }
            svg.drawing viewBox=(format!("0 0 {WIDTH} {height:.0}")) role="img" aria-labelledby={ (id) "-t " (id) "-d" } {
                title id={ (id) "-t" } { (title) }
                desc id={ (id) "-d" } { (description) }
                (drawing)
            }
        }
    }
}
