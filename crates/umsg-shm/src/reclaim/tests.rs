use super::{Held, Link, Slots, Word, notes};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Returns how often a test replaces one object by another. For each replacement, the thread waits for the other cores, which takes long on an
/// emulated machine.
fn rounds() -> usize {
    match cfg!(miri) {
        true => 20,
        false => umsg_testkit::run::rounds(5_000),
    }
}

/// An object that is counted as long as it exists.
struct Thing(&'static AtomicUsize, AtomicBool);

impl Thing {
    fn new(count: &'static AtomicUsize) -> Thing {
        count.fetch_add(1, Relaxed);
        Thing(count, AtomicBool::new(true))
    }
}

impl Drop for Thing {
    fn drop(&mut self) {
        assert!(self.1.swap(false, Relaxed), "dropped twice");
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Declares the slots, the link and the count of living [`Thing`]s of one test.
macro_rules! statics {
    ($slots:ident, $link:ident, $count:ident) => {
        static $slots: Slots<Thing> = Slots::new();
        static $count: AtomicUsize = AtomicUsize::new(0);
        let $link: &'static Link<Thing> = Box::leak(Box::new(Link::nowhere()));
    };
}

/// Waits until the objects are dropped, because a thread of another test may have noted a slot of the same address for a moment. Returns whether the
/// objects were dropped.
fn drops(slots: &'static Slots<Thing>, count: &AtomicUsize) -> bool {
    (0..1000).any(|_| {
        slots.reap();
        std::thread::sleep(std::time::Duration::from_micros(100));
        count.load(Relaxed) == 0
    })
}

#[test]
fn a_thing_is_dropped_when_its_link_is_emptied() {
    statics!(SLOTS, link, COUNT);
    link.put(Word::new(SLOTS.fill(Thing::new(&COUNT)).unwrap(), 5));
    assert_eq!(link.hold().unwrap().flags(), 5);
    link.take().unwrap().release();
    assert!(!link.leads() && link.hold().is_none() && link.take().is_none());
    assert!(drops(&SLOTS, &COUNT));
}

#[test]
#[cfg_attr(miri, ignore = "there is no membarrier, and no note")]
fn a_thing_in_use_stays_whether_the_use_is_noted_or_counted() {
    statics!(SLOTS, link, COUNT);
    notes::start();
    link.put(Word::new(SLOTS.fill(Thing::new(&COUNT)).unwrap(), 0));
    let outer = link.hold().unwrap();
    let inner = link.hold().unwrap();
    assert!(outer.is_noted() && !inner.is_noted(), "one note a thread");
    link.forget(outer.word());
    drop(inner);
    SLOTS.reap();
    assert!(outer.1.load(Relaxed));
    drop(outer);
    assert!(drops(&SLOTS, &COUNT));
}

#[test]
#[cfg_attr(miri, ignore = "there is no membarrier, and no note")]
fn the_last_user_of_an_object_drops_it() {
    statics!(SLOTS, link, COUNT);
    notes::start();
    for _ in 0..200 {
        link.put(Word::new(SLOTS.fill(Thing::new(&COUNT)).unwrap(), 0));
        let held = link.hold().unwrap();
        assert!(held.is_noted());
        let emptied = std::thread::spawn(|| link.take().unwrap().release());
        emptied.join().unwrap();
        assert_eq!(COUNT.load(Relaxed), 1, "in use");
        drop(held);
        // A thread of another test may have noted a slot of the same address by chance.
        assert!(COUNT.load(Relaxed) == 0 || drops(&SLOTS, &COUNT));
    }
}

#[test]
fn what_a_link_led_to_before_is_dropped() {
    statics!(SLOTS, link, COUNT);
    for _ in 0..rounds() {
        link.put(Word::new(SLOTS.fill(Thing::new(&COUNT)).unwrap(), 0));
    }
    assert!(link.hold().is_some());
    link.take().unwrap().release();
    assert!(drops(&SLOTS, &COUNT));
}

#[test]
fn a_link_that_leads_elsewhere_by_now_is_not_emptied() {
    statics!(SLOTS, link, COUNT);
    let fill = || SLOTS.fill(Thing::new(&COUNT)).unwrap();
    link.put(Word::new(fill(), 0));
    let old = link.hold_counted().unwrap();
    link.put(Word::new(fill(), 0));
    assert!(!link.forget(old.word()) && link.leads());
    let another = old.another().unwrap();
    assert!(!link.put_if_empty(another));
    another.release();
    assert!(!std::ptr::eq(&*link.hold().unwrap(), &*old));
    drop(old);
    link.take().unwrap().release();
    assert!(drops(&SLOTS, &COUNT));
}

#[test]
fn no_thread_ever_uses_a_thing_that_was_dropped() {
    statics!(SLOTS, link, COUNT);
    let links: [&'static Link<Thing>; 2] = [link, Box::leak(Box::new(Link::nowhere()))];
    let is_over = AtomicBool::new(false);
    let used = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for first in 0..2 {
            let (used, is_over) = (&used, &is_over);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    let held: [Option<Held<Thing>>; 2] = [links[first].hold(), links[1].hold()];
                    for held in held.iter().flatten() {
                        assert!(held.1.load(Relaxed), "it is gone");
                        used.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        for _ in 0..rounds() {
            for link in links {
                link.put(Word::new(SLOTS.fill(Thing::new(&COUNT)).unwrap(), 0));
            }
        }
        // Without this loop, the test could end before the two threads have used any object, and would prove nothing.
        while used.load(Relaxed) < rounds() / 5 {
            std::thread::yield_now();
        }
        is_over.store(true, Relaxed);
    });
    for link in links {
        link.take().unwrap().release();
    }
    assert!(drops(&SLOTS, &COUNT));
}

#[test]
#[cfg_attr(miri, ignore = "there is no fork")]
fn a_forked_child_has_its_parents_things_and_is_free_to_drop_them() {
    statics!(SLOTS, link, COUNT);
    link.put(Word::new(SLOTS.fill(Thing::new(&COUNT)).unwrap(), 0));
    let (ready, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let dropped = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _held = link.hold().unwrap();
            ready.store(true, Relaxed);
            while !is_over.load(Relaxed) {
                std::thread::yield_now();
            }
        });
        while !ready.load(Relaxed) {
            std::thread::yield_now();
        }
        let dropped = in_child(|| {
            link.take().unwrap().release();
            COUNT.load(Relaxed) == 0
        });
        is_over.store(true, Relaxed);
        dropped
    });
    assert!(dropped, "the note of a thread that is not there was minded");
    assert!(link.leads() && COUNT.load(Relaxed) == 1);
}

/// Returns the result of `find` in a forked child. `find` must take no lock that another thread may have held.
fn in_child(find: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only calls `find` and ends. By this function's contract, `find` may run in the child.
    match unsafe { libc::fork() } {
        0 => {
            let found = find();
            // SAFETY: ends the child.
            unsafe { libc::_exit(found.into()) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the call waits for a child of this process, and writes a number of this function.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(waited, child);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1
        }
    }
}
