//! The events that a program gets while other threads log, in its children too, and within a listener.

mod support;

use std::cell::Cell;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use umsg::log::{self, Event, What};
use umsg::posix::Queue;

/// The limit on the wait for a child: no child takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets the tests run one at a time, because the listener belongs to the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a message of an empty queue. If each wait is reported, this wait is an event.
fn make_event(queue: &Queue) {
    let refused = queue.receive_timeout(&mut [0; 8], Duration::from_micros(1));
    assert!(refused.is_err());
}

#[test]
fn a_child_gets_its_events_whatever_its_parents_threads_did_at_the_fork() {
    const CHILDREN: u32 = 60;
    const EVENTS: u32 = 10;
    static IN_CHILD: AtomicU32 = AtomicU32::new(0);
    static IN_PARENT: AtomicU32 = AtomicU32::new(0);
    static LOST: AtomicU32 = AtomicU32::new(0);
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    fn count(event: &Event<'_>, among: &AtomicU32) {
        let counted = if event.what == What::Lost {
            &LOST
        } else {
            among
        };
        counted.fetch_add(1, Ordering::Relaxed);
    }
    fn count_own(event: &Event<'_>) {
        // The child may also get events that threads of its parent noted before the fork. Only children use this queue.
        if event.what == What::Lost || event.queue == Some(OsStr::new("/own")) {
            count(event, &IN_CHILD);
        }
    }

    let _alone = alone();
    let place = Place::new();
    log::listen(|event| count(event, &IN_PARENT));
    log::set_slow_wait(Duration::ZERO);
    let queues: Vec<_> = ["/a", "/b", "/c"]
        .map(|name| place.options(4, 8).open(name).unwrap())
        .into();
    let own = place.options(4, 8).open("/own").unwrap();
    std::thread::scope(|scope| {
        for queue in &queues {
            scope.spawn(|| {
                while !IS_OVER.load(Ordering::Relaxed) {
                    make_event(queue);
                }
            });
        }
        scope.spawn(|| {
            while !IS_OVER.load(Ordering::Relaxed) {
                log::listen(|event| count(event, &IN_PARENT));
                log::stop_listening();
                log::listen(|event| count(event, &IN_PARENT));
            }
        });
        let ends = (0..CHILDREN).map(|_| {
            let mut child = Child::run(|| {
                LOST.store(0, Ordering::Relaxed);
                log::listen(count_own);
                for _ in 0..EVENTS {
                    make_event(&own);
                }
                let (told, lost) = (&IN_CHILD, &LOST);
                let is_whole = told.load(Ordering::Relaxed) == EVENTS;
                i32::from(!is_whole || lost.load(Ordering::Relaxed) != 0)
            });
            child.wait(PATIENCE)
        });
        let ends: Vec<_> = ends.collect();
        IS_OVER.store(true, Ordering::Relaxed);
        assert_eq!(ends, vec![Some(Exit::Code(0)); CHILDREN as usize]);
    });
    assert!(IN_PARENT.load(Ordering::Relaxed) > 0);
    log::stop_listening();
}

thread_local! {
    /// The number of listener calls that this thread is in at the moment.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn a_listener_uses_queues_and_is_not_called_within_itself() {
    const THREADS: u32 = 3;
    const EVENTS: u32 = 300;
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    static TOLD: AtomicU32 = AtomicU32::new(0);
    static DEEPEST: AtomicU32 = AtomicU32::new(0);
    fn listen(_: &Event<'_>) {
        let depth = DEPTH.get() + 1;
        DEPTH.set(depth);
        DEEPEST.fetch_max(depth, Ordering::Relaxed);
        let queue = QUEUE.get().unwrap();
        queue.send(b"event", 0).unwrap();
        // A wait within the listener is an event, too. Each call on a queue reports the events so far when it ends.
        make_event(&EMPTY.get().unwrap()[0]);
        make_event(&EMPTY.get().unwrap()[0]);
        TOLD.fetch_add(1, Ordering::Relaxed);
        DEPTH.set(depth - 1);
    }
    static EMPTY: OnceLock<[Queue; 1]> = OnceLock::new();

    let _alone = alone();
    let place = Place::new();
    let _ = QUEUE.set(
        place
            .options(2 * THREADS * EVENTS, 8)
            .open("/told")
            .unwrap(),
    );
    let _ = EMPTY.set([place.options(4, 8).open("/empty").unwrap()]);
    log::set_slow_wait(Duration::ZERO);
    log::listen(listen);
    let queue = place.options(4, 8).open("/waits").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EVENTS {
                    make_event(&queue);
                }
            });
        }
    });
    log::stop_listening();
    assert_eq!(DEEPEST.load(Ordering::Relaxed), 1);
    // Each wait outside of the listener makes one event. The waits within the listener make none.
    let told = TOLD.load(Ordering::Relaxed);
    assert_eq!(told, THREADS * EVENTS);
    let sent = QUEUE.get().unwrap().attributes().messages;
    assert_eq!(sent, told as usize);
}
