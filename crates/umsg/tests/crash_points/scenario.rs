//! What a victim does until it dies, and around what.

use crate::support::actor::Actor;
use crate::support::killing::{Bystander, Nudge};

pub struct Scenario {
    pub name: &'static str,
    pub depth: u32,
    pub size: u32,
    pub prefill: fn(&mut Actor<'_>),
    pub bystander: Bystander,
    pub victim: fn(&mut Actor<'_>),
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
    depth: 62,
    size: 4096,
    prefill: |_| (),
    bystander: Bystander::Idle,
    victim: |_| (),
    nudge: Nudge::Nothing,
    passes: 1,
    fresh: false,
    alone: &[],
    points: &[],
};
