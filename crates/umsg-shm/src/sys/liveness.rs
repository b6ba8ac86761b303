//! The identity of a process, for queues that processes of several PID or time namespaces use.
//!
//! Thread ids, process ids and start times mean something in one PID namespace and one time namespace only: the queue's *home*, in which
//! it was created. Once a process from elsewhere uses a queue, its locks are in *shared form* ([`crate::lock`]), and an owner is known by
//! the number of its *life*: a file in the queue's namespace that is locked as long as the process lives (`umsg::namespace::life`).
//!
//! | number | whose it is | it lives |
//! |---|---|---|
//! | 0 | no process's | never |
//! | [`UNREGISTERED`] | that of a process which could not make the file | unknown: the kernel's mark of its death is believed |
//! | other | that of the process which holds the file's lock | as long as the file is locked |

/// See the table of the module.
pub const UNREGISTERED: u32 = 0x7fff_ffff;

/// Stands above 32 bits of a birth ([`crate::sys::process::birth`], [`crate::sys::thread::Thread::birth`]) that is the number of a life.
const LIFE: u64 = 0xffff_ffff << 32;

/// What a segment knows of the processes that use it.
pub trait Liveness {
    /// The number of this process's life. Registers it if it has none yet.
    fn own(&self) -> u32;

    /// Whether a life is proved to be over.
    fn is_over(&self, life: u32) -> bool;

    /// Whether the queue was created in another PID or time namespace than that in which this process opened it. Then its threads take locks in
    /// shared form alone.
    fn is_elsewhere(&self) -> bool;

    /// Whether the numbers of threads and processes that stand in a queue in plain form are this process's home's.
    fn is_home(&self) -> bool;

    /// Whether each process that has ever written a record into the queue is of this process's home. Then the numbers of threads and
    /// processes in these records are valid here.
    fn is_plain(&self) -> bool;
}

/// The birth by which a record names this process: by its life, or `otherwise` if it has none and is at home.
pub fn birth(lives: &dyn Liveness, otherwise: impl FnOnce() -> u64) -> u64 {
    match lives.own() {
        UNREGISTERED if lives.is_home() => otherwise(),
        life => LIFE | u64::from(life),
    }
}

/// Registers this process's life, if that was not done before. For a call that is about to name it in a record, before it takes the lock: a
/// registration lists a directory and makes a file.
pub(crate) fn register(lives: &dyn Liveness) {
    // A process without a life is named in another way.
    let _ = lives.own();
}

/// The life that a birth names, if it names one.
pub fn life_of(birth: u64) -> Option<u32> {
    (birth & LIFE == LIFE).then_some(birth as u32)
}

/// Whether the process that a record names is dead; `by_number` says so of its number and its birth, 0 for unknown. A life ends when the
/// kernel has taken all of the process's memory away, which can be long after it was killed: where the number tells, that is asked too.
pub fn is_dead(lives: &dyn Liveness, birth: u64, by_number: impl FnOnce(u64) -> bool) -> bool {
    match life_of(birth) {
        Some(life) => {
            (life != UNREGISTERED && lives.is_over(life)) || (lives.is_plain() && by_number(0))
        }
        None => lives.is_home() && by_number(birth),
    }
}
