//! Colours and text styles, and the characters of bars and curves.

use clap::ValueEnum;
use ratatui::style::{Color, Modifier, Style};

/// The set of colours, all from the 16 colours of the terminal. The background colour does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colours {
    /// For a dark background
    Dark,
    /// For a light background
    Light,
    /// No colour: bold, underlined and reversed text
    None,
}

/// The colours and the characters of the screen.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub colours: Colours,
    /// Whether the terminal shows more than ASCII.
    pub is_unicode: bool,
}

/// The role of a text on the screen. Each role has its own style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Notable,
    Bad,
    Heading,
    Faint,
}

impl Look {
    /// Returns the look for the option --colors, NO_COLOR, COLORFGBG and the locale.
    pub fn of_environment(wanted: Option<Colours>) -> Look {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let has_no_colour = !variable("NO_COLOR").is_empty() || variable("TERM") == "dumb";
        let default = match (has_no_colour, is_light(&variable("COLORFGBG"))) {
            (true, _) => Colours::None,
            (false, true) => Colours::Light,
            (false, false) => Colours::Dark,
        };
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable);
        let locale = locale.iter().find(|value| !value.is_empty());
        let is_unicode = locale.is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        Look {
            colours: wanted.unwrap_or(default),
            is_unicode,
        }
    }

    pub fn next_colours(&mut self) {
        self.colours = match self.colours {
            Colours::Dark => Colours::Light,
            Colours::Light => Colours::None,
            Colours::None => Colours::Dark,
        };
    }

    pub fn style(self, tone: Tone) -> Style {
        let plain = Style::default();
        let (dark, light, none) = match tone {
            Tone::Good => (Color::Green, Color::Blue, plain),
            Tone::Notable => (
                Color::Yellow,
                Color::Magenta,
                plain.add_modifier(Modifier::BOLD),
            ),
            Tone::Bad => (
                Color::LightRed,
                Color::Red,
                plain.add_modifier(Modifier::BOLD),
            ),
            Tone::Heading => (Color::Cyan, Color::Blue, plain.add_modifier(Modifier::BOLD)),
            Tone::Faint => (Color::Gray, Color::DarkGray, plain),
        };
        let bold = match tone {
            Tone::Bad | Tone::Heading => plain.add_modifier(Modifier::BOLD),
            _ => plain,
        };
        match self.colours {
            Colours::Dark => bold.fg(dark),
            Colours::Light => bold.fg(light),
            Colours::None => none,
        }
    }

    /// Returns the style of a queue's fill.
    pub fn of_fill(self, fill: f64) -> Style {
        self.style(match fill {
            0.9.. => Tone::Bad,
            0.6.. => Tone::Notable,
            _ => Tone::Good,
        })
    }

    /// Returns a bar that fills this part of the width.
    pub fn bar(self, part: f64, width: usize) -> String {
        let part = if part.is_finite() {
            part.clamp(0.0, 1.0)
        } else {
            1.0
        };
        if !self.is_unicode {
            let full = (part * width as f64) as usize;
            return format!("{}{}", "#".repeat(full), ".".repeat(width - full));
        }
        // The bar has at least one eighth of a character, so that a queue with one message does not look empty.
        let eighths = (part * width as f64 * 8.0) as usize;
        let eighths = eighths.max(usize::from(part > 0.0));
        let mut bar = "█".repeat(eighths / 8);
        if let rest @ 1.. = eighths % 8 {
            bar.push(['▏', '▎', '▍', '▌', '▋', '▊', '▉'][rest - 1]);
        }
        let used = bar.chars().count();
        bar.extend(std::iter::repeat_n(' ', width - used));
        bar
    }

    /// Returns the last values as a curve on one line. The curve ranges from 0 to `most`.
    pub fn curve(
        self,
        values: impl DoubleEndedIterator<Item = f64>,
        most: f64,
        width: usize,
    ) -> String {
        let levels = match self.is_unicode {
            true => ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
            false => ['_', '.', ',', '-', '=', '+', '*', '#'],
        };
        // NaN, which 0 / 0 gives, becomes 0.
        let level = |value: f64| levels[((value.max(0.0) / most * 7.0).ceil() as usize).min(7)];
        let mut curve: Vec<char> = values.rev().take(width).map(level).collect();
        curve.resize(width, ' ');
        curve.iter().rev().collect()
    }
}

/// Returns whether the background of the terminal is light. `COLORFGBG` has the form `text;background`.
fn is_light(colours: &str) -> bool {
    let background = colours.rsplit(';').next().unwrap_or_default();
    matches!(background.parse(), Ok(7_u8 | 9..=15))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look {
        colours: Colours::None,
        is_unicode: true,
    };

    #[test]
    fn a_bar_has_its_width_and_shows_one_message() {
        assert_eq!(LOOK.bar(0.5, 4), "██  ");
        assert_eq!(LOOK.bar(0.001, 4), "▏   ");
        assert_eq!(LOOK.bar(0.0, 4), "    ");
        for part in [-1.0, 0.3, 0.999, 1.0, 7.0, f64::NAN, f64::INFINITY] {
            for look in [
                LOOK,
                Look {
                    is_unicode: false,
                    ..LOOK
                },
            ] {
                assert_eq!(look.bar(part, 9).chars().count(), 9, "{part}");
            }
        }
    }

    #[test]
    fn a_curve_shows_the_last_values_at_the_right() {
        let curve = |values: &[f64]| LOOK.curve(values.iter().copied(), 1.0, 4);
        assert_eq!(curve(&[]), "    ");
        assert_eq!(curve(&[0.0, 1.0]), "  ▁█");
        assert_eq!(curve(&[1.0, 0.0, 0.0, 0.0, 0.01]), "▁▁▁▂");
        assert_eq!(curve(&[f64::NAN, f64::INFINITY]), "  ▁█");
    }

    #[test]
    fn a_light_background_is_recognised() {
        assert!(is_light("0;15") && is_light("0;default;7"));
        assert!(!is_light("") && !is_light("15;0") && !is_light("7;8"));
    }
}
