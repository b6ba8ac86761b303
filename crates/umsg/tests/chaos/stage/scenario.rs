//! Scenarios: the operations of a victim until it dies, and the state around it.

use super::Kind;
use crate::chaos::killing::{Batches, Bystander, Nudge};

/// The operations of a victim, the points at which it dies, and the state around it.
pub struct Scenario<K: Kind> {
    pub name: &'static str,
    pub shape: K::Shape,
    pub prefill: fn(&mut K::Worker<'_>),
    pub bystander: Bystander,
    pub victim: fn(&mut K::Worker<'_>),
    pub nudge: Nudge,
    /// The minimum number of times that the victim passes each point.
    pub passes: u32,
    /// True if each round has a new queue, for steps that happen once in the life of a queue.
    pub fresh: bool,
    /// True if the victim's wait has a limit. On a busy machine, the time may be over before the victim waits.
    pub timed: bool,
    /// The victim's operations on batches.
    pub batches: Batches,
    /// True if the victim dies with leases. Its messages come back when a process checks the holders. Other messages may have been received earlier.
    pub leases: bool,
    /// Points after which the blocked bystander continues without the help of a later process.
    pub alone: &'static [&'static str],
    pub points: &'static [&'static str],
}

/// Defines methods, each of which sets one field. The methods can be called in a constant expression.
#[macro_export]
macro_rules! setters {
    ($($method:ident => $field:ident: $type:ty),* $(,)?) => {
        $(pub const fn $method(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        })*
    };
}

/// The names of crash points.
#[macro_export]
macro_rules! crash_points {
    ($($point:ident)*) => { &[$(stringify!($point)),*] };
}

/// A scenario is written as calls: `Scenario::new(name, victim).prefill(..).dies_at(..)`.
impl<K: Kind> Scenario<K> {
    /// Creates a scenario whose victim uses an empty queue of the usual shape, with an idle bystander.
    pub const fn new(name: &'static str, victim: fn(&mut K::Worker<'_>)) -> Self {
        Scenario {
            name,
            shape: K::SHAPE,
            prefill: |_| (),
            bystander: Bystander::Idle,
            victim,
            nudge: Nudge::Nothing,
            passes: 1,
            fresh: false,
            timed: false,
            batches: Batches::None,
            leases: false,
            alone: &[],
            points: &[],
        }
    }

    setters! {
        shape => shape: K::Shape,
        prefill => prefill: fn(&mut K::Worker<'_>),
        beside => bystander: Bystander,
        nudge => nudge: Nudge,
        passes => passes: u32,
        batches => batches: Batches,
        alone => alone: &'static [&'static str],
        dies_at => points: &'static [&'static str],
    }

    pub const fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    pub const fn timed(mut self) -> Self {
        self.timed = true;
        self
    }

    pub const fn leases(mut self) -> Self {
        self.leases = true;
        self
    }
}
