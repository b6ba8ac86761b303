//! Figures of a soak: actions and results.

use crate::chaos::journal::{DEEDS, Deed, Journal};
use std::fmt;
use std::time::Duration;

/// The counts of the supervisor's actions and of the workers' actions, in one round or in several rounds.
#[derive(Clone, Default)]
pub struct Figures {
    pub rounds: u64,
    pub kills: u64,
    /// The number of workers that died at a named point.
    pub deaths: u64,
    pub stops: u64,
    pub signals: u64,
    deeds: [u64; DEEDS],
    /// The number of messages that receivers had copied when they died inside of a receive.
    pub in_dead_hands: usize,
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    pub repairs: u64,
    /// The largest number of descriptors that a worker was seen to have.
    pub descriptors: usize,
    /// The longest time without progress of a call while no process was stopped, and the longest delay after a deadline.
    pub stall: Duration,
    pub late: Duration,
}

impl Figures {
    /// Adds the deeds since the journal was last reset.
    pub(super) fn note_deeds(&mut self, journal: &Journal) {
        for (deed, count) in self.deeds.iter_mut().zip(&journal.deeds) {
            *deed = count.load(std::sync::atomic::Ordering::SeqCst);
        }
    }

    pub fn add(&mut self, other: &Figures) {
        self.rounds += 1;
        self.kills += other.kills;
        self.deaths += other.deaths;
        self.stops += other.stops;
        self.signals += other.signals;
        for (deed, more) in self.deeds.iter_mut().zip(other.deeds) {
            *deed += more;
        }
        self.in_dead_hands += other.in_dead_hands;
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.repairs += other.repairs;
        self.descriptors = self.descriptors.max(other.descriptors);
        self.stall = self.stall.max(other.stall);
        self.late = self.late.max(other.late);
    }

    fn of(&self, deed: Deed) -> u64 {
        self.deeds[deed as usize]
    }

    /// Returns each figure with its name, for programs. A leak fails the test, so it needs no figure.
    fn rows(&self) -> [(&'static str, u64); 24] {
        [
            ("rounds", self.rounds),
            ("kills", self.kills),
            ("deaths_at_points", self.deaths),
            ("stops", self.stops),
            ("signals", self.signals),
            ("handled", self.of(Deed::Handled)),
            ("threads", self.of(Deed::Thread)),
            ("forks", self.of(Deed::Fork)),
            ("spawns", self.of(Deed::Spawn)),
            ("execs", self.of(Deed::Exec)),
            ("urgent", self.of(Deed::Urgent)),
            ("idle", self.of(Deed::Idle)),
            ("polled", self.of(Deed::Polled)),
            ("notified", self.of(Deed::Notified)),
            ("sent", self.sent),
            ("received", self.received),
            ("lost_with_receivers", self.lost),
            ("in_dead_hands", self.in_dead_hands as u64),
            ("repairs", self.repairs),
            ("most_descriptors", self.descriptors as u64),
            ("longest_stall_us", self.stall.as_micros() as u64),
            ("longest_overdue_us", self.late.as_micros() as u64),
            ("leaked_files", 0),
            ("leaked_processes", 0),
        ]
    }

    /// Returns the figures as a JSON object, with the kind of queue and the seed.
    pub fn json(&self, what: &str, seed: u64) -> String {
        let rows = self
            .rows()
            .map(|(name, value)| format!("\"{name}\":{value}"));
        format!("{{\"soak\":\"{what}\",\"seed\":{seed},{}}}", rows.join(","))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "{} kills and {} deaths at a point, {} stops, {} signals ({} handled), {} threads, {} forks, {} spawns, {} execs, \
             {} urgent and {} idle processes; {} messages sent and {} received, {} lost with their receivers ({} in dead hands), \
             {} polled, {} notified; {} repairs; at most {} descriptors; longest stall {:.1} ms, longest overdue {:.1} ms; no leak",
            self.kills,
            self.deaths,
            self.stops,
            self.signals,
            self.of(Deed::Handled),
            self.of(Deed::Thread),
            self.of(Deed::Fork),
            self.of(Deed::Spawn),
            self.of(Deed::Exec),
            self.of(Deed::Urgent),
            self.of(Deed::Idle),
            self.sent,
            self.received,
            self.lost,
            self.in_dead_hands,
            self.of(Deed::Polled),
            self.of(Deed::Notified),
            self.repairs,
            self.descriptors,
            self.stall.as_secs_f64() * 1e3,
            self.late.as_secs_f64() * 1e3,
        )
    }
}
