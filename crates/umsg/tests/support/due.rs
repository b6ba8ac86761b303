//! Messages whose delivery times pass before any process uses the queue.

use std::time::{Duration, Instant, SystemTime};

const DELAY: Duration = Duration::from_millis(60);
const STUCK: Duration = Duration::from_secs(20);

/// The tolerance of times. The coarse clock, by which the library delivers delayed messages, lags by less than this, and CLOCK_REALTIME may be
/// slewed.
pub const LAG: Duration = Duration::from_millis(20);

/// The delivery times of the messages, in milliseconds after a common begin, in the order of the sends. Many are equal.
pub const TIMES: [u64; 14] = [5, 0, 7, 0, 3, 5, 1, 3, 0, 9, 1, 7, 2, 5];

/// Calls `act` with a time, until `act` ends before this time is over. On a busy machine, repeats with longer times. `act` returns the moment when
/// the time begins, and the result. A result counts only if the time was not over yet.
pub fn in_time<T>(first: Duration, mut act: impl FnMut(Duration) -> (Instant, T)) -> T {
    for time in [first, 10 * first, 100 * first] {
        let (begin, result) = act(time);
        if begin.elapsed() < time {
            return result;
        }
    }
    panic!("the calls take longer than {:?}", 100 * first);
}

/// Returns the positions of the messages, in the order in which they are delivered.
pub fn by_time() -> Vec<u8> {
    let mut order: Vec<u8> = (0..TIMES.len() as u8).collect();
    // This sort keeps the order of equal times.
    order.sort_by_key(|position| TIMES[usize::from(*position)]);
    order
}

/// Sends a message for each time by `send(position, time)`, before the first of these times, and waits until all delivery times have passed. No
/// process uses the queue meanwhile. If a delivery time had passed before the last send, calls `again` and repeats with later times.
pub fn until_all_are_due(send: impl Fn(u8, SystemTime), mut again: impl FnMut()) {
    for wait in [DELAY, 10 * DELAY, STUCK] {
        let begin = SystemTime::now() + wait;
        for (position, time) in TIMES.iter().enumerate() {
            send(position as u8, begin + Duration::from_millis(*time));
        }
        if SystemTime::now() < begin {
            let last = begin + Duration::from_millis(10);
            while SystemTime::now() < last + LAG {
                std::thread::sleep(LAG);
            }
            return;
        }
        again();
    }
    panic!("the sends take longer than {STUCK:?}");
}
