//! The models, one protocol in each file; [`stage`] has their common parts.
//!
//! The table at the head of each file lists the deliberate defects that its models were seen to catch.

mod batch;
mod death;
mod end_of_stream;
mod fair;
mod grow;
mod handover;
mod helper;
mod inspect;
mod leases;
mod lock;
mod notification;
mod presence;
mod priority;
mod repair_log;
mod ring;
mod ring_death;
mod ring_stage;
mod scenario;
mod sides;
mod stage;
mod subject;
mod sysv_batch;
mod sysv_change;
mod sysv_counts;
mod sysv_death;
mod sysv_delivery;
mod sysv_handover;
mod sysv_lease;
mod sysv_recycle;
mod sysv_stage;
mod sysv_two_deaths;
mod trace;
mod transfer;
mod two_deaths;
mod waiters;
mod watch;
