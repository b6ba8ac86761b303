//! The common part of the tests of the comparison.
//!
//! `UMSG_COMPARE_OPS` sets the number of operations, `UMSG_COMPARE_SEED` the seed of the random numbers.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use umsg_conformance::backend::Kind;
use umsg_conformance::compare::{self, Comparable, Config, Failure, Summary};
use umsg_conformance::library;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// At most one comparison runs at a time, because the kernel's memory limit for a user's queues does not suffice for several.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn run<F: Comparable>(backend: Kind<F>, operations: u64, seed: u64) -> Result<Summary, Failure> {
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

/// Makes the tests of a family of calls. Each test compares the kernel's queues with umsg's queues: in the library, the C library, the drop-in, or
/// preloaded processes. The last test compares the kernel with itself.
macro_rules! comparisons {
    ($family:ty, $native:ident, $c:ident, $dropin:ident, $preloaded:ident, $kernel:ident,) => {
        #[test]
        fn $native() {
            comparing::compare::<$family>(Kind::Native);
        }

        #[test]
        fn $c() {
            let library = umsg_conformance::library::c_path().unwrap_or_else(|why| panic!("{why}"));
            comparing::compare::<$family>(Kind::C(library.to_path_buf()));
        }

        #[test]
        fn $dropin() {
            comparing::compare::<$family>(Kind::Dropin(comparing::dropin()));
        }

        #[test]
        fn $preloaded() {
            comparing::compare::<$family>(Kind::Preloaded(comparing::dropin()));
        }

        #[test]
        fn $kernel() {
            comparing::compare::<$family>(Kind::Kernel);
        }
    };
}

/// Compares umsg with the kernel. `UMSG_COMPARE_OPS` sets the number of operations.
#[track_caller]
pub fn compare<F: Comparable>(backend: Kind<F>) {
    expect_no_difference(backend, number("UMSG_COMPARE_OPS", 8_000));
}

/// Returns the path of the drop-in.
pub fn dropin() -> PathBuf {
    let library = library::path().unwrap_or_else(|why| panic!("{why}"));
    library.to_path_buf()
}

/// Compares umsg with the kernel, and fails if there is a difference.
#[track_caller]
pub fn expect_no_difference<F: Comparable>(backend: Kind<F>, operations: u64) -> Summary {
    let seed = number("UMSG_COMPARE_SEED", 1);
    let summary = run(backend, operations, seed);
    summary.unwrap_or_else(|failure| panic!("{failure}"))
}

/// Fails unless each of these calls had the given answer at least once.
#[track_caller]
pub fn expect_seen(summary: &Summary, expected: &[(&'static str, &str)]) {
    let missing: Vec<_> = expected
        .iter()
        .filter(|&&(call, answer)| !summary.seen.contains_key(&(call, answer.to_string())))
        .collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

/// Fails unless the comparison finds the mistake and shows it by a short history.
#[track_caller]
pub fn expect_found<F: Comparable>(flaw: F::Flaw) {
    match run(Kind::<F>::Flawed(flaw.clone()), 50_000, 1) {
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
