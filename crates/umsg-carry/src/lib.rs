//! The common parts of `umsg bridge` and `umsg relay`, which carry messages between queues of umsg and other systems.
//!
//! | part | module |
//! |---|---|
//! | the kernel's own queues | [`kernel`] |
//! | reports to a service manager | [`service`] |
//! | named places at which a test kills the process | [`crash`] |
//!
//! An internal crate: its API may change at any time.
#![deny(unsafe_code)]

pub mod crash;
#[allow(
    unsafe_code,
    reason = "system calls on queues, which the drop-in must not intercept"
)]
pub mod kernel;
pub mod service;
