//! Handles of open queues.

// A handle is no address, though its type is a pointer's: a place in a table and a generation.
//
// ```text
//  63               32 31      24 23            4 3   0
// +-------------------+----------+---------------+-----+
// |    generation     |    0     |     place     |  8  |
// +-------------------+----------+---------------+-----+
// ```
//
// The table's places are never unmapped and each has one word of state, its generation and a count:
//
// | generation | count | state | who leaves it |
// |---|---|---|---|
// | even | 0 | free | `Place::claim` |
// | even | 1 | being filled | the claimer, by `Claimed::publish` |
// | odd | 1 + counted uses | open | `close` makes the generation even, and has the one count |
// | even | LATER + counted uses | closed, but noted by a thread (`holds`) | that thread, after it has cleared its note |
// | even | counted uses | closed | the last of them drops the queue, then frees the place |
//
// A handle names an odd generation, so a closed one fits no place until 2^31 queues were opened at its place. No step
// takes a lock: a forked child finds nothing half done (but keeps what another thread was just using).

use std::cell::UnsafeCell;
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use umsg::posix::Queue;

use crate::error::Failure;
use crate::flag::Flag;
use crate::holds::{self, Record};
use crate::table::{Empty, Table};

/// An open queue.
#[repr(C)]
pub struct umsg_mq {
    opaque: [u8; 0],
}

/// A handle of an open queue; `(umsg_mqd_t)-1` is none. Threads may share it. A child made by fork(2) has those of
/// its parent.
pub type umsg_mqd_t = *mut umsg_mq;

/// What a handle leads to.
pub(crate) struct Open {
    pub(crate) queue: Queue,
    /// The name that it was opened by, with its slash.
    pub(crate) name: OsString,
    /// Most bytes in a message; never changes.
    pub(crate) message_size: usize,
    /// Whether it was opened for receiving.
    pub(crate) can_receive: bool,
    /// Whether it was opened for sending.
    pub(crate) can_send: bool,
    /// O_NONBLOCK.
    pub(crate) nonblocking: Flag,
}

static TABLE: Table<Place> = Table::new();
/// How many places are closed and not yet free, or about to be.
static CLOSING: AtomicUsize = AtomicUsize::new(0);

struct Place {
    state: AtomicU64,
    open: UnsafeCell<MaybeUninit<Open>>,
}

// SAFETY: `open` is written by who claimed the place and dropped by its last user, one thread each by `state`'s
// compare-and-swap, and shared by reference in between; `Open` itself is Send and Sync.
unsafe impl Sync for Place {}

impl Empty for Place {
    const EMPTY: Place = Place {
        state: AtomicU64::new(0),
        open: UnsafeCell::new(MaybeUninit::uninit()),
    };
}

const ONE: u64 = 1;
/// In place of the one count of `close`: it is left to a thread that has noted the place.
const LATER: u64 = 1 << 31;
const NEXT_GENERATION: u64 = 1 << 32;

fn count(state: u64) -> u32 {
    state as u32
}

fn generation(state: u64) -> u32 {
    (state >> 32) as u32
}

fn is_open(state: u64) -> bool {
    generation(state) % 2 == 1
}

/// The mark in the lowest bits keeps every handle apart from NULL and from (umsg_mqd_t)-1.
const MARK: u64 = 8;

fn handle_of(place: usize, generation: u32) -> umsg_mqd_t {
    let bits = u64::from(generation) << 32 | (place as u64) << 4 | MARK;
    std::ptr::without_provenance_mut(bits as usize)
}

/// Place and generation, if the bits are those of a handle: the generation of one is odd.
#[inline(always)]
fn parts(mqdes: umsg_mqd_t) -> Option<(usize, u32)> {
    const OPEN: u64 = NEXT_GENERATION;
    let bits = mqdes.addr() as u64;
    let place = (bits as u32) >> 4;
    (bits & (OPEN | 0xf) == OPEN | MARK).then_some((place as usize, (bits >> 32) as u32))
}

/// Makes a handle.
pub(crate) fn enter(open: Open) -> Result<umsg_mqd_t, Failure> {
    holds::start();
    let claimed = TABLE.claim(Place::claim);
    let (index, claimed) = claimed.ok_or(Failure::TooManyHandles)?;
    Ok(handle_of(index, claimed.publish(open)))
}

/// The queue of a handle; it stays open until the result is dropped, whoever closes it meanwhile.
#[inline(always)]
pub(crate) fn hold(mqdes: umsg_mqd_t) -> Result<Held, Failure> {
    let (index, generation) = parts(mqdes).ok_or(Failure::NotOpen)?;
    let place = TABLE.get(index).ok_or(Failure::NotOpen)?;
    place.hold(generation).ok_or(Failure::NotOpen)
}

/// As [`hold`], for longer than a call.
pub(crate) fn keep(mqdes: umsg_mqd_t) -> Result<Held, Failure> {
    let (index, generation) = parts(mqdes).ok_or(Failure::NotOpen)?;
    let place = TABLE.get(index).ok_or(Failure::NotOpen)?;
    place.hold_counted(generation).ok_or(Failure::NotOpen)
}

/// Ends a handle. Its queue is unmapped when the last call that uses it has returned.
pub(crate) fn close(mqdes: umsg_mqd_t) -> Result<(), Failure> {
    let (index, generation) = parts(mqdes).ok_or(Failure::NotOpen)?;
    let place = TABLE.get(index).ok_or(Failure::NotOpen)?;
    // Relaxed, and before the look at the notes, which orders them: whoever clears his note after that look sees that
    // there is something to free.
    CLOSING.fetch_add(1, Ordering::Relaxed);
    if !place.end(generation) {
        CLOSING.fetch_sub(1, Ordering::Relaxed);
        return Err(Failure::NotOpen);
    }
    place.free_or_leave();
    Ok(())
}

/// A place that is free for everybody else and being filled by the caller.
struct Claimed<'a>(&'a Place);

impl Claimed<'_> {
    /// Fills the place and says which generation's handle leads to it.
    fn publish(self, open: Open) -> u32 {
        // SAFETY: the place is claimed: nobody else reads or writes it, and it holds nothing that needs a drop.
        unsafe { (*self.0.open.get()).write(open) };
        // Release: whoever holds the place sees it filled.
        let state = self.0.state.fetch_add(NEXT_GENERATION, Ordering::Release);
        generation(state.wrapping_add(NEXT_GENERATION))
    }
}

impl Place {
    fn claim(&self) -> Option<Claimed<'_>> {
        let state = self.state.load(Ordering::Relaxed);
        if is_open(state) || count(state) != 0 {
            return None;
        }
        // Acquire: pairs with the release in `retire`; the last queue is gone.
        self.state
            .compare_exchange(state, state + ONE, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Claimed(self))
    }

    #[inline(always)]
    fn hold(&'static self, wanted: u32) -> Option<Held> {
        if let Some(record) = holds::my_idle_record() {
            record.note(self.address());
            // Acquire: pairs with the release in `publish`; the place is filled.
            let state = self.state.load(Ordering::Acquire);
            if generation(state) == wanted && is_open(state) {
                let note = Some(record);
                return Some(Held { place: self, note });
            }
            record.clear();
            self.after_note();
        }
        self.hold_counted(wanted)
    }

    #[cold]
    fn hold_counted(&'static self, wanted: u32) -> Option<Held> {
        // Acquire: as in `hold`.
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                (generation(state) == wanted && is_open(state)).then_some(state + ONE)
            })
            .ok()
            .map(|_| Held {
                place: self,
                note: None,
            })
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Ends the generation, once.
    fn end(&self, wanted: u32) -> bool {
        // Relaxed: only the count orders the drop of the queue.
        self.state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                (generation(state) == wanted).then(|| state.wrapping_add(NEXT_GENERATION))
            })
            .is_ok()
    }

    /// With the one count of `close`: gives it back, or leaves it to a thread that has noted the place.
    #[cold]
    fn free_or_leave(&self) {
        while holds::is_noted(self.address()) {
            // Relaxed, and before the second look, which orders it: whoever clears his note after that finds it.
            self.state.fetch_add(LATER - ONE, Ordering::Relaxed);
            if holds::is_noted(self.address()) || !self.take_over() {
                return;
            }
        }
        self.release();
        // Relaxed: hands nothing over.
        CLOSING.fetch_sub(1, Ordering::Relaxed);
    }

    /// By a thread that has cleared its note: frees the place if it was closed meanwhile and left to it.
    #[inline(always)]
    fn after_note(&self) {
        // Relaxed: see `close` and `free_or_leave`.
        if CLOSING.load(Ordering::Relaxed) != 0 && self.take_over() {
            self.free_or_leave();
        }
    }

    /// Takes over the one count of `close`, if it was left.
    #[cold]
    fn take_over(&self) -> bool {
        // Relaxed: hands nothing over; the drop of the queue looks at the count.
        self.state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                (state & LATER != 0).then(|| state - LATER + ONE)
            })
            .is_ok()
    }

    /// Gives back a count.
    fn release(&self) {
        let mut state = self.state.load(Ordering::Relaxed);
        while count(state) != 1 {
            // Release: what this user did comes before the drop (Acquire in `retire`).
            match self.state.compare_exchange_weak(
                state,
                state - ONE,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        self.retire();
    }

    /// By the last user, after `close`: nobody can become a further one.
    #[cold]
    fn retire(&self) {
        // Acquire: what all other users did comes before the drop.
        self.state.load(Ordering::Acquire);
        // SAFETY: filled in `publish`, and no other user is left or can come: the generation is even.
        unsafe { (*self.open.get()).assume_init_drop() };
        // Release: the drop comes before the next claim.
        self.state.fetch_sub(ONE, Ordering::Release);
    }
}

/// A queue in use.
pub(crate) struct Held {
    place: &'static Place,
    /// None if the use is counted.
    note: Option<&'static Record>,
}

impl Deref for Held {
    type Target = Open;

    #[inline(always)]
    fn deref(&self) -> &Open {
        // SAFETY: filled before the generation was published, and not emptied while this use is noted or counted.
        unsafe { (*self.place.open.get()).assume_init_ref() }
    }
}

impl Held {
    /// The queue with a lifetime that the compiler does not check.
    ///
    /// # Safety
    /// The result, and what is made of it, is used no longer than this use is held.
    pub(crate) unsafe fn queue_unbounded(&self) -> &'static Queue {
        // SAFETY: as in `deref`, as long as the caller keeps to the contract; the place itself lives for ever.
        &unsafe { (*self.place.open.get()).assume_init_ref() }.queue
    }
}

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        match self.note {
            Some(record) => {
                record.clear();
                self.place.after_note();
            }
            None => self.place.release(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicPtr;
    use tempfile::TempDir;
    use umsg::Namespace;
    use umsg::posix::OpenOptions;

    /// A queue in a directory of its own, which tells how often it is mapped.
    struct Home(TempDir);

    impl Home {
        fn new() -> Home {
            let home = Home(tempfile::tempdir_in("/dev/shm").unwrap());
            home.options().create(true).open("/q").unwrap();
            home
        }

        fn options(&self) -> OpenOptions {
            let mut options = OpenOptions::new();
            let namespace = Namespace::at(self.0.path()).unwrap();
            options.read(true).write(true).namespace(&namespace);
            options
        }

        fn open(&self) -> umsg_mqd_t {
            let queue = self.options().open("/q").unwrap();
            let message_size = queue.attributes().message_size;
            enter(Open {
                queue,
                name: "/q".into(),
                message_size,
                can_receive: true,
                can_send: true,
                nonblocking: Flag::new(false).unwrap(),
            })
            .unwrap()
        }

        fn is_mapped(&self) -> bool {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.contains(self.0.path().to_str().unwrap())
        }
    }

    #[test]
    fn a_closed_handle_leads_nowhere_and_its_queue_is_unmapped() {
        let home = Home::new();
        let handle = home.open();
        assert!(hold(handle).is_ok() && home.is_mapped());
        close(handle).unwrap();
        assert!(hold(handle).is_err() && keep(handle).is_err() && close(handle).is_err());
        assert!(!home.is_mapped());
    }

    #[test]
    fn what_would_be_the_handle_of_a_free_place_closes_nothing() {
        let home = Home::new();
        let open = home.open();
        let (place, generation) = parts(open).unwrap();
        close(open).unwrap();
        for free in [generation - 1, generation + 1] {
            let handle = handle_of(place, free);
            assert!(close(handle).is_err() && hold(handle).is_err() && keep(handle).is_err());
        }
    }

    #[test]
    fn a_queue_stays_mapped_while_it_is_noted_or_counted() {
        let home = Home::new();
        for use_it in [hold, keep] {
            let handle = home.open();
            let held = use_it(handle).unwrap();
            close(handle).unwrap();
            assert!(hold(handle).is_err());
            held.queue.try_send(b"still there", 0).unwrap();
            drop(held);
            assert!(!home.is_mapped());
        }
    }

    #[test]
    fn a_nested_use_is_counted() {
        let home = Home::new();
        let handle = home.open();
        let outer = hold(handle).unwrap();
        let inner = hold(handle).unwrap();
        assert!(outer.note.is_some() && inner.note.is_none());
        close(handle).unwrap();
        drop(outer);
        assert!(home.is_mapped());
        drop(inner);
        assert!(!home.is_mapped());
    }

    /// Threads that use whatever handle there is, while another one closes and opens.
    #[test]
    fn nothing_is_unmapped_under_a_call_and_nothing_stays_mapped() {
        const USERS: usize = 3;
        const ROUNDS: usize = 3_000;
        let home = Home::new();
        let current = AtomicPtr::new(home.open());
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..USERS {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        if let Ok(held) = hold(current.load(Ordering::Relaxed)) {
                            assert_eq!(held.queue.attributes().messages, 0);
                        }
                    }
                });
            }
            for _ in 0..ROUNDS {
                let old = current.swap(home.open(), Ordering::Relaxed);
                close(old).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(home.is_mapped());
        close(current.into_inner()).unwrap();
        assert!(!home.is_mapped());
    }
}
