//! Named places at which a test kills a program. A release build does not contain these places.

/// Declares the crash points of a program. The comment of each point tells what happens to the message if the program dies there. `in VARIABLE` names
/// the environment variable that arms a point. The value `NAME` kills the program at the first pass of the point `NAME`, and the value `NAME:3` at
/// the third pass.
#[macro_export]
macro_rules! points {
    (in $variable:literal; $($(#[doc = $what:literal])+ $name:ident;)+) => {
        /// A place in the code at which a test may kill the process.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Point {
            $($(#[doc = $what])+ $name,)+
        }

        /// Every point: its name, and what happens to the message after a death at this point.
        pub const POINTS: &[(Point, &str, &str)] = &[
            $((Point::$name, stringify!($name), concat!($($what),+)),)+
        ];

        /// Kills the process here if a test requests it.
        #[inline(always)]
        pub fn reached(point: Point) {
            $crate::crash::reached($variable, || POINTS[point as usize].1);
        }
    };
}

/// Does nothing, because this build has no crash points.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn reached(_: &str, _: impl Fn() -> &'static str) {}

#[cfg(feature = "crash-points")]
pub use armed::reached;

#[cfg(feature = "crash-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// If this variable is set, an armed point panics instead of killing the process.
    const PANICS: &str = "UMSG_CRASH_PANICS";

    static ARMED: OnceLock<Option<String>> = OnceLock::new();
    static LEFT: AtomicU32 = AtomicU32::new(0);

    fn arm(variable: &str) -> Option<String> {
        let armed = std::env::var(variable).ok()?;
        let (name, nth) = armed.split_once(':').unwrap_or((&armed, "1"));
        // Relaxed: `OnceLock` publishes the count.
        LEFT.store(nth.parse().expect("a number of passes"), Ordering::Relaxed);
        Some(name.to_owned())
    }

    /// Kills the process if the environment variable arms this point, and if this pass of the point is the requested one.
    pub fn reached(variable: &str, point: impl Fn() -> &'static str) {
        let armed = ARMED.get_or_init(|| arm(variable));
        let is_meant = armed.as_deref().is_some_and(|armed| armed == point());
        // Relaxed: the counter publishes no other data.
        if is_meant && LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
            assert!(
                std::env::var_os(PANICS).is_none(),
                "a test armed this point"
            );
            use rustix::process::{Signal, getpid, kill_process};
            let _ = kill_process(getpid(), Signal::KILL);
            loop {
                std::hint::spin_loop();
            }
        }
    }
}
