//! Runs each fuzz target for a second. This shows that the targets still build, and that their checks still hold. `cargo xtask fuzz` runs them with a
//! fuzzer.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(dead_code, reason = "the fuzzers use all of it")]
mod targets;

use targets::{Home, attach, namespace, posix, ring, snapshot, sysv};
use umsg::signals::catch_truncation;

/// The length of the longest input, in bytes.
const LONGEST: u64 = 400;

/// A small generator of pseudo-random numbers (xorshift64*).
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

/// Runs a target on pseudo-random inputs that all differ.
fn feed(inputs: u32, target: impl Fn(&Home, &[u8])) {
    catch_truncation().unwrap();
    let (home, mut state) = (Home::new(), 0x9e37_79b9_7f4a_7c15);
    for _ in 0..inputs {
        let len = next(&mut state) % LONGEST;
        let input: Vec<u8> = (0..len).map(|_| next(&mut state) as u8).collect();
        target(&home, &input);
    }
}

macro_rules! feed {
    ($($test:ident => $inputs:literal, $target:expr;)*) => {
        $(#[test]
        fn $test() {
            feed($inputs, $target);
        })*
    };
}

feed! {
    altered_files_are_opened_or_refused => 600, attach::run;
    altered_records_are_read_or_refused => 600, namespace::run;
    altered_snapshots_are_read_or_refused => 600, snapshot::run;
    calls_on_a_forged_posix_queue_return => 300, posix::run;
    calls_on_a_forged_system_v_queue_return => 300, sysv::run;
    calls_on_a_forged_ring_return => 300, ring::run;
}
