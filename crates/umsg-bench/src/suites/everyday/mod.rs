//! Everyday operations: the calls of a program around its messages. Each row calls the C functions in a separate process, in turn on the
//! kernel and under the drop-in, or under a supervisor.

mod cases;
mod stress;

use std::time::Duration;

use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Row};
use crate::suite::Suite;
use crate::trial::{self, Setting, System};

const SUITE: &str = "everyday";

/// The definition of a row.
struct Case {
    name: &'static str,
    unit: &'static str,
    better: Better,
    /// The goal for the ratio.
    goal: Option<f64>,
    /// True if `cargo xtask bench-check` compares the row.
    guarded: bool,
    /// The implementation on umsg's side: the drop-in or the supervisor.
    system: System,
    /// Measures one figure, in the unit of the row.
    measure: fn(&Setting) -> Result<f64, Failure>,
}

/// Returns a case that measures the time of an operation.
const fn case(
    name: &'static str,
    goal: f64,
    measure: fn(&Setting) -> Result<f64, Failure>,
) -> Case {
    Case {
        name,
        unit: "ns",
        better: Better::Less,
        goal: Some(goal),
        guarded: false,
        system: System::Dropin,
        measure,
    }
}

impl Case {
    const fn guarded(self) -> Self {
        Self {
            guarded: true,
            ..self
        }
    }

    const fn supervised(self) -> Self {
        Self {
            system: System::Supervised,
            ..self
        }
    }

    const fn without_goal(self) -> Self {
        Self { goal: None, ..self }
    }

    /// Sets the unit to operations a second, measured over whole seconds.
    const fn rate(self) -> Self {
        Self {
            unit: "ops/s",
            better: Better::More,
            ..self
        }
    }

    /// Returns the time of a round and the number of rounds.
    fn extent(&self, plan: &Plan) -> (Duration, u32) {
        match (self.better, plan.quick) {
            (Better::Less, _) => (plan.budget, plan.rounds),
            (Better::More, false) => (Duration::from_secs(2), plan.rounds),
            (Better::More, true) => (Duration::from_secs(1), 1),
        }
    }
}

/// The rows. The goal is the smallest ratio of the kernel's time to umsg's.
const CASES: &[Case] = &[
    case(
        "mq_open of an existing queue + close",
        0.6,
        cases::open_and_close,
    )
    .guarded(),
    case(
        "mq_open, create + close + unlink, in a row",
        1.0,
        cases::create_in_a_row,
    )
    .guarded(),
    case(
        "mq_open, create + close + unlink, first of a process",
        0.25,
        cases::create_first,
    ),
    case(
        "create + send + receive + close + unlink",
        1.0,
        cases::create_and_use,
    ),
    case("mq_open + send + receive + close", 0.7, cases::open_and_use),
    case("mq_open of a missing queue", 0.8, cases::open_missing),
    case("mq_getattr", 1.0, cases::attributes).guarded(),
    case(
        "mq_receive on an empty queue, EAGAIN",
        3.0,
        cases::receive_from_empty,
    )
    .guarded(),
    case("mq_timedreceive, time over", 2.0, cases::receive_late),
    case("mq_notify, register + unregister", 1.0, cases::register),
    case(
        "mq_notify, own process: register, send, signal, receive",
        1.0,
        cases::notify_self,
    ),
    case(
        "mq_notify, another process: the send",
        1.0,
        cases::notify_other_send,
    ),
    case(
        "mq_notify, another process: send until the signal is taken",
        1.0,
        cases::notify_other_taken,
    ),
    case(
        "msgget(IPC_PRIVATE) + IPC_RMID",
        0.5,
        cases::get_and_remove_private,
    ),
    case("msgget of an existing key", 1.0, cases::get_existing).guarded(),
    case("msgget + msgsnd + msgrcv", 2.0, cases::get_and_use).guarded(),
    case(
        "epoll round trip of two processes on one core",
        0.95,
        cases::epoll_trip,
    ),
    case("fork + child sends + wait", 0.95, cases::fork_and_send),
    case("fork + exec of /bin/true", 0.9, cases::fork_and_exec),
    case(
        "msgctl(MSG_INFO) beside 1 queue",
        1.0,
        cases::totals_beside_one,
    )
    .without_goal(),
    case(
        "msgctl(MSG_INFO) beside 1,024 queues",
        1.0,
        cases::totals_beside_many,
    ),
    case(
        "msgctl(IPC_INFO) beside 1 queue",
        1.0,
        cases::limits_beside_one,
    )
    .without_goal(),
    case(
        "msgctl(IPC_INFO) beside 1,024 queues",
        1.0,
        cases::limits_beside_many,
    ),
    case(
        "/proc/sysvipc/msg read beside 1,024 queues",
        0.5,
        cases::listing_beside_many,
    ),
    case(
        "mq_send + mq_receive, static or raw",
        0.1,
        cases::send_and_receive,
    )
    .supervised(),
    case("msgsnd + msgrcv, static or raw", 0.1, cases::get_and_use).supervised(),
    case("stress-ng --msg 2", 2.0, stress::sysv).rate(),
    case(
        "stress-ng --mq 2 --mq-size 1, idle machine",
        2.0,
        stress::posix,
    )
    .rate(),
    case(
        "stress-ng --mq 2 --mq-size 1, beside a nice 19 compile",
        1.5,
        stress::posix_beside_compile,
    )
    .rate(),
];

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let cases = CASES.iter().filter(|case| plan.only.has(case.name));
    Ok(cases.filter_map(|case| row(plan, case)).collect())
}

/// Returns the rows of the suite "guard".
pub fn guard(plan: &Plan) -> Vec<Row> {
    let guarded = CASES.iter().filter(|case| case.guarded);
    guarded.filter_map(|case| row(plan, case)).collect()
}

/// Measures a case in the calling process, which is the process of a trial.
pub fn trial(name: &str, setting: &Setting) -> Result<Vec<f64>, Failure> {
    let case = CASES.iter().find(|case| case.name == name);
    let case = case.ok_or_else(|| Failure::new(format!("everyday has no row {name:?}")))?;
    (case.measure)(setting).map(|figure| vec![figure])
}

/// Measures a row. Returns None, with a line on standard error, if neither side can be measured.
fn row(plan: &Plan, case: &Case) -> Option<Row> {
    let name = case.name;
    let (mut umsg, mut kernel) = (Side::new(), Side::new());
    let (budget, rounds) = case.extent(plan);
    for round in 0..rounds {
        plan.progress_of(&format!("{SUITE}: {name}"), round, rounds);
        let measure = |system| trial::run(plan, system, Suite::Everyday, name, budget);
        umsg.round(|| measure(case.system));
        kernel.round(|| measure(System::Kernel));
    }
    if let (Some(failure), Some(_)) = (&umsg.failure, &kernel.failure) {
        eprintln!("umsg-bench: {SUITE}: left out {name}: {failure}");
        return None;
    }
    let figure = |figures: &Vec<f64>| figures.first().copied().unwrap_or(f64::NAN);
    let (ours, theirs) = (umsg.each(figure), kernel.each(figure));
    let row = Row::compare(SUITE, name, case.unit, case.better, &ours, &theirs)
        .spreads(&ours, &theirs)
        .reason("umsg", umsg.failure.as_ref())
        .reason("kernel", kernel.failure.as_ref());
    Some(match case.goal {
        Some(goal) => row.goal_ratio(goal),
        None => row,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_rows_are_distinct() {
        for (at, case) in CASES.iter().enumerate() {
            let before = &CASES[..at];
            assert!(before.iter().all(|other| other.name != case.name));
        }
    }
}
