//! The word on which the helper of a poller sleeps. Processes of other users can't ring the poller's FIFO, and call the helper by this word.
//!
//! A FIFO shows the last message, even if a caller dies. If a helper misses a call, the model reports a deadlock.
//!
//! | a defect | its effect here |
//! |---|---|
//! | the caller leaves the number as it is, does not wake the helper, or wakes it before it changes the number | a deadlock |
//! | a helper reads the number after it has dropped the lock | time passes without end |
//! | a holder asks for slices without a call, or a helper notes after the unlock that it needs none | a deadlock |
//! | a call does not clear the flag | each send after the death of a helper calls the dead helper |

use super::stage::{LATER, Queue, Slices, alive, explore};
use super::subject::{Deaths, Subject};
use crate::crash::Point;
use crate::doorbell::{LEVELS, is_called};
use crate::lock::SLICE;
use crate::model::doorbell::Feed;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::sync::Ordering;
use crate::sys::clock::{self, Deadline};
use crate::sys::futex;
use loom::thread::JoinHandle;

const HELPER: u32 = 1;
const CALLER: u32 = 2;
const OTHER_CALLER: u32 = 3;

/// The FIFO that the helper feeds.
#[derive(Clone, Copy)]
enum Fifo {
    /// The private FIFO of the poller's process. The caller's process rings no FIFO.
    Private,
    /// The shared doorbell, which the callers can't ring.
    Shared,
}

/// Returns a queue whose poller has a helper, the FIFO, and the number on which the helper sleeps.
fn helped(max_messages: usize, fifo: Fifo) -> (Queue, Feed, u32) {
    let queue = Queue::new(max_messages, max_messages);
    let (feed, value) = queue.direct(|queue, me| {
        let engine = queue.engine();
        let feed = match fifo {
            Fifo::Private => Feed::private(),
            Fifo::Shared => {
                engine.watch(me, LEVELS).unwrap();
                engine.doorbell().add_stranger(CALLER);
                engine.doorbell().add_stranger(OTHER_CALLER);
                Feed::shared(1)
            }
        };
        let value = engine.hear(me, &feed).unwrap();
        (feed, value)
    });
    (queue, feed, value)
}

/// Whether a FIFO shows messages, and whether it shows room.
type Shown = (bool, bool);

/// Acts as a helper: sleeps until a call, and shows the level, until `suffices` returns true for the level. With `slices`, a sleep also ends after a
/// slice.
fn help(
    queue: &Queue,
    me: &Thread,
    feed: &Feed,
    mut value: u32,
    slices: Slices,
    suffices: fn(Shown) -> bool,
) {
    let calls = queue.engine().helpers_word();
    while !suffices(feed.shows(queue.engine().doorbell())) {
        let deadline = match slices {
            Slices::End => Deadline::Monotonic(clock::monotonic() + 2 * SLICE),
            Slices::Endless => Deadline::Never,
        };
        futex::wait(calls, value, deadline);
        if is_called(calls, value) {
            value = queue.engine().hear(me, feed).unwrap();
        }
    }
}

fn helper(
    queue: &Queue,
    feed: Feed,
    value: u32,
    slices: Slices,
    suffices: fn(Shown) -> bool,
) -> JoinHandle<Option<()>> {
    queue.spawn(HELPER, move |queue, me| {
        help(queue, me, &feed, value, slices, suffices);
    })
}

fn send(queue: &Queue, tid: u32) -> JoinHandle<Option<()>> {
    queue.spawn(tid, move |queue, me| {
        queue.send(me, (u64::from(tid), 0), LATER).unwrap();
    })
}

#[test]
fn a_helper_that_goes_to_sleep_and_a_caller_of_another_user_see_each_other() {
    for fifo in [Fifo::Private, Fifo::Shared] {
        explore("helper: a call", 3, Slices::Endless, move || {
            let (queue, feed, value) = helped(1, fifo);
            let helper = helper(&queue, feed, value, Slices::Endless, |(message, _)| message);
            let caller = send(&queue, CALLER);
            alive(helper);
            alive(caller);
            assert_eq!(queue.empty(), [(u64::from(CALLER), 0)]);
        });
    }
}

#[test]
fn of_two_callers_at_once_none_is_overslept() {
    // The callers and the helper take the same steps for both FIFOs, so one model with two preemptions is enough. That model takes half a minute.
    for (fifo, preemptions) in [(Fifo::Private, 1), (Fifo::Shared, 2)] {
        explore(
            "helper: two callers",
            preemptions,
            Slices::Endless,
            move || {
                let (queue, feed, value) = helped(2, fifo);
                // The helper has shown both messages when the FIFO shows no room any more.
                let helper = helper(&queue, feed, value, Slices::Endless, |(_, room)| !room);
                let callers = [CALLER, OTHER_CALLER].map(|tid| send(&queue, tid));
                alive(helper);
                callers.into_iter().for_each(alive);
                assert_eq!(queue.empty().len(), 2);
            },
        );
    }
}

#[test]
fn a_caller_that_dies_delays_its_helper_by_a_slice() {
    let points = [
        Point::BELL_CALLED,
        Point::SEND_FILLED,
        Point::SEND_PUBLISHED,
        Point::SEND_COUNTED,
    ];
    let deaths = points.map(Death::At).into_iter().chain([Death::Waking]);
    for death in deaths {
        let deaths = Deaths::default();
        for fifo in [Fifo::Private, Fifo::Shared] {
            let name = format!("helper: its caller dies, {death:?}");
            deaths.explore(&name, 1, Slices::End, move || {
                world::doom(CALLER, death, 1);
                let (queue, feed, value) = helped(2, fifo);
                let helper = helper(&queue, feed, value, Slices::End, |(message, _)| message);
                let caller = send(&queue, CALLER);
                let died = thread::join(caller).is_none();
                if died {
                    // The dead caller may have sent its message.
                    queue.direct(|queue, me| queue.send(me, (7, 0), LATER).unwrap());
                }
                alive(helper);
                assert!(!queue.empty().is_empty());
                died
            });
        }
        deaths.expect(&format!("helper: {death:?}"));
    }
}

#[test]
fn a_dead_helper_costs_its_callers_one_call() {
    for fifo in [Fifo::Private, Fifo::Shared] {
        explore("helper: dead", 2, Slices::Endless, move || {
            let (queue, _feed, value) = helped(2, fifo);
            let callers = [CALLER, OTHER_CALLER].map(|tid| send(&queue, tid));
            callers.into_iter().for_each(alive);
            let calls = queue.engine().helpers_word().load(Ordering::Relaxed);
            assert!(calls.wrapping_sub(value) <= 1, "{calls} after {value}");
            assert_eq!(queue.empty().len(), 2);
        });
    }
}

/// Checks for holders until there is a holder, as a helper for deadlines does. Between two calls, the thread sleeps without a time limit.
fn watch_for_holders(queue: &Queue, me: &Thread, slices: Slices) {
    let calls = queue.engine().helpers_word();
    loop {
        let value = calls.load(Ordering::Acquire);
        if queue.engine().look_for_holders(me).unwrap() {
            return;
        }
        while !is_called(calls, value) {
            let deadline = match slices {
                Slices::End => Deadline::Monotonic(clock::monotonic() + 2 * SLICE),
                Slices::Endless => Deadline::Never,
            };
            futex::wait(calls, value, deadline);
        }
    }
}

/// Returns a polled queue with one message, and a helper for deadlines.
fn timed(slices: Slices) -> (Queue, JoinHandle<Option<()>>) {
    let queue = Queue::new(1, 1).filled(&[(0, 0)]);
    queue.direct(|queue, me| queue.engine().watch(me, LEVELS).unwrap());
    let helper = queue.spawn(HELPER, move |queue, me| {
        watch_for_holders(queue, me, slices);
    });
    (queue, helper)
}

#[test]
fn a_helper_that_goes_to_sleep_and_the_holder_of_a_lease_see_each_other() {
    explore("helper: a holder", 3, Slices::Endless, || {
        let (queue, helper) = timed(Slices::Endless);
        let holder = queue.spawn(CALLER, |queue, me| {
            // The first lease may end before the helper checks the queue. The second lease stays.
            let (_, lease) = queue.lease(me, Deadline::Passed).unwrap();
            queue.engine().give_back(me, &lease).unwrap();
            queue.lease(me, Deadline::Passed).unwrap();
        });
        alive(holder);
        alive(helper);
    });
}

#[test]
fn a_holder_that_dies_while_it_calls_delays_the_helper_by_a_slice() {
    for death in [Death::At(Point::BELL_CALLED), Death::Waking] {
        let deaths = Deaths::default();
        let name = format!("helper: a holder dies, {death:?}");
        deaths.explore(&name, 2, Slices::End, move || {
            world::doom(CALLER, death, 1);
            let (queue, helper) = timed(Slices::End);
            let holder = queue.spawn(CALLER, |queue, me| {
                queue.lease(me, Deadline::Passed).unwrap();
            });
            let died = thread::join(holder).is_none();
            alive(helper);
            died
        });
        deaths.expect(&name);
    }
}
