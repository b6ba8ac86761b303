//! Serves programs into which no library can be loaded, and system calls that a program makes without libc.
//!
//! `umsg run` starts a process, the supervisor. Then `umsg run` installs a filter ([`filter`]) and replaces itself with the program. The kernel then
//! passes each call on queues to the supervisor, which performs the call on umsg's queues. All processes that the program starts inherit the filter,
//! so one supervisor serves a tree of processes. A child into which the drop-in is loaded makes no such calls.
//!
//! | what | where |
//! |---|---|
//! | which calls reach the supervisor | [`filter`] |
//! | the descriptor by which the kernel hands them over | [`listener`] |
//! | the memory, the user and the descriptors of a calling thread | [`memory`] |
//! | descriptor → queue | [`descriptors`] |
//! | what is known about their threads | [`threads`] |
//! | IPC namespace → queues | [`namespaces`] |
//! | the loop that takes calls | [`serve`] |
//! | which thread runs this loop | [`lead`] |
//! | calls that block, and their ends by signals | [`waits`] |
//! | the thread that looks at both | [`watch`] |
//! | the calls | [`posix`], [`sysv`], [`polls`], [`paths`] |
//! | limits in /proc/sys that programs have open for writing | [`limits`] |
//! | notifications by a thread | [`cookies`] |
//! | threads for calls that block | [`workers`] |
//!
//! docs/protocols.md, "The supervisor", describes the steps of the supervisor, and the state that its death leaves at each step.

mod cookies;
mod descriptors;
#[allow(unsafe_code, reason = "a filter is installed by a system call")]
mod filter;
mod lead;
mod limits;
#[allow(unsafe_code, reason = "the kernel hands calls over by ioctl(2)")]
mod listener;
#[allow(unsafe_code, reason = "system calls on another process's memory")]
mod memory;
mod namespaces;
mod paths;
mod polls;
mod posix;
mod serve;
#[allow(unsafe_code, reason = "a process forks, and makes a system call")]
mod start;
mod sysv;
mod threads;
mod waits;
mod watch;
mod workers;

pub use start::{Home, begin};

/// The functions of the supervisor that a user can switch off.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether calls with paths reach the supervisor.
    pub files: bool,
    /// Whether /dev/mqueue is among the files that the supervisor serves.
    pub dev_mqueue: bool,
    /// Whether a thread that moves to another IPC namespace gets the queues of that namespace.
    pub ipc_namespaces: bool,
}

/// A value for an argument that mq_getsetattr(2) does not have. By a call with this value, `umsg run` asks whether a supervisor serves the process.
const PROBE: u64 = 0x0067_736d_755f_6e75;

/// Returns whether UMSG_DEBUG is 1: then the supervisor prints why calls failed.
fn explains() -> bool {
    std::env::var_os("UMSG_DEBUG").is_some_and(|value| value == "1")
}
