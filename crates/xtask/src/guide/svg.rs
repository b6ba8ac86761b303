//! A picture of a terminal's screen: text with escape sequences, as `tmux capture-pane -e` prints it, becomes SVG. The same screen becomes the same
//! picture.
//!
//! This module interprets the sequences that set colours and attributes (`ESC [ numbers m`), and skips all others.

use std::fmt::Write as _;

/// The size of a character, in units of the picture.
const WIDTH: f64 = 8.4;
const HEIGHT: u32 = 18;
/// The distance of the baseline from the top of a line.
const BASELINE: u32 = 13;
const MARGIN: u32 = 10;

/// The colours of a terminal: the background, the text, and the 16 of the palette.
pub struct Theme {
    background: &'static str,
    text: &'static str,
    palette: [&'static str; 16],
}

pub const DARK: Theme = Theme {
    background: "#1b1f24",
    text: "#d4d8dd",
    palette: [
        "#3b424b", "#e06c75", "#7ec27e", "#d9b55b", "#6ca8e8", "#c58fd8", "#5bbfc9", "#a9b1ba",
        "#6b7480", "#ff7b85", "#97d797", "#f0cf7a", "#8cc0f8", "#dba9ee", "#7ad7e0", "#ffffff",
    ],
};

pub const LIGHT: Theme = Theme {
    background: "#fbfbf9",
    text: "#24292f",
    palette: [
        "#24292f", "#b3202c", "#1a7f37", "#8a6100", "#0a55b0", "#8230a8", "#0b6e7a", "#8d949c",
        "#5c646d", "#d1303d", "#2a9a4a", "#a87700", "#2a6fd0", "#9a4bc2", "#158696", "#24292f",
    ],
};

/// The colours and the style of characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Paint {
    text: Option<u8>,
    background: Option<u8>,
    bold: bool,
    underlined: bool,
    reversed: bool,
}

/// Returns the picture of a screen, `columns` characters wide.
pub fn picture(screen: &str, columns: usize, theme: &Theme, title: &str) -> String {
    let lines: Vec<&str> = screen.trim_end_matches('\n').lines().collect();
    let width = (columns as f64 * WIDTH).ceil() as u32 + 2 * MARGIN;
    let height = lines.len() as u32 * HEIGHT + 2 * MARGIN;
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"{}\"/>\n<g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\" xml:space=\"preserve\">\n",
        escaped(title),
        theme.background,
    );
    let mut paint = Paint::default();
    for (line, top) in lines.iter().zip((MARGIN..).step_by(HEIGHT as usize)) {
        let mut column = 0;
        for (text, of) in runs(line, &mut paint) {
            let length = text.chars().count();
            draw(&mut svg, &text, of, (column, length, top), theme);
            column += length;
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Divides a line into texts of one paint. The next line begins with the paint at the end of this line.
fn runs(line: &str, paint: &mut Paint) -> Vec<(String, Paint)> {
    let mut runs: Vec<(String, Paint)> = vec![];
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if let Some((sequence, behind)) = rest.strip_prefix("\x1b[").and_then(sequence) {
            if let Some(codes) = sequence.strip_suffix('m') {
                paint.take(codes);
            }
            rest = behind;
            continue;
        }
        rest = &rest[first.len_utf8()..];
        if first.is_control() {
            continue;
        }
        match runs.last_mut().filter(|(_, of)| of == paint) {
            Some((text, _)) => text.push(first),
            None => runs.push((first.into(), *paint)),
        }
    }
    runs
}

/// Splits a text after its first escape sequence.
fn sequence(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| ('@'..='~').contains(&c))?;
    Some(text.split_at(end + 1))
}

impl Paint {
    fn take(&mut self, codes: &str) {
        let mut codes = codes.split(';').map(|code| code.parse().unwrap_or(0_u8));
        while let Some(code) = codes.next() {
            match code {
                // A colour of 256, of which the first 16 are the palette.
                38 | 48 => {
                    let number = codes.nth(1).filter(|number| *number < 16);
                    match code {
                        38 => self.text = number,
                        _ => self.background = number,
                    }
                }
                0 => *self = Paint::default(),
                1 => self.bold = true,
                4 => self.underlined = true,
                7 => self.reversed = true,
                22 => self.bold = false,
                24 => self.underlined = false,
                27 => self.reversed = false,
                code @ 30..=37 => self.text = Some(code - 30),
                39 => self.text = None,
                code @ 40..=47 => self.background = Some(code - 40),
                49 => self.background = None,
                code @ 90..=97 => self.text = Some(code - 90 + 8),
                code @ 100..=107 => self.background = Some(code - 100 + 8),
                _ => {}
            }
        }
    }
}

/// Draws a text at its column, and the background behind it.
fn draw(svg: &mut String, text: &str, paint: Paint, place: (usize, usize, u32), theme: &Theme) {
    let (column, length, top) = place;
    let colour = |number: u8| theme.palette[usize::from(number)];
    let front = paint.text.map_or(theme.text, colour);
    let back = paint.background.map_or(theme.background, colour);
    let (front, back) = match paint.reversed {
        true => (back, front),
        false => (front, back),
    };
    let x = f64::from(MARGIN) + column as f64 * WIDTH;
    let width = length as f64 * WIDTH;
    if back != theme.background {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{back}\"/>"
        );
    }
    let weight = if paint.bold {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let y = top + BASELINE;
    // Viewers draw spaces with different widths, so each word gets its own position.
    for (at, word) in words(text) {
        let x = f64::from(MARGIN) + (column + at) as f64 * WIDTH;
        let width = word.chars().count() as f64 * WIDTH;
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{front}\"{weight}>{}</text>",
            escaped(word)
        );
    }
}

/// Returns the words of a text, each with the number of characters before it.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut at = 0;
    let mut words = vec![];
    for word in text.split(' ') {
        if !word.is_empty() {
            words.push((at, word));
        }
        at += word.chars().count() + 1;
    }
    words
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_attributes_become_runs_and_go_on_in_the_next_line() {
        let mut paint = Paint::default();
        let found = runs("a\x1b[1;36mb<\x1b[7mc\x1b[0m \x1b[?25ld", &mut paint);
        let texts: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, ["a", "b<", "c", " d"]);
        assert_eq!((found[1].1.text, found[1].1.bold), (Some(6), true));
        assert!(found[2].1.reversed && found[3].1 == Paint::default());
        for sequence in ["\x1b[91m", "\x1b[38;5;9m"] {
            runs("\x1b[0m", &mut paint);
            runs(sequence, &mut paint);
            assert_eq!(runs("x", &mut paint)[0].1.text, Some(9));
        }
    }

    #[test]
    fn each_run_stands_in_its_column_and_markup_is_escaped() {
        let svg = picture("ab\x1b[7m<&\x1b[0m\n\n", 4, &DARK, "a > b");
        assert!(svg.contains("<title>a &gt; b</title>"), "{svg}");
        assert!(
            svg.contains("<text x=\"26.8\" y=\"23\" textLength=\"16.8\""),
            "{svg}"
        );
        assert!(svg.contains(">&lt;&amp;</text>"), "{svg}");
        let rect = "<rect x=\"26.8\" y=\"10\" width=\"16.8\" height=\"18\" fill=\"#d4d8dd\"/>";
        assert!(svg.contains(rect), "{svg}");
        assert_eq!(svg, picture("ab\x1b[7m<&\x1b[0m\n\n", 4, &DARK, "a > b"));
    }
}
