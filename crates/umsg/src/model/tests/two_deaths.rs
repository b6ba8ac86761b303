//! Two deaths: somebody dies in an operation, and whoever comes next dies over the repair, while a bystander goes on.
//!
//! The first dies alone; the second, at each point that it may come by, in all interleavings with the bystander. Nothing is lost or comes
//! twice but what a dead receiver had taken, and every slot is somewhere. Other protocols have theirs in `death`, `typed_death`, `holds`,
//! `lock`, `notice` and `watch`.
//!
//! | a defect | what it leads to here |
//! |---|---|
//! | a batch is taken back after `batch_end`, or `batch_end` is stored before the cursor | part of a batch is received |
//! | a repair forgets a message that was sent | a message is lost |

use super::batch::send_batch;
use super::ring_stage::Ring;
use super::stage::{self, DIRECTOR, LATER, alive};
use super::typed_stage::explore_death;
use crate::crash::Point;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::sys::clock::Deadline;

/// Explores the death of thread 1 at each of these points, over what somebody has left who died at another.
fn dies_at(
    name: &str,
    first: Point,
    seconds: &[Point],
    play: impl Fn(Point) -> bool + Copy + Send + Sync + 'static,
) {
    for &second in seconds {
        let name = format!("two deaths: {name} at {first:?}, then {second:?}");
        explore_death(&name, 1, move || play(second));
    }
}

/// The director dies in `life`, alone.
fn die<T>(point: Point, life: impl FnOnce(&Thread) -> T) {
    world::doom(DIRECTOR, Death::At(point), 1);
    assert!(thread::live(DIRECTOR, life).is_none());
}

#[test]
fn a_batch_of_the_dead_is_whole_or_not_there_though_who_repairs_dies() {
    let deaths = [
        (
            Point::BATCH_NOTED,
            false,
            [Point::BATCH_TAKEN_BACK, Point::SEND_PUBLISHED],
        ),
        (
            Point::BATCH_STAMPED,
            false,
            [Point::BATCH_TAKEN_BACK, Point::SEND_FILLED],
        ),
        (
            Point::BATCH_PUBLISHED,
            true,
            [Point::BATCH_COUNTED, Point::SEND_PUBLISHED],
        ),
    ];
    for (first, is_sent, seconds) in deaths {
        dies_at("a batch", first, &seconds, move |second| {
            let queue = stage::Queue::new(4, 4);
            die(first, |me| {
                send_batch(&queue, me, &[(1, 0), (2, 0)], Deadline::Passed)
            });
            world::doom(1, Death::At(second), 1);
            let victim = queue.spawn(1, |queue, me| queue.send(me, (3, 0), LATER));
            let bystander = queue.spawn(2, |queue, me| queue.send(me, (4, 0), LATER));
            let died = thread::join(victim).is_none();
            assert_eq!(alive(bystander), Ok(()));
            let mut left = queue.empty();
            left.sort_unstable();
            let batch: &[_] = if is_sent { &[(1, 0), (2, 0)] } else { &[] };
            let mut expected = batch.to_vec();
            if !died || second == Point::SEND_PUBLISHED {
                expected.push((3, 0));
            }
            expected.push((4, 0));
            assert_eq!(left, expected);
            queue.audit();
            died
        });
    }
}

#[test]
fn of_two_dead_senders_to_a_ring_none_keeps_a_third_ones_message_from_its_owner() {
    let seconds = [Point::SEND_PUBLISHED, Point::RING_DUE];
    dies_at(
        "a ring's sender",
        Point::SEND_PUBLISHED,
        &seconds,
        |second| {
            let ring = Ring::new(4, 4);
            let owner = ring.own(|ring, me| ring.wait(me, 2, Deadline::Never).unwrap());
            world::doom(3, Death::At(Point::SEND_PUBLISHED), 1);
            let one = ring.spawn(3, |ring, me| ring.send(me, 10, Deadline::Passed));
            let is_first_dead = thread::join(one).is_none();
            world::doom(1, Death::At(second), 1);
            let two = ring.spawn(1, |ring, me| ring.send(me, 20, Deadline::Passed));
            let is_second_dead = thread::join(two).is_none();
            ring.direct(|ring, me| ring.send(me, 30, Deadline::Passed).unwrap());
            alive(owner);
            let mut all = ring.close_account();
            all.sort_unstable();
            assert_eq!(all, [10, 20, 30]);
            is_first_dead && is_second_dead
        },
    );
}
