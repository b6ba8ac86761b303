//! umsg, the kernel's queue, and the alternatives that a program has. All peers do the same work, in alternating rounds. A further test kills one
//! process and observes the survivors.
//!
//! The table of the report (`published/processes.rs`) finds the rows of this suite by their names, and in each row a column for each peer. The page
//! has a plot of the kill trials. Only the kill trials have a goal here: the other goals are in the suites that compare only umsg and the kernel.

mod entrant;
mod kill;
mod one_thread;
mod pair;
mod rows;
mod stream;
mod trip;

use self::entrant::Entrant;
use self::kill::Role;
use self::rows::{Measured, best, kill_row, kinds};
use self::stream::Flow;
use self::trip::Trip;
use crate::failure::Failure;
use crate::found::{Found, KillTrial};
use crate::harness::{Plan, Side};
use crate::peers::channel::Crossbeam;
use crate::peers::descriptor::{Eventfd, Pipe, Socket};
use crate::peers::nats::{self, Nats};
use crate::peers::redis::{self, Redis};
use crate::peers::scratch::Scratch;
use crate::peers::{Abilities, Way, boost, iceoryx, queue};
use crate::row::{Better, Row};

const SUITE: &str = "peers";

/// The number of trials of a peer for each role of the killed process. Each trial has one kill.
const KILLS: u32 = 40;
/// The number of trials for each round of a run with `--quick`.
const KILLS_A_ROUND: u32 = 2;

/// The available peers, umsg first and the kernel second, and the reasons for missing peers.
struct Field<'a> {
    entrants: Vec<Box<dyn Entrant + 'a>>,
    left_out: Vec<String>,
}

impl<'a> Field<'a> {
    fn gather(plan: &Plan, scratch: &'a Scratch) -> Self {
        let mut field = Self {
            entrants: vec![
                Box::new(queue::umsg()),
                Box::new(queue::kernel(plan.allowance)),
            ],
            left_out: Vec::new(),
        };
        let cpus = plan.cpus.both();
        field.add(boost::NAME, boost::find(scratch));
        field.add(iceoryx::NAME, iceoryx::find(scratch));
        field.entrants.push(Box::new(Crossbeam));
        field.entrants.push(Box::new(Pipe));
        field.entrants.push(Box::new(Socket));
        field.entrants.push(Box::new(Eventfd));
        field.add(redis::NAME, Redis::start(scratch, cpus.clone()));
        field.add(nats::NAME, Nats::start(scratch, cpus));
        field
    }

    fn add(&mut self, name: &str, found: Result<impl Entrant + 'a, Failure>) {
        match found {
            Ok(entrant) => self.entrants.push(Box::new(entrant)),
            Err(failure) => {
                eprintln!("umsg-bench: peers: left out {name}: {failure}");
                self.left_out.push(format!("left out {name}: {failure}"));
            }
        }
    }

    /// Returns the description of each peer, and the reasons for missing peers.
    fn notes(&self) -> impl Iterator<Item = String> {
        let entrants = self.entrants.iter();
        let about = entrants.map(|entrant| format!("{}: {}", entrant.name(), entrant.about()));
        about.chain(self.left_out.iter().cloned())
    }

    /// Measures the rounds of all peers that have this capability.
    fn measure<T>(
        &self,
        plan: &Plan,
        what: &str,
        can: impl Fn(Abilities) -> bool,
        measure: impl Fn(&dyn Entrant) -> Result<T, Failure>,
    ) -> Vec<Side<T>> {
        let mut sides: Vec<Side<T>> = self.entrants.iter().map(|_| Side::new()).collect();
        for round in 0..plan.rounds {
            plan.progress(&format!("peers: {what}"), round);
            for (entrant, side) in self.entrants.iter().zip(&mut sides) {
                if can(entrant.abilities()) {
                    side.round(|| measure(entrant.as_ref()));
                }
            }
        }
        sides
    }

    fn row(
        &self,
        name: &str,
        unit: &'static str,
        better: Better,
        all: &[Measured],
    ) -> Result<Row, Failure> {
        rows::row(name, unit, better, &self.entrants, all)
    }
}

pub fn run(plan: &Plan) -> Result<Found, Failure> {
    plan.cpus.two(SUITE)?;
    plan.progress_of("peers: compiling and starting servers", 0, 1);
    let field = Field::gather(plan, &plan.scratch);
    let mut rows = vec![one_thread_row(plan, &field)?];
    rows.extend(stream_rows(plan, &field)?);
    rows.extend(trip_rows(
        plan,
        &field,
        "round trip, spinning",
        Way::Polling,
    )?);
    rows.extend(trip_rows(plan, &field, "round trip, asleep", Way::Asleep)?);
    let mut kill_trials = Vec::new();
    for victim in [Role::Sender, Role::Receiver] {
        rows.push(kills(plan, &field, victim, &mut kill_trials)?);
    }
    if let Some(first) = rows.first_mut() {
        first.notes.extend(field.notes());
    }
    Ok(Found {
        rows,
        kill_trials,
        ..Found::default()
    })
}

fn one_thread_row(plan: &Plan, field: &Field<'_>) -> Result<Row, Failure> {
    let sides = field.measure(
        plan,
        "one thread",
        |_| true,
        |entrant| entrant.one_thread(plan),
    );
    let all = kinds(&sides, |&time| time);
    field.row("one thread", "ns", Better::Less, &all)
}

/// Returns the rows of streams, for each peer by the better of its two ways to wait.
fn stream_rows(plan: &Plan, field: &Field<'_>) -> Result<[Row; 2], Failure> {
    let flows = |way: Way, can: fn(Abilities) -> bool| {
        let what = format!("stream, {}", way.name());
        field.measure(plan, &what, can, |entrant| entrant.stream(plan, way))
    };
    let polling = flows(Way::Polling, |can| can.carries && can.polls);
    let waiting = flows(Way::Piped, |can| can.carries);
    let (mut sides, mut ways) = (Vec::<Side<Flow>>::new(), Vec::new());
    for (entrant, pair) in field.entrants.iter().zip(polling.into_iter().zip(waiting)) {
        let (side, way) = best(pair, |flow| flow.rate);
        if let Some(way) = way {
            ways.push(format!("{} {way}", entrant.name()));
        }
        sides.push(side);
    }
    let rates = kinds(&sides, |flow| flow.rate);
    let cpu = kinds(&sides, |flow| flow.cpu);
    let rate = field.row("stream", "M/s", Better::More, &rates)?;
    Ok([
        rate.note(format!(
                "stream: queues of 1,024 messages where it can be said; of calls that wait and calls that are repeated, what is faster: {}",
                ways.join(", ")
            )),
        field
            .row("stream, CPU time", "ns", Better::Less, &cpu)?
            .note(CPU_NOTE),
    ])
}

const CPU_NOTE: &str =
    "CPU time: of both sides, and of the server where there is one, a message or a round trip";

fn trip_rows(plan: &Plan, field: &Field<'_>, name: &str, way: Way) -> Result<[Row; 2], Failure> {
    let can = |can: Abilities| way != Way::Polling || can.polls;
    let sides = field.measure(plan, name, can, |entrant| entrant.trip(plan, way));
    let medians = kinds(&sides, |trip: &Trip| trip.median);
    let cpu = kinds(&sides, |trip: &Trip| trip.cpu);
    let row = field.row(name, "ns", Better::Less, &medians)?;
    Ok([
        row,
        field
            .row(&format!("{name}, CPU time"), "ns", Better::Less, &cpu)?
            .note(CPU_NOTE),
    ])
}

/// Returns the rows of the kill trials, for all peers that send between processes.
fn kills(
    plan: &Plan,
    field: &Field<'_>,
    victim: Role,
    trials: &mut Vec<KillTrial>,
) -> Result<Row, Failure> {
    let kills = match plan.quick {
        true => KILLS.min(KILLS_A_ROUND * plan.rounds),
        false => KILLS,
    };
    let mut sides = Vec::new();
    for entrant in &field.entrants {
        let mut side = Side::new();
        if entrant.abilities().crosses {
            side.round(|| entrant.kill(plan, victim, kills));
        }
        trials.extend(side.rounds.iter().cloned());
        sides.push(side);
    }
    let stuck = kinds(&sides, |trial| f64::from(trial.stuck));
    kill_row(&field.entrants, victim, kills, &stuck)
}
