//! Pseudo-random numbers. The same seed gives the same sequence.

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number of the sequence.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`. For the bound 0, the result is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.number() % bound }
    }

    /// Returns true with a probability of `percent` in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of the given values, each with the same probability.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Chooses one of the given values, with a probability in proportion to its weight.
    pub fn weighted<T: Copy>(&mut self, from: &[(u64, T)]) -> T {
        let mut at = self.below(from.iter().map(|(weight, _)| weight).sum());
        for &(weight, value) in from {
            if at < weight {
                return value;
            }
            at -= weight;
        }
        from[from.len() - 1].1
    }
}
