//! The orders of priorities in which the test published in 2012 sends.

/// The value of POSIX's MQ_PRIO_MAX on Linux.
const PRIORITIES: u32 = 32_768;

/// The order of the priorities of successive messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Constant,
    Increasing,
    Decreasing,
    Random,
}

impl Order {
    pub const ALL: [Self; 4] = [
        Self::Constant,
        Self::Increasing,
        Self::Decreasing,
        Self::Random,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Increasing => "increasing",
            Self::Decreasing => "decreasing",
            Self::Random => "random",
        }
    }

    /// Returns the orders in which the test of 2012 had filled its queue before it measured this order. As the first order has no predecessor, the
    /// queue is filled in the first order itself.
    pub fn before(self) -> &'static [Self] {
        let all = &Self::ALL;
        match self {
            Self::Constant => &all[..1],
            Self::Increasing => &all[..1],
            Self::Decreasing => &all[..2],
            Self::Random => &all[..3],
        }
    }
}

/// An endless series of priorities that is the same at each use. The compiler inlines `next` into the loop that calls it.
pub trait Priorities {
    /// The series at its start. The first priority is 0.
    const FIRST: Self;
    fn next(&mut self) -> u32;
}

pub struct Constant;

impl Priorities for Constant {
    const FIRST: Self = Self;

    #[inline]
    fn next(&mut self) -> u32 {
        0
    }
}

pub struct Increasing(u32);

impl Priorities for Increasing {
    const FIRST: Self = Self(0);

    #[inline]
    fn next(&mut self) -> u32 {
        let priority = self.0;
        self.0 = (priority + 1) % PRIORITIES;
        priority
    }
}

pub struct Decreasing(u32);

impl Priorities for Decreasing {
    const FIRST: Self = Self(0);

    #[inline]
    fn next(&mut self) -> u32 {
        let priority = self.0;
        self.0 = priority.wrapping_sub(1) % PRIORITIES;
        priority
    }
}

/// Marsaglia's xorshift: it takes a nanosecond, and has no table that would displace the measured data from the cache.
pub struct Random(u32);

impl Priorities for Random {
    const FIRST: Self = Self(0x9e37_79b9);

    #[inline]
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % PRIORITIES
    }
}

/// Calls `$function::<..., Series>($arguments)` with the series of an order.
macro_rules! with_order {
    ($order:expr, $function:ident::<$queue:ty>($($argument:expr),*)) => {
        match $order {
            $crate::suites::priorities::Order::Constant =>
                $function::<$queue, $crate::suites::priorities::Constant>($($argument),*),
            $crate::suites::priorities::Order::Increasing =>
                $function::<$queue, $crate::suites::priorities::Increasing>($($argument),*),
            $crate::suites::priorities::Order::Decreasing =>
                $function::<$queue, $crate::suites::priorities::Decreasing>($($argument),*),
            $crate::suites::priorities::Order::Random =>
                $function::<$queue, $crate::suites::priorities::Random>($($argument),*),
        }
    };
}
pub(super) use with_order;

#[cfg(test)]
mod tests {
    use super::*;

    fn first_three<P: Priorities>() -> [u32; 3] {
        let mut series = P::FIRST;
        [series.next(), series.next(), series.next()]
    }

    #[test]
    fn series_run_as_in_the_published_test() {
        assert_eq!(first_three::<Constant>(), [0, 0, 0]);
        assert_eq!(first_three::<Increasing>(), [0, 1, 2]);
        assert_eq!(first_three::<Decreasing>(), [0, 32_767, 32_766]);
        assert!(
            first_three::<Random>()
                .iter()
                .all(|&priority| priority < PRIORITIES)
        );
    }
}
