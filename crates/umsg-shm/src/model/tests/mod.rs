//! The models, one protocol a file; [`stage`] has what they share.
//!
//! The table at the head of each file says which defects it was seen to catch when they were made on purpose.

mod batch;
mod death;
mod grow;
mod handover;
mod helper;
mod holds;
mod lock;
mod look;
mod mended;
mod notice;
mod priority;
mod ring;
mod ring_death;
mod ring_stage;
mod sides;
mod stage;
mod two_deaths;
mod typed_batch;
mod typed_change;
mod typed_death;
mod typed_handover;
mod typed_lease;
mod typed_stage;
mod typed_two_deaths;
mod waiters;
mod watch;
