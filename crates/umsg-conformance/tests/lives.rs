//! Processes that fork, run other programs, pass descriptors on and end, on the kernel and under the drop-in in lockstep.
//!
//! `UMSG_COMPARE_OPS` sets the number of operations, `UMSG_COMPARE_SEED` the seed of the random numbers.

use std::path::Path;

use umsg_conformance::library;
use umsg_conformance::lives::{self, Config, Gap, Queues, Summary};
use umsg_conformance::sys;

fn number(variable: &str, otherwise: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[track_caller]
fn expect_no_difference(queues: Queues, operations: u64) -> Option<Summary> {
    if !sys::is_root() {
        eprintln!("skipped: only root has an IPC namespace of its own");
        assert!(std::env::var_os("CI").is_none(), "CI runs as root");
        return None;
    }
    let summary = lives::run(&Config {
        program: Path::new(env!("CARGO_BIN_EXE_compare")),
        queues,
        operations: number("UMSG_COMPARE_OPS", operations),
        budget: None,
        seed: number("UMSG_COMPARE_SEED", 1),
        progress: None,
    });
    Some(summary.unwrap_or_else(|failure| panic!("{failure}")))
}

#[test]
fn processes_that_live_do_not_differ_from_the_kernel() {
    let library = library::path().unwrap_or_else(|why| panic!("{why}"));
    expect_no_difference(Queues::Dropin(library.to_path_buf()), 3_000);
}

#[test]
fn the_kernel_does_not_differ_from_itself_and_histories_reach_every_life() {
    let Some(summary) = expect_no_difference(Queues::Kernel, 6_000) else {
        return;
    };
    let expected = [
        ("exec", "ok"),
        ("exit", "ok"),
        ("SIGKILL", "ok"),
        ("signal", "blocked"),
        ("sendmsg", "ok"),
        ("recvmsg", "ok"),
        ("dup2", "ok"),
        ("mq_unlink", "ok"),
        ("mq_send", "blocks"),
        ("mq_receive", "blocks"),
        ("mq_receive", "ok"),
        ("poll", "blocks"),
        ("epoll_wait", "blocks"),
        ("epoll_wait", "ok"),
        ("EPOLL_CTL_ADD", "ok"),
        ("mq_notify", "ok"),
        ("mq_notify", "EBUSY"),
        ("msgrcv", "blocks"),
        ("msgrcv", "ok"),
        ("IPC_RMID", "ok"),
    ];
    let is_missing = |&&(call, answer): &&(&'static str, &str)| {
        !summary.seen.contains_key(&(call, answer.to_string()))
    };
    let missing: Vec<_> = expected.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
    assert!(summary.masked.is_empty(), "{summary}");
}

#[test]
fn every_gap_that_is_masked_is_a_row_of_the_known_gaps() {
    let protocols = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocols.md");
    let text = std::fs::read_to_string(protocols).unwrap();
    for gap in Gap::ALL {
        let row = format!("| {} |", gap.row());
        assert!(text.contains(&row), "docs/protocols.md, section 11: {row}");
    }
}
