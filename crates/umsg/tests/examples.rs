//! The examples run, and check themselves. A whole `cargo test` builds them along; for `--test examples` alone,
//! `cargo build --examples` has to come first.

use std::process::Command;

fn run(example: &str) {
    // Beside the directory of the tests.
    let tests = std::env::current_exe().unwrap();
    let path = tests
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples")
        .join(example);
    let output = Command::new(&path)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    eprintln!("{text}");
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_killed_worker_loses_no_job() {
    run("work_queue");
}

#[test]
fn a_logger_never_waits_and_counts_what_it_drops() {
    run("logger");
}

#[test]
fn images_go_through_three_processes_in_place() {
    run("image_pipeline");
}

#[test]
fn connections_are_handed_to_workers_and_answered() {
    run("ring_http");
}

#[test]
fn a_pool_of_threads_is_fed_by_rings() {
    run("ring_pool");
}

#[test]
fn a_ring_and_an_io_uring_are_waited_for_together() {
    run("ring_and_io_uring");
}
