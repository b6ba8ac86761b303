//! A soak in rounds: each round is judged and reported by itself.

use super::{Figures, Leaks, Work, harass};
use crate::support::{now, turn};
use std::time::{Duration, Instant};

/// The maximum time of a round. In this time, the messages of a round do not fill the journal.
const ROUND: Duration = Duration::from_secs(15);

/// Soaks the objects that `new` makes, one after the other, as long as there is time. `soaks` is the number of soaks that share the time.
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

/// The time that is left for the soak, and the results of the rounds so far.
struct Rounds {
    what: &'static str,
    begun: Instant,
    time: Duration,
    seed: u64,
    all: Figures,
}

impl Rounds {
    /// Makes the rounds of one of `soaks` soaks, which share the requested time: ten seconds, or `UMSG_SOAK_SECONDS`.
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

    /// Returns the seed and the time of the next round, if time is left. The seed of the first round is `UMSG_SOAK_SEED`, if it is set.
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

    /// Adds the result of a judged round.
    fn note(&mut self, round: &Figures) {
        self.all.add(round);
        if self.time > ROUND {
            eprintln!("soak, {}: so far {}", self.what, self.all);
        }
    }

    /// Prints the result. With `UMSG_SOAK_JSON`, also prints the result as JSON.
    fn finish(&self) {
        eprintln!("soak, {}: {}", self.what, self.all);
        if std::env::var_os("UMSG_SOAK_JSON").is_some() {
            println!("{}", self.all.json(self.what, self.seed));
        }
    }
}
