//! Named places at which a test kills the bridge. A release build contains nothing of them.

/// Declares the points, each with the fate of a message whose bridge dies there.
macro_rules! points {
    ($($(#[doc = $what:literal])+ $name:ident;)+) => {
        /// A place in the code at which a test may kill the process.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Point {
            $($(#[doc = $what])+ $name,)+
        }

        /// Every point: its name, and the fate of the message.
        pub const POINTS: &[(Point, &str, &str)] = &[
            $((Point::$name, stringify!($name), concat!($($what),+)),)+
        ];
    };
}

points! {
    /// A message is leased and not published: it returns to its place in the queue.
    EXPORT_LEASED;
    /// A message is handed to the connection: it may be in the stream, and the stream recognises the next publish.
    EXPORT_PUBLISHED;
    /// A message is in the stream, and its lease lasts: the message returns, and the stream recognises the next publish.
    EXPORT_STORED;
    /// The message is acknowledged locally: the export is complete.
    EXPORT_ENDED;
    /// A message has left a queue of the kernel or a ring, and is not in the spool: the message is lost.
    SPOOL_TAKEN;
    /// A message is in the spool: the next bridge exports it.
    SPOOL_STORED;
    /// A message that JetStream refuses is in the dead-letter queue, and its lease lasts: it comes there once more.
    EXPORT_DEAD;
    /// A message has come from the stream, and is not placed: the server delivers it again.
    IMPORT_PULLED;
    /// Room is reserved, and nothing is committed: the room is free again, and the server delivers the message again.
    IMPORT_RESERVED;
    /// The message is in the queue, which has a record of its arrival: the next bridge finds the record and does not place the message again. Ends
    /// without such records (System V, ring, kernel): the message is placed once more.
    IMPORT_PLACED;
    /// The message is in the window's file, too: the next bridge recognises the redelivery.
    IMPORT_NOTED;
    /// The queue has no record of the arrival, the window's file has it: the next bridge recognises the redelivery.
    IMPORT_FORGOTTEN;
    /// The acknowledgement is handed to the connection: if it is lost, the next bridge recognises the redelivery.
    IMPORT_ENDED;
}

/// Kills the process here if a test requests it.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn reached(_: Point) {}

#[cfg(feature = "crash-points")]
pub use armed::reached;

#[cfg(feature = "crash-points")]
mod armed {
    use super::{POINTS, Point};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// The variable that arms a point: `NAME` or `NAME:3`, for the third pass.
    const VARIABLE: &str = "UMSG_BRIDGE_CRASH";
    static ARMED: OnceLock<Option<Point>> = OnceLock::new();
    static LEFT: AtomicU32 = AtomicU32::new(0);

    fn arm() -> Option<Point> {
        let armed = std::env::var(VARIABLE).ok()?;
        let (name, nth) = armed.split_once(':').unwrap_or((&armed, "1"));
        LEFT.store(nth.parse().expect("a number of passes"), Ordering::Relaxed);
        let point = POINTS.iter().find(|(_, known, _)| *known == name);
        Some(point.expect("a point of this name").0)
    }

    /// Kills the process here if a test requests it.
    pub fn reached(point: Point) {
        if *ARMED.get_or_init(arm) == Some(point) && LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
            use rustix::process::{Signal, getpid, kill_process};
            let _ = kill_process(getpid(), Signal::KILL);
            loop {
                std::hint::spin_loop();
            }
        }
    }
}
