//! Runs senders and a receiver: threads of one process, or processes.

use std::sync::Barrier;
use std::thread;

use crate::child::{self, Child};
use crate::failure::Failure;
use crate::machine;
use crate::shared::SharedWords;
use crate::supervisor;

/// The kind of the members of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Threads,
    Processes,
}

impl Place {
    pub const ALL: [Place; 2] = [Place::Threads, Place::Processes];

    pub fn name(self) -> &'static str {
        match self {
            Place::Threads => "threads",
            Place::Processes => "processes",
        }
    }
}

/// The work of a member. The work gets a closure and calls it when the member is ready. The closure returns when all members are ready.
type Work<'a> = dyn FnOnce(&dyn Fn()) -> Result<(), Failure> + Send + 'a;

/// A member: its CPU and its work.
pub struct Member<'a> {
    pub cpu: usize,
    pub work: Box<Work<'a>>,
}

/// Runs all members and waits for them.
///
/// # Errors
/// Fails if a member fails, dies or exceeds the deadline. The other members are then killed.
pub fn run(place: Place, members: Vec<Member<'_>>) -> Result<(), Failure> {
    match place {
        Place::Threads => {
            let cpus: Vec<usize> = members.iter().map(|member| member.cpu).collect();
            child::wait_for_all(&mut [Child::start(&cpus, || as_threads(members))?])
        }
        Place::Processes => as_processes(members),
    }
}

fn as_threads(members: Vec<Member<'_>>) -> Result<(), Failure> {
    let barrier = Barrier::new(members.len());
    thread::scope(|scope| {
        for member in members {
            let barrier = &barrier;
            scope.spawn(move || {
                let meet = || {
                    barrier.wait();
                };
                let done = machine::pin(member.cpu).and_then(|()| (member.work)(&meet));
                if let Err(failure) = done {
                    // The process ends at once, because the other processes may wait for this process for ever.
                    eprintln!("umsg-bench: {failure}");
                    supervisor::exit_child(1);
                }
            });
        }
    });
    Ok(())
}

fn as_processes(members: Vec<Member<'_>>) -> Result<(), Failure> {
    let arrived = SharedWords::new(1)?;
    let count = members.len() as u64;
    let meet = || {
        arrived.increment(0);
        while arrived.get(0) < count {
            thread::yield_now();
        }
    };
    let mut children = Vec::new();
    for member in members {
        children.push(Child::start(&[member.cpu], || (member.work)(&meet))?);
    }
    child::wait_for_all(&mut children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_meet_as_threads_and_as_processes() {
        for place in Place::ALL {
            let words = SharedWords::new(2).unwrap();
            let member = || Member {
                cpu: 0,
                work: Box::new(|ready: &dyn Fn()| {
                    words.increment(0);
                    ready();
                    // Both threads reach this point before either continues.
                    words
                        .word(1)
                        .fetch_add(words.get(0), std::sync::atomic::Ordering::AcqRel);
                    Ok(())
                }),
            };
            run(place, vec![member(), member()]).unwrap();
            assert_eq!((words.get(0), words.get(1)), (2, 4), "{place:?}");
        }
    }
}
