//! Random operations on the kernel and on umsg in lockstep; and the proof that a mistake would be found.
//!
//! `UMSG_COMPARE_OPS` sets the number of operations, `UMSG_COMPARE_SEED` where chance begins.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use umsg_conformance::backend::{Flaw, Kind};
use umsg_conformance::compare::{self, Config, Failure, Summary};
use umsg_conformance::library;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// The kernel's memory for queues is enough for one comparison, not for as many as there are processors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn run(backend: Kind, operations: u64, seed: u64) -> Result<Summary, Failure> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let program = Some(Path::new(env!("CARGO_BIN_EXE_compare")));
    compare::run(&Config {
        operations,
        seed,
        backend,
        program,
        progress: None,
    })
}

#[track_caller]
fn expect_no_difference(backend: Kind, operations: u64) -> Summary {
    let seed = number("UMSG_COMPARE_SEED", 1);
    let summary = run(backend, operations, seed);
    summary.unwrap_or_else(|failure| panic!("{failure}"))
}

fn operations() -> u64 {
    number("UMSG_COMPARE_OPS", 20_000)
}

#[test]
fn the_native_api_does_not_differ_from_the_kernel() {
    expect_no_difference(Kind::Native, operations());
}

#[test]
fn the_c_library_does_not_differ_from_the_kernel() {
    let library = library::c_path().unwrap_or_else(|why| panic!("{why}"));
    expect_no_difference(Kind::C(library.to_path_buf()), operations());
}

#[test]
fn the_drop_in_does_not_differ_from_the_kernel() {
    let library = library::path().unwrap_or_else(|why| panic!("{why}"));
    expect_no_difference(Kind::Dropin(library.to_path_buf()), operations());
}

#[test]
fn preloaded_processes_do_not_differ_from_the_kernel() {
    let library = library::path().unwrap_or_else(|why| panic!("{why}"));
    expect_no_difference(Kind::Preloaded(library.to_path_buf()), operations());
}

#[test]
fn the_kernel_does_not_differ_from_itself() {
    expect_no_difference(Kind::Kernel, operations());
}

#[test]
fn the_operations_reach_what_there_is_to_reach() {
    let summary = expect_no_difference(Kind::Kernel, 20_000);
    let missing: Vec<_> = [
        ("mq_open", "ok"),
        ("mq_open", "ENOENT"),
        ("mq_open", "EEXIST"),
        ("mq_open", "EINVAL"),
        ("mq_open", "ENAMETOOLONG"),
        ("mq_unlink", "ok"),
        ("mq_unlink", "ENOENT"),
        ("mq_close", "ok"),
        ("mq_close", "EBADF"),
        ("mq_send", "ok"),
        ("mq_send", "blocks"),
        ("mq_send", "EAGAIN"),
        ("mq_send", "EBADF"),
        ("mq_send", "EINTR"),
        ("mq_send", "EINVAL"),
        ("mq_send", "EMSGSIZE"),
        ("mq_timedsend", "ETIMEDOUT"),
        ("mq_timedsend", "blocks"),
        ("mq_receive", "ok"),
        ("mq_receive", "blocks"),
        ("mq_receive", "EAGAIN"),
        ("mq_receive", "EBADF"),
        ("mq_receive", "EINTR"),
        ("mq_receive", "EMSGSIZE"),
        ("mq_timedreceive", "ETIMEDOUT"),
        ("mq_timedreceive", "EINVAL"),
        ("mq_timedreceive", "blocks"),
        ("fork", "ok"),
        ("SIGKILL", "blocked"),
        ("signal", "blocked"),
        ("signal with SA_RESTART", "blocked"),
        ("SIGSTOP and SIGCONT", "blocked"),
    ]
    .into_iter()
    .filter(|&(call, answer)| !summary.seen.contains_key(&(call, answer.to_string())))
    .collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

#[test]
fn every_mistake_is_found() {
    for &flaw in Flaw::ALL {
        let backend = Kind::Flawed(flaw);
        match run(backend, 50_000, 1) {
            Err(Failure::Difference(difference)) => {
                let lines = difference.text.lines().count();
                assert!(
                    lines < 40,
                    "{flaw:?}: a history of {lines} lines is not short:\n{difference}"
                );
                println!("{flaw:?}: {difference}");
            }
            Ok(summary) => panic!("{flaw:?} was not found: {summary}"),
            Err(failure) => panic!("{flaw:?}: {failure}"),
        }
    }
}
