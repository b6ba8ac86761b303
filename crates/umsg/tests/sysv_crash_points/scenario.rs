//! What a victim does until it dies, and around what.

use crate::support::clerk::Clerk;
use crate::support::killing::{Bystander, Nudge};

/// The queue's key, and how many bytes it holds, and messages.
pub const KEY: i32 = 0x5e1f;
pub const QBYTES: usize = 16_384;

/// What a blocked receiver wants.
pub const WANTED: u16 = 3;

pub struct Scenario {
    pub name: &'static str,
    pub prefill: fn(&mut Clerk<'_>),
    pub bystander: Bystander,
    pub victim: fn(&mut Clerk<'_>),
    pub nudge: Nudge,
    /// How often the victim passes each point at least.
    pub passes: u32,
    /// A queue is used for one round only: what happens once in its life.
    pub fresh: bool,
    /// Points after which the blocked bystander goes on before anybody else comes.
    pub alone: &'static [&'static str],
    pub points: &'static [&'static str],
}

pub const PLAIN: Scenario = Scenario {
    name: "",
    prefill: |_| (),
    bystander: Bystander::Idle,
    victim: |_| (),
    nudge: Nudge::Nothing,
    passes: 1,
    fresh: false,
    alone: &[],
    points: &[],
};
