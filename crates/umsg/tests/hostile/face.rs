//! The common interface of POSIX queues, System V queues and rings for the tests with an attacking process.

use super::guards::Guards;
use super::support::Random;
use super::support::place::Place;
use super::watch::{Numbered, Watch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;
use umsg::diagnosis::Repaired;

/// The longest message of the victims, in bytes: some lie in the cells, others in the arena.
pub const SIZE: usize = 3000;

/// The number of turns for which a handle is used: a handle whose file a repair has truncated is useless.
const HANDLE: u32 = 40;

/// One kind of queue, and victims that use it.
pub trait Face {
    /// Creates the attacked object, unless a victim has to create it. Runs in the supervisor's process, which has no protection from the attack, so
    /// `prepare` must leave nothing mapped.
    fn prepare(&self, place: &Place);
    /// Returns the path of the attacked file. None if the file does not exist yet.
    fn file(&self, place: &Place) -> Option<PathBuf>;
    /// Plays one of the roles until the watch ends it. Runs in a separate process.
    fn play(&self, place: &Place, role: usize, watch: Watch<'_>, random: &mut Random);
    /// Opens the object of `prepare` between guards, and uses it after each turn, in both directions, until `turn` has no more turns. Runs
    /// in a separate process.
    fn take_turns(&self, place: &Place, turns: Turns<'_>);
    /// Opens, lists and diagnoses the objects.
    fn look_in(&self, place: &Place, watch: Watch<'_>);
    /// Returns the doctor's result on the remaining queue; `None` if there is no readable queue any more.
    fn cure(&self, place: &Place) -> Option<Repaired>;
    /// Receives all messages, sends one and receives it; fails if a call fails.
    fn expect_to_work(&self, place: &Place);
    /// After the attack, in another process: removes the attacked object, creates it again, and checks that it works.
    fn remake(&self, place: &Place);
}

/// The turns of a process; `next` says whether there is a further turn.
pub struct Turns<'a> {
    pub watch: Watch<'a>,
    pub random: &'a mut Random,
    pub next: &'a mut dyn FnMut(&mut Random) -> bool,
}

/// Opens a queue repeatedly between guards, and uses it after each turn, as the victim of a random role.
pub fn use_in_turns<Q, E: Numbered>(
    turns: Turns<'_>,
    file: Option<PathBuf>,
    open: impl Fn() -> Result<Q, E>,
    act: impl Fn(&Q, &mut Buffer, usize, &mut Random),
) {
    let Turns {
        watch,
        random,
        next,
    } = turns;
    let file = file.expect("a file");
    let mut buffer = Buffer::new(SIZE);
    while next(random) {
        let (Some(queue), _guards) = Guards::around(&file, || watch.call(&open)) else {
            continue;
        };
        for _ in 0..HANDLE {
            let role = random.below(2) as usize;
            act(&queue, &mut buffer, role, random);
            if !next(random) {
                return;
            }
        }
        watch.let_go(|| drop(queue));
    }
}

/// Opens a queue repeatedly between guards, and makes up to some thousand calls each time, until the watch ends it.
pub fn use_again<Q, E: Numbered>(
    watch: Watch<'_>,
    random: &mut Random,
    file: impl Fn() -> Option<PathBuf>,
    open: impl Fn() -> Result<Q, E>,
    act: impl Fn(&Q, &mut Buffer, &mut Random),
) {
    while watch.goes_on() {
        // The corrupted queue may look like a removed queue.
        let opened = file().map(|file| Guards::around(&file, || watch.call(&open)));
        let Some((Some(queue), guards)) = opened else {
            std::thread::sleep(Duration::from_micros(100));
            continue;
        };
        watch.note_guards(guards.are_complete);
        let mut buffer = Buffer::new(SIZE);
        for _ in 0..random.below(3000) {
            if !watch.goes_on() {
                break;
            }
            act(&queue, &mut buffer, random);
        }
        watch.let_go(|| drop(queue));
    }
}

/// A process that uses an open queue.
pub struct Victim<'a, Q> {
    pub queue: &'a Q,
    pub place: &'a Place,
    pub watch: Watch<'a>,
    pub buffer: &'a mut Buffer,
}

impl<'a, Q> Victim<'a, Q> {
    pub fn new(
        queue: &'a Q,
        place: &'a Place,
        watch: Watch<'a>,
        buffer: &'a mut Buffer,
    ) -> Victim<'a, Q> {
        Victim {
            queue,
            place,
            watch,
            buffer,
        }
    }
}

/// Returns the length of a message: mostly a short one, sometimes any length.
pub fn len(random: &mut Random) -> usize {
    match random.below(3) {
        0 => random.below(SIZE as u64 + 1) as usize,
        _ => random.below(100) as usize,
    }
}

/// Returns the maximum wait of a call.
pub fn time(random: &mut Random) -> Duration {
    Duration::from_micros(random.below(5000))
}

/// Polls without waiting; the attacker can forge the result.
pub fn look_at_doorbell(descriptor: BorrowedFd<'_>) {
    let flags = PollFlags::IN | PollFlags::OUT;
    let mut polled = [PollFd::from_borrowed_fd(descriptor, flags)];
    let _ = poll(&mut polled, Some(&Timespec::default()));
}

/// The number of bytes on each side of the room of a [`Buffer`].
const MARGIN: usize = 64;
const MARK: u8 = 0xc7;

/// Room for messages, with margins that show writes outside it.
pub struct Buffer(Vec<u8>);

impl Buffer {
    pub fn new(len: usize) -> Buffer {
        Buffer(vec![MARK; MARGIN + len + MARGIN])
    }

    pub fn room(&self) -> &[u8] {
        &self.0[MARGIN..self.0.len() - MARGIN]
    }

    /// Calls `write` with the room, and fails if bytes outside of the room were written.
    pub fn fill(&mut self, write: impl FnOnce(&mut [u8])) {
        let len = self.0.len();
        write(&mut self.0[MARGIN..len - MARGIN]);
        let margins = self.0[..MARGIN].iter().chain(&self.0[len - MARGIN..]);
        assert!(
            margins.into_iter().all(|byte| *byte == MARK),
            "out of bounds"
        );
    }
}

/// Fails unless messages of these lengths fit into `room`, into which a call has reported to write them.
pub fn check_batch(room: &[u8], lens: impl Iterator<Item = usize>) {
    let lens: Vec<usize> = lens.collect();
    assert!(lens.iter().sum::<usize>() <= room.len(), "{lens:?}");
}

/// Reads the message of a lease, from a POSIX or a System V queue, and ends the lease in a random way.
#[macro_export]
macro_rules! end_lease {
    ($lease:ident, $watch:ident, $random:ident) => {
        assert_eq!($lease.to_vec().len(), $lease.len());
        if $random.below(4) == 0 {
            $watch.end(|| $lease.limit(Duration::from_millis(1)));
        }
        match $random.below(8) {
            0 => $watch.let_go(|| drop($lease)),
            1 => std::mem::forget($lease),
            2 => drop($watch.end(|| $lease.give_back())),
            _ => drop($watch.end(|| $lease.acknowledge())),
        }
    };
}

/// The methods of a [`Face`] that POSIX and System V queues have alike.
#[macro_export]
macro_rules! victims_of_a_queue {
    ($family:ident, $name:expr) => {
        fn play(&self, place: &Place, role: usize, watch: Watch<'_>, random: &mut Random) {
            let options = options_in(place);
            let (file, open) = (|| self.file(place), || options.open($name));
            use_again(watch, random, file, open, |queue, buffer, random| {
                Victim::new(queue, place, watch, buffer).act(role, random);
            });
        }

        fn take_turns(&self, place: &Place, turns: Turns<'_>) {
            let (options, watch) = (options_in(place), turns.watch);
            let (file, open) = (self.file(place), || options.open($name));
            use_in_turns(turns, file, open, |queue, buffer, role, random| {
                Victim::new(queue, place, watch, buffer).act(role, random);
            });
        }

        fn look_in(&self, place: &Place, watch: Watch<'_>) {
            if let Some(queue) = watch.call(|| options_in(place).open($name)) {
                watch.let_go(|| drop(queue));
            }
            drop(watch.ask(|| umsg::$family::list(&place.namespace)));
            drop(watch.call(|| umsg::$family::diagnose(&place.namespace, $name)));
        }

        fn cure(&self, place: &Place) -> Option<Repaired> {
            umsg::$family::repair(&place.namespace, $name).ok()
        }
    };
}
