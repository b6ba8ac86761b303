//! Measures the kernel and umsg in turn, so that other load on the machine affects both alike.

use crate::failure::Result;

/// The results of the kernel and of umsg, one for each round.
pub struct Sides<T> {
    pub kernel: Vec<T>,
    pub umsg: Vec<T>,
}

/// Measures the kernel, then umsg, for the given number of rounds.
pub fn alternate<T>(
    rounds: usize,
    mut kernel: impl FnMut() -> Result<T>,
    mut umsg: impl FnMut() -> Result<T>,
) -> Result<Sides<T>> {
    let mut sides = Sides {
        kernel: Vec::new(),
        umsg: Vec::new(),
    };
    for _ in 0..rounds {
        sides.kernel.push(kernel()?);
        sides.umsg.push(umsg()?);
    }
    Ok(sides)
}

/// Returns the median of a figure over all rounds. For an even number of rounds, it returns the upper of the two middle figures.
pub fn median<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
