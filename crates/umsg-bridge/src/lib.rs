//! A bridge between umsg's queues and NATS JetStream: messages leave this machine, and come to it, with the semantics of the local queue.
//!
//! ```text
//!   export:  queue --lease--> bridge --publish, Nats-Msg-Id--> JetStream
//!                  <--acknowledge--   <--acknowledgement------
//!
//!   import:  JetStream --pull--> bridge --reserve, commit--> queue
//!                      <--ack---
//! ```
//!
//! A message is acknowledged to its source only after the destination has it. The death of any part can at most repeat a message, and the repeated
//! message is recognised:
//!
//! | direction | a repeated message is recognised by | window |
//! |---|---|---|
//! | export | JetStream, by `Nats-Msg-Id`: the queue's identity and the message's number ([`local`]) | the stream's `duplicate_window` |
//! | import | the bridge, by the stream's sequence: the queue's record of the arrival, and the file of the last sequences ([`window`]); a message that the stream has twice, by its `Nats-Msg-Id` | `dedupe` sequences |
//!
//! | subject | where |
//! |---|---|
//! | the file and the flags that declare bridges | [`config`] |
//! | the connection, and its secrets | [`connect`], [`reason`] |
//! | the local ends: POSIX and System V queues, rings, the kernel's queues | [`local`] |
//! | the two directions | [`export`] with [`flights`], [`import`] with [`pulls`] |
//! | several bridges in one process, and a new configuration | [`supervise`], [`name`] |
//! | errors that end the program, and their exit codes | [`failure`] |
//! | what `umsg bridge status` and `umsg metrics` show | [`status`] |
#![deny(unsafe_code)]

pub mod backoff;
pub mod check;
pub mod cli;
pub mod config;
pub mod connect;
pub mod crash;
pub mod durable;
pub mod envelope;
pub mod export;
pub mod failure;
pub mod flights;
pub mod headers;
pub mod import;
pub mod local;
pub mod log;
pub mod name;
pub mod pulls;
pub mod reason;
pub mod service;
pub mod status;
pub mod stream;
pub mod supervise;
pub mod window;
