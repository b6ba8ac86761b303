//! The drop-in: a library to be preloaded, which answers the mq_* functions of libc from shared memory.
//!
//! ```text
//! LD_PRELOAD=/path/to/libumsg_preload.so program
//! ```
//!
//! The program has real descriptors: the descriptors of the queues' files. A table in the process records them.
//!
//! | what | where |
//! |---|---|
//! | the exported names, one file for each subject | `hooks` |
//! | the libc functions behind them, and the search for them | `next`, `chain` |
//! | descriptor → queue | `table`; `adopt` and `arrivals` for descriptors that the table lacks; `ours` decides whether an entry is still right |
//! | the queues to which a process is attached, and when they are unmapped | `attachments`, and `umsg_shm::reclaim` |
//! | closed queues that stay mapped; queues that are removed and created again; a missing name that the program looks for again | `kept`, `vacated`, `absent` |
//! | the descriptors that show pollers the state of queues; the library's own descriptors | `doorbells`, `polling`, `umsg_shm::sys::reserved_descriptors` |
//! | the process that owns the table, after fork and vfork | `process` |
//! | whether calls block | `blocking` |
//! | files of /proc on System V queues; the limits in /proc/sys | `procfs`; `knobs` |
//! | /dev/mqueue; another IPC namespace | `mqueue`; `home` |
//! | handlers that use queues; the dispositions that the program has asked for | `signals`; `wanted` |
//! | ending threads that are blocked | `cancellation` |
//! | records of calls for `umsg trace` | `trace` |
//! | memory that is not from the program's malloc | `memory` |
//!
//! Exported names have no symbol version. The dynamic linker resolves references of any version to a name without a version in a preloaded library.
//! So the library serves programs linked against libc's GLIBC_2.34 names and against librt's GLIBC_2.3.4 names.
#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "the exported functions have no caller in the test program"
    )
)]

mod absent;
mod adopt;
mod arrivals;
mod attachments;
mod blocking;
mod cancellation;
mod chain;
mod debug;
mod doorbells;
mod errno;
mod fd;
mod home;
mod hooks;
mod kept;
mod knobs;
mod memory;
mod mqueue;
mod names;
mod next;
mod ours;
mod polling;
mod process;
mod procfs;
mod signals;
mod start;
mod table;
mod timeout;
mod trace;
mod unwinder;
mod vacated;
mod waiting;
mod wanted;

use umsg_shm::kernel;
use umsg_shm::sys::arguments as pointer;
