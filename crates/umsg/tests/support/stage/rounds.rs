//! Which victims die where, and how often.

use super::{Kind, Scenario, Stage};
use crate::support::killing::{Figures, Repairer, Rounds, Way};
use crate::support::points;
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
    assert!(figures.kills_at(point) > before, "{what}: nobody dies");
    figures.judge_stalls(&what, |figures| {
        if scenario.fresh {
            stage = Stage::new(scenario);
        }
        stage.round(point, 1, Repairer::Anybody, figures);
    });
}

/// Kills victims in some scenarios at some points, by name; then the queue is made anew of what is whole, which believes little of what a
/// repair goes by.
pub fn kill_and_make_anew<K: Kind>(
    deadly: &[(&str, &str)],
    scenarios: impl Fn(&str) -> Option<&'static Scenario<K>>,
) {
    let _turn = turn();
    let mut figures = Figures::default();
    for (name, point) in deadly {
        let scenario = scenarios(name).unwrap_or_else(|| panic!("nobody who {name}"));
        for nth in [1, 1 + 7 % scenario.passes] {
            let mut stage = Stage::new(scenario);
            stage.round(point, nth, Repairer::MakesAnew, &mut figures);
        }
        assert!(
            figures.kills_at(point) > 0,
            "{name}: nobody dies at {point}"
        );
    }
    figures.print("made anew after a death");
}

/// Kills victims in some scenarios at some points, by name; and repairers at each point that a repairer comes by. Fails if there is one at which
/// none has died.
pub fn kill_repairers<K: Kind>(
    deadly: &[(&str, &str)],
    scenarios: impl Fn(&str) -> Option<&'static Scenario<K>>,
) {
    let _turn = turn();
    let mut figures = Figures::default();
    for (name, point) in deadly {
        let scenario = scenarios(name).unwrap_or_else(|| panic!("nobody who {name}"));
        kill_twice(scenario, point, &mut figures);
    }
    for point in points::of_repairs(K::FACE) {
        assert!(figures.kills_at(&point) > 0, "no repairer dies at {point}");
    }
    figures.print("killed repairers");
}

/// Kills a victim at a point; and then, one after the other, a repairer at each point that a repairer comes by.
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
