//! Chooses the victims, the points at which they die, and the number of deaths.

use super::{Kind, Scenario, Stage};
use crate::chaos::killing::{Figures, Repairer, Rounds, Way};
use crate::chaos::points;
use crate::support::shared::Shared;
use crate::support::turn;

/// Kills at every point of every scenario of a table.
pub fn kill_at_every_point<K: Kind>(title: &str, table: &[Scenario<K>]) {
    let _turn = turn();
    let mut figures = Figures::default();
    for scenario in table {
        for point in scenario.points {
            kill_often(scenario, point, &mut figures);
        }
    }
    figures.print(title);
}

/// Fails unless the scenarios, the other points and the named test files kill at every point of the API.
pub fn expect_kills_at_every_point<K: Kind>(
    scenarios: impl Iterator<Item = &'static Scenario<K>>,
    others: &[&'static str],
    files: &[&str],
) {
    points::expect_all_to_stand_somewhere();
    let in_tables = scenarios.flat_map(|scenario| scenario.points);
    let mut killed: Vec<&str> = in_tables.chain(others).copied().collect();
    killed.extend(files.iter().flat_map(|file| points::killed_in(file)));
    // The test of killed repairers finds these points in the source code.
    let repairs = points::of_repairs(K::FACE);
    killed.extend(repairs.iter().map(|point| &point[..]));
    points::expect_all(K::FACE, &killed);
}

/// The tests that each kind of queue has: its scenarios in tables, and a call for each test.
#[macro_export]
macro_rules! crash_tests {
    (tables: [$($table:expr),*]; $($test:ident => $run:expr;)*) => {
        fn scenarios() -> impl Iterator<Item = &'static Scenario> {
            [$($table),*].into_iter().flatten()
        }

        fn named(name: &str) -> Option<&'static Scenario> {
            scenarios().find(|scenario| scenario.name == name)
        }

        $(#[test]
        fn $test() {
            $run;
        })*
    };
}

fn kill_often<K: Kind>(scenario: &Scenario<K>, point: &str, figures: &mut Figures) {
    let what = format!("{} / {point}", scenario.name);
    let before = figures.kills_at(point);
    let mut stage = Stage::new(scenario);
    let mut rounds = Rounds::new();
    while let Some(round) = rounds.next(figures.kills_at(point) > before) {
        if scenario.fresh {
            stage = Stage::new(scenario);
        }
        let nth = 1 + (round * 7) % scenario.passes;
        stage.round(point, nth, Repairer::Anybody, figures);
        let round = if scenario.fresh { 0 } else { round };
        stage.check_memory(round, &what);
    }
    assert!(figures.kills_at(point) > before, "{what}: no process dies");
    figures.judge_stalls(&what, |figures| {
        if scenario.fresh {
            stage = Stage::new(scenario);
        }
        stage.round(point, 1, Repairer::Anybody, figures);
    });
}

/// A scenario and a point, by their names.
type Deadly = (&'static str, &'static str);

/// Returns the scenarios of these names, each with its point.
fn find<'a, K: Kind>(
    deadly: &'a [Deadly],
    scenarios: impl Fn(&str) -> Option<&'static Scenario<K>> + 'a,
) -> impl Iterator<Item = (&'static Scenario<K>, &'static str)> + 'a {
    deadly.iter().map(move |(name, point)| {
        let scenario = scenarios(name).unwrap_or_else(|| panic!("no scenario: {name}"));
        (scenario, *point)
    })
}

/// Kills victims in some scenarios at some points. After each death, the queue is not repaired but rebuilt from its intact messages. The rebuild
/// relies on fewer words of the queue than a repair.
pub fn kill_and_make_anew<K: Kind>(
    deadly: &[Deadly],
    scenarios: impl Fn(&str) -> Option<&'static Scenario<K>>,
) {
    let _turn = turn();
    let mut figures = Figures::default();
    for (scenario, point) in find(deadly, scenarios) {
        for nth in [1, 1 + 7 % scenario.passes] {
            let mut stage = Stage::new(scenario);
            stage.round(point, nth, Repairer::MakesAnew, &mut figures);
        }
        let kills = figures.kills_at(point);
        assert!(kills > 0, "{}: no process dies at {point}", scenario.name);
    }
    figures.print("made anew after a death");
}

/// Kills victims in some scenarios at some points; and repairers at each point that a repairer passes. Fails if there is a point at
/// which no repairer has died.
pub fn kill_repairers<K: Kind>(
    deadly: &[Deadly],
    scenarios: impl Fn(&str) -> Option<&'static Scenario<K>>,
) {
    let _turn = turn();
    let mut figures = Figures::default();
    find(deadly, scenarios).for_each(|(scenario, point)| kill_twice(scenario, point, &mut figures));
    for point in points::of_repairs(K::FACE) {
        assert!(figures.kills_at(&point) > 0, "no repairer dies at {point}");
    }
    figures.print("killed repairers");
}

/// Kills a victim at a point; and then, one after the other, a repairer at each point that a repairer passes.
fn kill_twice<K: Kind>(scenario: &Scenario<K>, point: &str, figures: &mut Figures) {
    let way = Shared::<Way>::new();
    let nth = 1 + 7 % scenario.passes;
    let mut stage = Stage::new(scenario);
    stage.round(point, nth, Repairer::Watched(&way), figures);
    for second in way.points() {
        if scenario.fresh {
            stage = Stage::new(scenario);
        }
        stage.round(point, nth, Repairer::DiesAt(second), figures);
    }
}
