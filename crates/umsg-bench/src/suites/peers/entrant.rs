//! One interface for the measurements of all peers, so that peers of different types can be in one list.

use super::kill::{self, Role};
use super::one_thread;
use super::stream::{self, Flow};
use super::trip::{self, Trip};
use crate::failure::Failure;
use crate::found::KillTrial;
use crate::harness::Plan;
use crate::peers::{Abilities, Peer, Way};

/// A peer of any type.
pub trait Entrant {
    fn name(&self) -> &'static str;
    fn about(&self) -> String;
    fn abilities(&self) -> Abilities;
    fn one_thread(&self, plan: &Plan) -> Result<f64, Failure>;
    fn stream(&self, plan: &Plan, way: Way) -> Result<Flow, Failure>;
    fn trip(&self, plan: &Plan, way: Way) -> Result<Trip, Failure>;
    fn kill(&self, plan: &Plan, victim: Role, kills: u32) -> Result<KillTrial, Failure>;
}

impl<P: Peer> Entrant for P {
    fn name(&self) -> &'static str {
        Peer::name(self)
    }

    fn about(&self) -> String {
        Peer::about(self)
    }

    fn abilities(&self) -> Abilities {
        P::ABILITIES
    }

    fn one_thread(&self, plan: &Plan) -> Result<f64, Failure> {
        one_thread::measure(self, plan)
    }

    fn stream(&self, plan: &Plan, way: Way) -> Result<Flow, Failure> {
        stream::measure(self, plan, way)
    }

    fn trip(&self, plan: &Plan, way: Way) -> Result<Trip, Failure> {
        trip::measure(self, plan, way)
    }

    fn kill(&self, plan: &Plan, victim: Role, kills: u32) -> Result<KillTrial, Failure> {
        kill::measure(self, plan, victim, kills)
    }
}
