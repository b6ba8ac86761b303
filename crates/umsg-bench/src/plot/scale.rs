//! Axes: the position of a value, and its label.

/// An axis.
pub struct Axis {
    /// The quantity, with its unit.
    pub label: String,
    pub scale: Scale,
}

/// The conversion of values to positions on an axis.
#[derive(Clone)]
pub enum Scale {
    /// A logarithmic axis: equal factors have equal lengths.
    Log,
    /// A logarithmic axis with labels at these values.
    LogAt(Vec<f64>),
    /// For percentiles: the distance from 90 to 99 equals the distance from 99 to 99.9.
    Tail,
}

/// A labelled position on an axis.
pub struct Tick {
    pub value: f64,
    pub text: String,
}

impl Scale {
    /// Returns the position of a value as a length from an arbitrary start.
    fn place(&self, value: f64) -> f64 {
        match self {
            Self::Log | Self::LogAt(_) => value.log10(),
            Self::Tail => -(1.0 - value / 100.0).log10(),
        }
    }

    /// Returns the range of an axis for these values.
    pub fn range(&self, values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        match self {
            Self::Log => {
                let (below, above) = (round_below(low), round_above(high));
                // If all values are one round value, the axis still needs a range.
                if below < above {
                    (below, above)
                } else {
                    (below / 10.0, above * 10.0)
                }
            }
            Self::LogAt(ticks) => {
                let first = ticks.first().copied().unwrap_or(low);
                let last = ticks.last().copied().unwrap_or(high);
                (low.min(first) / 1.15, high.max(last) * 1.15)
            }
            Self::Tail => (0.0, high),
        }
    }

    /// Returns the position of a value on the axis: 0 to 1.
    pub fn share(&self, value: f64, (low, high): (f64, f64)) -> f64 {
        let (start, end) = (self.place(low), self.place(high));
        (self.place(value) - start) / (end - start)
    }

    pub fn ticks(&self, range: (f64, f64)) -> Vec<Tick> {
        let values = match self {
            Self::Log => round_values(range),
            Self::LogAt(values) => values.clone(),
            Self::Tail => vec![0.0, 50.0, 90.0, 99.0, 99.9],
        };
        let inside = |value: &f64| (-0.001..=1.001).contains(&self.share(*value, range));
        let tick = |value| Tick {
            value,
            text: short(value),
        };
        values.into_iter().filter(inside).map(tick).collect()
    }
}

const ROUND: [f64; 3] = [1.0, 2.0, 5.0];

/// Returns the round values of an axis; only powers of ten if the axis is long.
fn round_values((low, high): (f64, f64)) -> Vec<f64> {
    let decades = (high / low).log10();
    let steps: &[f64] = if decades > 3.1 { &ROUND[..1] } else { &ROUND };
    let exponents = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    exponents
        .flat_map(|exponent| steps.iter().map(move |step| step * 10_f64.powi(exponent)))
        .collect()
}

fn round_below(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let fits = ROUND.iter().rev().find(|&&step| step * decade <= value);
    fits.unwrap_or(&1.0) * decade
}

fn round_above(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let fits = ROUND.iter().find(|&&step| step * decade >= value);
    fits.unwrap_or(&10.0) * decade
}

/// Returns a number as a short text: 0.5, 20, 5 k, 1 M.
pub fn short(value: f64) -> String {
    let (value, unit) = match value {
        large if large >= 1e6 => (large / 1e6, " M"),
        large if large >= 1e4 => (large / 1e3, " k"),
        small => (small, ""),
    };
    let text = format!("{value:.3}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_begins_and_ends_at_round_values() {
        let scale = Scale::Log;
        assert_eq!(scale.range([43.0, 812.0].into_iter()), (20.0, 1000.0));
        assert_eq!(scale.range([10.0].into_iter()), (1.0, 100.0));
        let texts: Vec<String> = scale
            .ticks((20.0, 1000.0))
            .into_iter()
            .map(|tick| tick.text)
            .collect();
        assert_eq!(texts, ["20", "50", "100", "200", "500", "1000"]);
    }

    #[test]
    fn a_long_axis_names_powers_of_ten_only() {
        let texts: Vec<String> = Scale::Log
            .ticks((1.0, 1e6))
            .into_iter()
            .map(|tick| tick.text)
            .collect();
        assert_eq!(texts, ["1", "10", "100", "1000", "10 k", "100 k", "1 M"]);
    }

    #[test]
    fn as_far_from_90_to_99_as_from_99_to_999() {
        let range = (0.0, 99.9);
        let at = |value| Scale::Tail.share(value, range);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(at(99.0) - at(90.0), at(99.9) - at(99.0)));
        assert!(near(at(0.0), 0.0) && near(at(99.9), 1.0));
    }
}
