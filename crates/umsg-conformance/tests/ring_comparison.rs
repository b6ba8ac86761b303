//! Runs random operations on a pair of io_uring's rings and on a pair of umsg's rings, and proves that the comparison finds mistakes.

use umsg_conformance::ring::{Flaw, Operation, Ours, Uring, compare, operations, unavailable};

/// The number of operations that are compared for each seed.
const OPERATIONS: usize = 3_000;
const SEEDS: u64 = 3;

/// Returns whether io_uring is available for the comparison. Prints the reason if io_uring is unavailable.
fn has_io_uring() -> bool {
    let why = unavailable();
    if let Some(why) = &why {
        eprintln!("not compared: {why}");
    }
    why.is_none()
}

#[test]
fn rings_do_not_differ_from_those_of_io_uring() {
    if !has_io_uring() {
        return;
    }
    for seed in 0..SEEDS {
        let all = operations(seed, OPERATIONS);
        let found = compare(&all, &mut Uring::default(), &mut Ours::default());
        match found {
            Ok(count) => assert_eq!(count, OPERATIONS),
            Err(found) => panic!("seed {seed}: {found:?}"),
        }
    }
}

#[test]
fn the_comparison_finds_every_mistake() {
    if !has_io_uring() {
        return;
    }
    let flaws = [
        Flaw::OverflowIsLost,
        Flaw::Disorder,
        Flaw::FlagBit,
        Flaw::TooEarly,
        Flaw::OtherError,
        Flaw::WokenEarly,
    ];
    for flaw in flaws {
        let all = operations(1, OPERATIONS);
        let found = compare(&all, &mut Uring::default(), &mut Ours::flawed(flaw));
        assert!(found.is_err(), "{flaw:?} was not found");
    }
}

#[test]
fn the_operations_reach_what_there_is_to_reach() {
    let all = operations(0, OPERATIONS);
    let long =
        |operation: &Operation| matches!(operation, Operation::Post(posts) if posts.len() > 8);
    let meets = |operation: &Operation| matches!(operation, Operation::Meet(_));
    assert!(all.iter().any(long));
    assert!(all.iter().any(meets));
    assert!(all.contains(&Operation::Make { disabled: true }));
    assert!(all.contains(&Operation::Close));
}
