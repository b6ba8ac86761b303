//! System V queues: a process keeps the counts of a queue until the namespace's count of changes grows.
//!
//! | a defect | its effect here |
//! |---|---|
//! | a repair announces nothing; a lock that is in order and counted is taken without an announcement | sums that are out of date |
//! | the announcement comes before the mark is removed, or after the change | sums that are out of date |
//! | a lock that can't be marked counts as marked | sums that are out of date |
//! | a process believes the log without checking the numbers in it | sums that are out of date |

use super::stage::{Slices, alive, explore};
use super::subject::Subject;
use super::sysv_stage::Queue;
use crate::crash::Point;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::sys::clock::Deadline;
use crate::sysv_engine::order::Want;
use crate::sysv_engine::{Refused, read_counts};

/// A process that keeps the number of messages of each queue, by index.
#[derive(Default)]
struct Asker {
    /// The number of the last announcement before the counts were read; None as long as the process keeps no counts.
    then: Option<u32>,
    counts: Vec<Count>,
}

#[derive(Clone, Copy)]
struct Count {
    messages: u32,
    is_marked: bool,
}

impl Asker {
    /// Returns the number of messages of each queue.
    fn ask_all(&mut self, queues: &[&Queue], me: &Thread) -> Vec<u32> {
        let announcements = queues[0].engine().segment().announcements();
        let now = announcements.number();
        let mut announced = Vec::new();
        let is_kept = self.then.is_some_and(|then| {
            announcements.between(then, now, |index| {
                announced.push(index as usize);
                true
            })
        });
        self.counts.resize(
            queues.len(),
            Count {
                messages: 0,
                is_marked: false,
            },
        );
        for (index, (queue, count)) in queues.iter().zip(&mut self.counts).enumerate() {
            if !is_kept || !count.is_marked || announced.contains(&index) {
                let (fixed, segment) = (queue.fixed(), queue.engine().segment());
                let messages = || fixed.control.messages();
                let read = read_counts(&fixed.control.lock, me, segment, || true, messages);
                let (messages, is_marked) = read.unwrap();
                *count = Count {
                    messages,
                    is_marked,
                };
            }
        }
        self.then = Some(now);
        self.counts.iter().map(|count| count.messages).collect()
    }

    fn ask(&mut self, queue: &Queue, me: &Thread) -> u32 {
        self.ask_all(&[queue], me)[0]
    }
}

fn send(queue: &Queue, me: &Thread, number: u64) -> Result<(), Refused> {
    queue.send(me, (number, 5), Deadline::Passed)
}

#[test]
fn kept_counts_hold_until_a_change() {
    explore("typed counts: a sender", 3, Slices::Endless, || {
        let queue = Queue::new(2);
        let mut asker = Asker::default();
        queue.direct(|queue, me| assert_eq!(asker.ask(queue, me), 0));
        let sender = queue.spawn(1, |queue, me| send(queue, me, 1));
        queue.direct(|queue, me| assert!(asker.ask(queue, me) <= 1));
        assert_eq!(alive(sender), Ok(()));
        queue.direct(|queue, me| assert_eq!(asker.ask(queue, me), 1));
        let received = queue.direct(|queue, me| queue.receive(me, Want::Any, Deadline::Passed));
        assert_eq!(received, Ok((1, 5)));
        queue.direct(|queue, me| assert_eq!(asker.ask(queue, me), 0));
        queue.audit();
    });
}

#[test]
fn two_processes_keep_the_counts_while_a_third_changes_them() {
    explore("typed counts: two askers", 2, Slices::Endless, || {
        let queue = Queue::new(2);
        let mut asker = Asker::default();
        let other = queue.spawn(1, |queue, me| {
            let mut other = Asker::default();
            assert!(other.ask(queue, me) <= 1 && other.ask(queue, me) <= 1);
            other
        });
        let sender = queue.spawn(2, |queue, me| send(queue, me, 1));
        queue.direct(|queue, me| assert!(asker.ask(queue, me) <= 1));
        let mut other = alive(other);
        assert_eq!(alive(sender), Ok(()));
        queue.direct(|queue, me| {
            assert_eq!((asker.ask(queue, me), other.ask(queue, me)), (1, 1));
            assert_eq!((asker.ask(queue, me), other.ask(queue, me)), (1, 1));
        });
    });
}

#[test]
fn the_log_names_each_queue_that_changes() {
    explore("typed counts: two queues", 3, Slices::Endless, || {
        let first = Queue::new(1);
        let second = first.beside(1, 1);
        let mut asker = Asker::default();
        let ask =
            |asker: &mut Asker| first.direct(|first, me| asker.ask_all(&[first, &second], me));
        assert_eq!(ask(&mut asker), [0, 0]);
        let senders = [(1, &first), (2, &second)]
            .map(|(tid, queue)| queue.spawn(tid, move |queue, me| send(queue, me, 1)));
        assert!(ask(&mut asker).iter().all(|count| *count <= 1));
        for sender in senders {
            assert_eq!(alive(sender), Ok(()));
        }
        assert_eq!(ask(&mut asker), [1, 1]);
    });
}

#[test]
fn counts_are_right_after_two_senders() {
    explore("typed counts: two senders", 2, Slices::Endless, || {
        let queue = Queue::new(2);
        let mut asker = Asker::default();
        queue.direct(|queue, me| assert_eq!(asker.ask(queue, me), 0));
        let senders = [1, 2].map(|tid| queue.spawn(tid, move |queue, me| send(queue, me, 1)));
        queue.direct(|queue, me| assert!(asker.ask(queue, me) <= 2));
        for sender in senders {
            assert_eq!(alive(sender), Ok(()));
        }
        queue.direct(|queue, me| assert_eq!(asker.ask(queue, me), 2));
    });
}

#[test]
fn counts_are_right_after_the_death_of_a_sender() {
    let points = [
        (Point::MSG_UNCOUNTED, 0),
        (Point::MSG_NUMBERED, 0),
        (Point::MSG_ANNOUNCED, 0),
        (Point::MSG_SENT, 1),
        (Point::MSG_LINKED, 1),
    ];
    for (point, left) in points {
        explore("typed counts: a dead sender", 2, Slices::End, move || {
            let queue = Queue::new(2);
            let mut asker = Asker::default();
            queue.direct(|queue, me| assert_eq!(asker.ask(queue, me), 0));
            world::doom(2, Death::At(point), 1);
            let dead = queue.spawn(2, |queue, me| send(queue, me, 1));
            queue.direct(|queue, me| assert!(asker.ask(queue, me) <= 1));
            assert_eq!(thread::join(dead), None);
            let next = queue.spawn(1, |queue, me| send(queue, me, 2));
            queue.direct(|queue, me| assert!(asker.ask(queue, me) <= left + 1));
            assert_eq!(alive(next), Ok(()));
            queue.direct(|queue, me| assert_eq!(asker.ask(queue, me), left + 1));
        });
    }
}

#[test]
fn a_process_that_dies_while_it_marks_a_queue_stops_no_other() {
    explore("typed counts: a dead asker", 2, Slices::End, || {
        let queue = Queue::new(2);
        world::doom(2, Death::At(Point::MSG_COUNTING), 1);
        let dead = queue.spawn(2, |queue, me| Asker::default().ask(queue, me));
        let sender = queue.spawn(1, |queue, me| {
            queue.send(me, (1, 5), Deadline::Never).unwrap();
        });
        let mut asker = Asker::default();
        queue.direct(|queue, me| assert!(asker.ask(queue, me) <= 1));
        // The thread dies only if it found the lock free.
        let _ = thread::join(dead);
        alive(sender);
        queue.direct(|queue, me| assert_eq!(asker.ask(queue, me), 1));
    });
}
