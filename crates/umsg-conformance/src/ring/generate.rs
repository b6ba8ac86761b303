//! Random operations.

use super::{Completion, ENTRIES, Operation};
use crate::compare::Random;

/// The largest number of messages that a post contains. The number exceeds a receiver's room, so that posts overflow.
const LONGEST: u64 = 3 * ENTRIES as u64;

/// The flag IORING_CQE_F_32 of linux/io_uring.h, which histories never use. If a sender's flags contain this bit, Linux 6.18 takes it for its own
/// flag, and adds completions that no process posted. umsg has no such collision.
const TAKEN_FOR_CONTROL: u32 = 1 << 15;

/// Returns `count` operations. The same seed gives the same operations.
pub fn operations(seed: u64, count: usize) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let first = Operation::Make { disabled: false };
    let others = (1..count).map(|_| operation(&mut random));
    std::iter::once(first).chain(others).collect()
}

fn operation(random: &mut Random) -> Operation {
    match random.below(1000) {
        0..380 => Operation::Post(vec![message(random)]),
        380..500 => {
            let count = 1 + random.below(LONGEST);
            Operation::Post((0..count).map(|_| message(random)).collect())
        }
        500..800 => Operation::Take(random.below(LONGEST) as usize),
        800..860 => Operation::Wait(1 + random.below(ENTRIES as u64) as usize),
        860..870 => {
            let count = 1 + random.below(ENTRIES as u64);
            Operation::Meet((0..count).map(|_| message(random)).collect())
        }
        870..950 => Operation::Enable,
        950..970 => Operation::Close,
        _ => Operation::Make {
            disabled: random.percent(40),
        },
    }
}

fn message(random: &mut Random) -> Completion {
    let any = random.number() as u32 & !TAKEN_FOR_CONTROL;
    Completion {
        user_data: random.number(),
        res: random.number() as i32,
        flags: random.weighted(&[(1, 0), (1, 1), (3, any)]),
    }
}
