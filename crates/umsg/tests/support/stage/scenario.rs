//! What a victim does until it dies, and around what.

use super::Kind;
use crate::support::killing::{Batches, Bystander, Nudge};

/// See the module.
pub struct Scenario<K: Kind> {
    pub name: &'static str,
    pub shape: K::Shape,
    pub prefill: fn(&mut K::Worker<'_>),
    pub bystander: Bystander,
    pub victim: fn(&mut K::Worker<'_>),
    pub nudge: Nudge,
    /// How often the victim passes each point at least.
    pub passes: u32,
    /// A queue is used for one round only: what happens once in its life.
    pub fresh: bool,
    /// The victim waits until its time is over, which on a busy machine may be before it waits.
    pub timed: bool,
    /// Which batches the victim has to do with.
    pub batches: Batches,
    /// The victim dies with leases: its messages come back when a process looks, and others may have been received before.
    pub leases: bool,
    /// Points after which the blocked bystander goes on before any process else comes.
    pub alone: &'static [&'static str],
    pub points: &'static [&'static str],
}

impl<K: Kind> Scenario<K> {
    /// What a scenario says nothing of.
    pub const PLAIN: Self = Scenario {
        name: "",
        shape: K::SHAPE,
        prefill: |_| (),
        bystander: Bystander::Idle,
        victim: |_| (),
        nudge: Nudge::Nothing,
        passes: 1,
        fresh: false,
        timed: false,
        batches: Batches::None,
        leases: false,
        alone: &[],
        points: &[],
    };
}
