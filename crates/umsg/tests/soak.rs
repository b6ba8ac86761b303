//! Random violence to processes that use queues and rings: in several threads, in signal handlers and in forked children.
//!
//! Each module has the soaks of an API. POSIX and System V queues share one soak, which is generic over the kind of queue. The soaks of an API share
//! its time: ten seconds, or `UMSG_SOAK_SECONDS`. `UMSG_SOAK_SEED` repeats the violence of an earlier run.

mod chaos;
#[path = "soak/posix.rs"]
mod posix;
#[path = "soak/queues.rs"]
mod queues;
#[path = "soak/ring.rs"]
mod ring;
mod support;
#[path = "soak/sysv.rs"]
mod sysv;

#[global_allocator]
static ALLOCATOR: chaos::harass::Vigilant = chaos::harass::Vigilant;
