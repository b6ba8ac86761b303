//! A soak in rounds: each round is judged and reported by itself.

use super::{Figures, Leaks, Work, harass};
use crate::support::{now, turn};
use std::time::{Duration, Instant};

/// The maximum time of a round: its journal has room for more.
const ROUND: Duration = Duration::from_secs(15);

/// Soaks one thing after the other that `new` makes, as long as there is time; it is one of so many soaks that share the time.
pub fn soak<W: Work>(what: &'static str, soaks: u32, new: impl Fn() -> W) {
    let _turn = turn();
    let mut rounds = Rounds::new(what, soaks);
    while let Some((seed, time)) = rounds.next() {
        let leaks = Leaks::watch();
        let soak = new();
        let mut round = harass(&soak, seed, time);
        soak.judge(&mut round, what);
        soak.end(leaks, what);
        rounds.note(&round);
    }
    rounds.finish();
}

/// The time that is left, and the observations.
struct Rounds {
    what: &'static str,
    begun: Instant,
    time: Duration,
    seed: u64,
    all: Figures,
}

impl Rounds {
    /// Of one of so many soaks that share the time that was asked for: ten seconds, or `UMSG_SOAK_SECONDS`.
    fn new(what: &'static str, soaks: u32) -> Rounds {
        let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        Rounds {
            what,
            begun: Instant::now(),
            time: Duration::from_secs(asked("UMSG_SOAK_SECONDS").unwrap_or(10)) / soaks,
            seed: asked("UMSG_SOAK_SEED").unwrap_or_else(now),
            all: Figures::default(),
        }
    }

    /// The next round's seed and time, if there is time left. The first one's is the seed that was asked for by `UMSG_SOAK_SEED`.
    fn next(&mut self) -> Option<(u64, Duration)> {
        let left = self.time.saturating_sub(self.begun.elapsed());
        let has_begun = self.all.rounds != 0;
        if has_begun && left < ROUND / 10 {
            return None;
        }
        let seed = self.seed.wrapping_add(self.all.rounds);
        eprintln!(
            "soak, {}: round {}, seed {seed}, {} s left",
            self.what,
            self.all.rounds + 1,
            left.as_secs()
        );
        Some((seed, left.min(ROUND)))
    }

    /// The result of a judged round.
    fn note(&mut self, round: &Figures) {
        self.all.add(round);
        if self.time > ROUND {
            eprintln!("soak, {}: so far {}", self.what, self.all);
        }
    }

    /// Prints the result; `UMSG_SOAK_JSON` asks for it in the form for programs as well.
    fn finish(&self) {
        eprintln!("soak, {}: {}", self.what, self.all);
        if std::env::var_os("UMSG_SOAK_JSON").is_some() {
            println!("{}", self.all.json(self.what, self.seed));
        }
    }
}
