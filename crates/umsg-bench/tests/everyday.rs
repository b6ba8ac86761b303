//! Everyday operations, in one short round.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umsg-bench"));
    command.args(arguments).env_remove("LD_PRELOAD");
    command.output().unwrap()
}

#[test]
fn each_row_has_a_figure_of_the_kernel_and_of_the_drop_in() {
    let dropin = umsg_testkit::artefacts::drop_in().to_str().unwrap();
    let output = bench(&[
        "everyday", "--quick", "--rounds", "1", "--json", "--dropin", dropin,
    ]);
    assert!(output.status.success(), "{output:?}");
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = figures["rows"].as_array().unwrap();
    assert!(rows.len() >= 24, "{output:?}");
    let command = std::path::Path::new(env!("CARGO_BIN_EXE_umsg-bench")).with_file_name("umsg");
    for row in rows {
        // The supervisor is a process of the command `umsg`, which may not be built.
        if row["row"].as_str().unwrap().ends_with("static or raw") && !command.exists() {
            continue;
        }
        let both = ["umsg", "kernel"].map(|side| row[side].as_f64().unwrap_or(0.0));
        assert!(both.iter().all(|&time| time > 0.0), "{row}");
    }
}

#[test]
fn a_pattern_has_its_rows_measured_alone() {
    let dropin = umsg_testkit::artefacts::drop_in().to_str().unwrap();
    let only = |pattern| {
        bench(&[
            "everyday", "--only", pattern, "--quick", "--rounds", "1", "--json", "--dropin", dropin,
        ])
    };
    let output = only("MQ_GETATTR");
    assert!(output.status.success(), "{output:?}");
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = figures["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{output:?}");
    assert_eq!(rows[0]["row"], "mq_getattr");
    let none = only("semaphore");
    let text = String::from_utf8_lossy(&none.stderr);
    assert!(text.contains("no row has \"semaphore\" in its name"));
    assert!(!none.status.success());
}

#[test]
fn a_suite_that_measures_its_rows_together_has_no_single_rows() {
    let output = bench(&["depth", "--only", "random"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--only: depth has no rows"), "{output:?}");
    assert!(!output.status.success());
}

#[test]
fn a_trial_of_the_drop_in_fails_where_the_calls_reach_the_kernel() {
    let output = bench(&["trial", "dropin", "everyday", "mq_getattr", "1000", "0"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("the drop-in has no effect"), "{output:?}");
    assert!(!output.status.success());
}
