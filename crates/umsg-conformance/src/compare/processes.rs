//! The processes of a history: how they begin, end and are disturbed. None of this depends on the family of calls.

use super::operation::{Operation, Step, WORKERS};
use super::random::Random;
use crate::sys::User;

const USERS: [User; 4] = [
    User::NOBODY,
    User::SOMEBODY,
    User::OF_ROOTS_GROUP,
    User::WITH_ROOTS_GROUP,
];

/// Returns the user that a child becomes, now and then, if a history can have processes of several users.
fn user(random: &mut Random, users: bool) -> Option<User> {
    (users && random.percent(40)).then(|| random.pick(&USERS))
}

/// Returns the processes to begin with.
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

/// Returns an event in the life of a process.
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
