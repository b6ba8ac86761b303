//! The steps of a history that start, end or disturb processes. All families of calls use the same steps.

use super::operation::{Operation, Step, WORKERS};
use super::random::Random;
use crate::sys::User;

const USERS: [User; 4] = [
    User::NOBODY,
    User::SOMEBODY,
    User::OF_ROOTS_GROUP,
    User::WITH_ROOTS_GROUP,
];

/// Returns the user that a forked child becomes. In most cases, the result is None, and the child keeps its user.
fn user(random: &mut Random, users: bool) -> Option<User> {
    (users && random.percent(40)).then(|| random.pick(&USERS))
}

/// Returns the steps in which the first worker forks some of the others.
pub fn beginning<C>(random: &mut Random, users: bool) -> Vec<Step<C>> {
    let mut steps = Vec::new();
    for child in 1..WORKERS {
        if random.percent(50) {
            let user = user(random, users);
            steps.push(Step {
                worker: 0,
                operation: Operation::Fork { child, user },
            });
        }
    }
    steps
}

/// Returns an operation that starts, ends, interrupts, stops or changes a worker.
pub fn change<C>(random: &mut Random, users: bool) -> Operation<C> {
    match random.below(20) {
        0..10 => Operation::Fork {
            child: 1 + random.below(WORKERS as u64 - 1) as usize,
            user: user(random, users),
        },
        10 | 11 => Operation::Exit,
        12 => Operation::Kill,
        13 => Operation::Nice {
            nice: random.pick(&[0, 5, 10]),
        },
        14..17 => Operation::Interrupt,
        17 | 18 => Operation::Disturb,
        _ => Operation::StopAndContinue,
    }
}

/// Chooses the worker that acts: the first worker more often than the others.
pub fn actor(random: &mut Random) -> usize {
    random.weighted(&[(5, 0), (2, 1), (2, 2), (2, 3)])
}
