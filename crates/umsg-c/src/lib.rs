//! The C library: `libumsg.so` and `umsg.h`.
//!
//! Each function is declared once, in this crate, with its comment. From the comment, `cargo xtask c-header` makes the header, and `cargo xtask
//! c-man` makes the manual page of the function.
//!
//! | what | where |
//! |---|---|
//! | the exported functions, one file for each subject | `open`, `options`, `send`, `receive`, `batch`, `receive_batch`, `reservation`, `lease`, `dead_letter`, `attributes`, `status`, `peek`, `snapshot`, `notify`, `waiting`, `pollable`, `signals`, `log`, `version` |
//! | the functions of System V queues | `msg` |
//! | the functions of rings | `ring` |
//! | handle → queue | `handle` |
//! | leases, arrays of messages: what both kinds of queues share | `leases`, `messages` |
//! | the numbers of a program's queues, leases and reservations | `handles` |
//! | O_NONBLOCK, shared over fork | `flag` |
//! | errno and the text of the last error | `error` |
//! | the arguments of a program: addresses, times | `pointer`, `time` |
//!
//! A handle of a queue is a number in the form of a pointer. The library never dereferences a handle, so a program may pass any value. All other
//! pointers are addresses, also those of the ends of rings (see `ring`). The library refuses an address that no program can have: NULL, a small
//! number, or an address in the kernel's half of the address space. The library trusts every other address, as libc does.
//!
//! A panic is a bug and ends the process; no unwinding leaves these functions.
#![allow(non_camel_case_types, reason = "the types have their names of C")]
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "umsg_mq_open takes its variable arguments as plain ones, which is right on these only"
);

mod attributes;
mod batch;
mod close;
mod dead_letter;
mod error;
mod flag;
mod handle;
mod handles;
mod lease;
mod leases;
mod log;
mod messages;
mod msg;
mod notify;
mod open;
mod options;
mod peek;
mod pointer;
mod pollable;
mod receive;
mod receive_batch;
mod reservation;
mod ring;
mod send;
mod signals;
mod snapshot;
mod status;
mod time;
mod version;
mod waiting;
