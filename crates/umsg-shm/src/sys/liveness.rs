//! The identity of a process, for queues that processes of several PID or time namespaces use.
//!
//! Thread ids, process ids and start times are valid in one PID namespace and one time namespace only. The namespaces of a queue's creator are the
//! queue's *home*. When a process with other namespaces uses the queue, the queue's locks change to *shared form* ([`crate::lock`]). In shared form,
//! a *liveness id* identifies the process of a lock's owner. The id names a file in the namespace directory of the queue. The process keeps this file
//! locked until its death (`umsg::namespace::life`).
//!
//! | number | the process | the process lives |
//! |---|---|---|
//! | 0 | none | never |
//! | [`UNREGISTERED`] | a process that could not make the file | unknown: other processes rely on the kernel's mark of its death |
//! | other | the process that holds the lock of the file | as long as the file is locked |

/// The liveness id of a process that could not make its liveness file.
pub const UNREGISTERED: u32 = 0x7fff_ffff;

/// The upper half of a birth that contains a liveness id. The lower half is the id. For other births, see [`crate::sys::process::birth`] and
/// [`crate::sys::thread::Thread::birth`].
const LIFE: u64 = 0xffff_ffff << 32;

/// The answers to questions about the processes that use a segment.
pub trait Liveness {
    /// Returns this process's liveness id, and registers it if necessary.
    fn own(&self) -> u32;

    /// Returns this process's liveness id if it is registered. Makes no system call.
    fn known_own(&self) -> Option<u32> {
        None
    }

    /// Returns whether the process with a liveness id is proved to be dead.
    fn is_over(&self, life: u32) -> bool;

    /// Returns whether this process has other PID or time namespaces than the queue's home. If so, its threads take locks only in shared form.
    fn is_elsewhere(&self) -> bool;

    /// Returns whether thread ids and process ids of the queue's home are valid in this process.
    fn is_home(&self) -> bool;

    /// Returns whether only processes of this process's user and of root can write the queue.
    fn is_private(&self) -> bool;

    /// Returns whether all processes that ever wrote a record into the queue have the namespaces of this process. If so, the ids in these records are
    /// valid in this process.
    fn is_plain(&self) -> bool;
}

/// Implements [`Liveness`] for a type whose processes all live and have one user. `home` says whether these processes belong to the home.
#[cfg(any(test, loom))]
macro_rules! all_live {
    ($segment:ty, home: $home:literal) => {
        impl $crate::sys::liveness::Liveness for $segment {
            fn own(&self) -> u32 {
                $crate::sys::liveness::UNREGISTERED
            }

            fn is_over(&self, _: u32) -> bool {
                false
            }

            fn is_elsewhere(&self) -> bool {
                !$home
            }

            fn is_home(&self) -> bool {
                $home
            }

            fn is_private(&self) -> bool {
                true
            }

            fn is_plain(&self) -> bool {
                $home
            }
        }
    };
}

#[cfg(any(test, loom))]
pub(crate) use all_live;

/// Returns the birth with which a record identifies this process: its liveness id, or `otherwise` if the process is at home and has no liveness id.
pub fn birth(lives: &dyn Liveness, otherwise: impl FnOnce() -> u64) -> u64 {
    match lives.own() {
        UNREGISTERED if lives.is_home() => otherwise(),
        life => LIFE | u64::from(life),
    }
}

/// Registers this process's liveness id, unless it is registered. A call that writes the id into a record registers it before the call takes the
/// lock, because a registration lists a directory and creates a file.
pub(crate) fn register(lives: &dyn Liveness) {
    // The result is not needed: a process without a liveness id is identified in another way.
    let _ = lives.own();
}

/// Returns the liveness id in a birth, if it has one.
pub fn life_of(birth: u64) -> Option<u32> {
    (birth & LIFE == LIFE).then_some(birth as u32)
}

/// Returns whether a birth has the liveness id of this process. The function registers no id: a process without a liveness id has written no liveness
/// id into a record. A forked child needs a new registration.
pub(crate) fn is_own(lives: &dyn Liveness, birth: u64) -> bool {
    let life = life_of(birth).filter(|life| *life != UNREGISTERED);
    life.is_some() && life == lives.known_own()
}

/// Returns whether the process of a record is dead. `by_number` decides by the process id and the birth (0 for unknown).
///
/// The lock of a liveness id ends when the kernel has freed all memory of the process, possibly long after the kill. So if the process id is valid in
/// this process's namespaces, the process id is checked, too.
pub fn is_dead(lives: &dyn Liveness, birth: u64, by_number: impl FnOnce(u64) -> bool) -> bool {
    match life_of(birth) {
        Some(life) => {
            (life != UNREGISTERED && lives.is_over(life)) || (lives.is_plain() && by_number(0))
        }
        None => lives.is_home() && by_number(birth),
    }
}
