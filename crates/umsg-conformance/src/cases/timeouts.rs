//! Deadlines: absolute times of the wall clock. A deadline has an effect only if a call would block.

use std::time::{Duration, Instant};

use crate::errno::Errno;
use crate::site::{Site, message};
use crate::sys::from_now;

subject! { $ timeouts, timeouts_cases:
    a_receive_that_need_not_wait_ignores_a_past_deadline
    a_send_that_need_not_wait_ignores_a_past_deadline
    a_receive_from_an_empty_queue_with_a_past_deadline_times_out
    a_send_to_a_full_queue_with_a_past_deadline_times_out
    a_nonblocking_descriptor_says_would_block_whatever_the_deadline
    a_receive_waits_until_its_deadline
    a_send_waits_until_its_deadline
    the_epoch_is_a_deadline_in_the_past
    a_deadline_in_the_far_future_is_no_overflow
    the_last_nanosecond_of_a_second_is_valid
    without_a_deadline_a_timed_receive_waits_for_ever
    without_a_deadline_a_timed_send_waits_for_ever
    a_receive_that_timed_out_takes_nothing_later
    a_send_that_timed_out_leaves_nothing_behind
    a_message_in_time_ends_the_wait
    room_in_time_ends_the_wait
    many_time_outs_leave_the_queue_usable
}

const EPOCH: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

fn a_receive_that_need_not_wait_ignores_a_past_deadline(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.send(b"there", 1), Ok(()));
    assert_eq!(queue.receive_by(from_now(-1000)), Ok(message("there", 1)));
}

fn a_send_that_need_not_wait_ignores_a_past_deadline(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.send_by(b"room", 1, from_now(-1000)), Ok(()));
    assert_eq!(queue.receive(), Ok(message("room", 1)));
}

fn a_receive_from_an_empty_queue_with_a_past_deadline_times_out(site: &Site) {
    assert_eq!(
        site.queue(2, 8).receive_by(from_now(-1000)),
        Err(Errno::ETIMEDOUT)
    );
}

fn a_send_to_a_full_queue_with_a_past_deadline_times_out(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(queue.send(b"full", 1), Ok(()));
    assert_eq!(
        queue.send_by(b"more", 1, from_now(-1000)),
        Err(Errno::ETIMEDOUT)
    );
    assert_eq!(queue.messages(), 1);
}

fn a_nonblocking_descriptor_says_would_block_whatever_the_deadline(site: &Site) {
    let queue = site.nonblocking(1, 8);
    for deadline in [from_now(-1000), from_now(60_000), EPOCH] {
        assert_eq!(queue.receive_by(deadline), Err(Errno::EAGAIN));
    }
    queue.fill();
    for deadline in [from_now(-1000), from_now(60_000), EPOCH] {
        assert_eq!(queue.send_by(b"x", 0, deadline), Err(Errno::EAGAIN));
    }
}

/// Returns the time that a timed call takes to time out.
#[track_caller]
fn time_to_time_out(call: impl FnOnce() -> Result<(), Errno>) -> Duration {
    let start = Instant::now();
    assert_eq!(call(), Err(Errno::ETIMEDOUT));
    start.elapsed()
}

fn a_receive_waits_until_its_deadline(site: &Site) {
    let queue = site.queue(1, 8);
    for milliseconds in [1, 30, 250] {
        let waited = time_to_time_out(|| queue.receive_by(from_now(milliseconds)).map(drop));
        // The test measures with the monotonic clock, and the deadline uses the wall clock. The two clocks may differ a little in speed.
        assert!(
            waited.as_micros() as i64 >= milliseconds * 990,
            "{waited:?} of {milliseconds} ms"
        );
    }
}

fn a_send_waits_until_its_deadline(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(queue.send(b"full", 0), Ok(()));
    for milliseconds in [1, 30, 250] {
        let waited = time_to_time_out(|| queue.send_by(b"more", 0, from_now(milliseconds)));
        assert!(
            waited.as_micros() as i64 >= milliseconds * 990,
            "{waited:?} of {milliseconds} ms"
        );
    }
}

fn the_epoch_is_a_deadline_in_the_past(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(queue.receive_by(EPOCH), Err(Errno::ETIMEDOUT));
    assert_eq!(queue.send_by(b"full", 0, EPOCH), Ok(()));
    assert_eq!(queue.send_by(b"more", 0, EPOCH), Err(Errno::ETIMEDOUT));
}

fn a_deadline_in_the_far_future_is_no_overflow(site: &Site) {
    for tv_sec in [
        1 << 33,
        1 << 40,
        i64::MAX / 1_000_000_000,
        i64::MAX / 1_000_000_000 + 1,
        i64::MAX,
    ] {
        let deadline = libc::timespec {
            tv_sec,
            tv_nsec: 999_999_999,
        };
        let queue = site.queue(1, 8);
        assert_eq!(queue.send_by(b"now", 0, deadline), Ok(()));
        assert_eq!(queue.receive_by(deadline), Ok(message("now", 0)));
        let receiver = site.child(|| queue.receive_by(deadline));
        receiver.wait_until_blocked();
        receiver.expect_still_blocked();
        assert_eq!(queue.send(b"later", 0), Ok(()));
        assert_eq!(receiver.result(), Ok(message("later", 0)));
    }
}

fn the_last_nanosecond_of_a_second_is_valid(site: &Site) {
    let deadline = libc::timespec {
        tv_sec: 0,
        tv_nsec: 999_999_999,
    };
    assert_eq!(site.queue(1, 8).receive_by(deadline), Err(Errno::ETIMEDOUT));
}

fn without_a_deadline_a_timed_receive_waits_for_ever(site: &Site) {
    let queue = site.queue(1, 8);
    let receiver = site.child(|| {
        let mut buffer = [0; 8];
        let (length, priority) =
            site.ask(site.backend().timed_receive(queue.fd(), &mut buffer, None))?;
        Ok(message(&buffer[..length], priority))
    });
    receiver.wait_until_blocked();
    receiver.expect_still_blocked();
    assert_eq!(queue.send(b"at last", 2), Ok(()));
    assert_eq!(receiver.result(), Ok(message("at last", 2)));
}

fn without_a_deadline_a_timed_send_waits_for_ever(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(queue.send(b"full", 0), Ok(()));
    let sender =
        site.child(|| site.ask(site.backend().timed_send(queue.fd(), b"at last", 2, None)));
    sender.wait_until_blocked();
    sender.expect_still_blocked();
    assert_eq!(queue.receive(), Ok(message("full", 0)));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.receive(), Ok(message("at last", 2)));
}

fn a_receive_that_timed_out_takes_nothing_later(site: &Site) {
    let queue = site.nonblocking(2, 8);
    queue.set_nonblocking(false);
    assert_eq!(queue.receive_by(from_now(5)), Err(Errno::ETIMEDOUT));
    assert_eq!(queue.send(b"late", 0), Ok(()));
    assert_eq!(queue.messages(), 1);
    queue.set_nonblocking(true);
    assert_eq!(queue.drain(), [message("late", 0)]);
}

fn a_send_that_timed_out_leaves_nothing_behind(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(queue.send(b"full", 0), Ok(()));
    assert_eq!(
        queue.send_by(b"ghost", 9, from_now(5)),
        Err(Errno::ETIMEDOUT)
    );
    queue.set_nonblocking(true);
    assert_eq!(queue.drain(), [message("full", 0)]);
    assert_eq!(queue.fill(), 1);
}

fn a_message_in_time_ends_the_wait(site: &Site) {
    let queue = site.queue(1, 8);
    let receiver = site.child(|| queue.receive_by(from_now(30_000)));
    receiver.wait_until_blocked();
    assert_eq!(queue.send(b"in time", 4), Ok(()));
    assert_eq!(receiver.result(), Ok(message("in time", 4)));
    assert_eq!(queue.messages(), 0);
}

fn room_in_time_ends_the_wait(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(queue.send(b"full", 0), Ok(()));
    let sender = site.child(|| queue.send_by(b"in time", 4, from_now(30_000)));
    sender.wait_until_blocked();
    assert_eq!(queue.receive(), Ok(message("full", 0)));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.receive(), Ok(message("in time", 4)));
}

fn many_time_outs_leave_the_queue_usable(site: &Site) {
    let queue = site.queue(2, 8);
    for _ in 0..300 {
        assert_eq!(queue.receive_by(from_now(-1)), Err(Errno::ETIMEDOUT));
    }
    queue.set_nonblocking(true);
    assert_eq!(queue.fill(), 2);
    queue.set_nonblocking(false);
    for _ in 0..300 {
        assert_eq!(
            queue.send_by(b"ghost", 0, from_now(-1)),
            Err(Errno::ETIMEDOUT)
        );
    }
    queue.set_nonblocking(true);
    assert_eq!(queue.drain(), [message("x", 0), message("x", 0)]);
    assert_eq!(queue.fill(), 2);
}
