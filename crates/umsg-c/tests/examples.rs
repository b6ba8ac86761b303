//! The programs of examples/c and the program in the README are built as their comments and the README say, and print the expected output.

mod support;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use support::{Compile, is_installed, namespace, prefix, skip, succeed, workshop};

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

/// Returns the directory of the examples, built by make; None if a tool for the build is missing.
fn examples() -> Option<&'static Path> {
    static EXAMPLES: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = EXAMPLES.get_or_init(|| {
        if !is_installed("make") || !is_installed("pkg-config") {
            skip("make or pkg-config");
            return None;
        }
        let out = workshop().join("examples");
        let _ = fs::remove_dir_all(&out);
        let mut make = Command::new("make");
        make.arg("-C")
            .arg(checkout().join("examples/c"))
            .arg(format!("OUT={}", out.display()))
            .arg("CFLAGS=-std=c11 -Wall -Wextra -Werror -pedantic -O2")
            .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
        succeed(&mut make);
        Some(out)
    });
    built.as_deref()
}

/// Runs a program with a text on its standard input.
fn run_with_input(command: &mut Command, input: &str) {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_a_producer_sends_a_consumer_prints_the_urgent_first() {
    let Some(examples) = examples() else { return };
    let namespace = namespace();
    let mut producer = namespace.command(examples.join("producer"));
    run_with_input(producer.arg("/jobs"), "one\n!three\ntwo\n");
    let mut consumer = namespace.command(examples.join("consumer"));
    assert_eq!(
        succeed(consumer.arg("/jobs")),
        "10 !three\n 0 one\n 0 two\n"
    );
}

#[test]
fn frames_arrive_without_being_copied() {
    let Some(examples) = examples() else { return };
    let namespace = namespace();
    let mut frames = namespace.command(examples.join("frames"));
    assert_eq!(succeed(frames.args(["/frames", "20"])), "20 of 20 frames\n");
    assert_eq!(namespace.queues(), [""; 0], "left behind");
}

#[test]
fn records_arrive_in_batches_and_in_order() {
    let Some(examples) = examples() else { return };
    let namespace = namespace();
    let mut records = namespace.command(examples.join("records"));
    let said = succeed(records.args(["/records", "10001"]));
    assert_eq!(said, "10001 of 10001 records in order\n");
    assert_eq!(namespace.queues(), [""; 0], "left behind");
}

#[test]
fn children_post_their_results_to_their_parents_ring() {
    let Some(examples) = examples() else { return };
    let namespace = namespace();
    let mut squares = namespace.command(examples.join("squares"));
    assert_eq!(
        succeed(squares.arg("100")),
        "the squares from 1 to 100 add up to 338350\n"
    );
}

#[test]
fn an_example_says_what_is_wrong() {
    let Some(examples) = examples() else { return };
    let namespace = namespace();
    let output = support::finish(namespace.command(examples.join("consumer")).arg("/none"));
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.starts_with("consumer: /none: no queue has this name in /dev/shm/"),
        "{said}"
    );
}

#[test]
fn the_program_in_the_readme_works() {
    let readme = fs::read_to_string(checkout().join("README.md")).unwrap();
    let (_, program) = readme.split_once("```c\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    let source = workshop().join("readme.c");
    fs::write(&source, program).unwrap();
    let program = Compile::new(&source, workshop().join("readme")).strict();
    let program = program.args(support::linking()).run();
    let namespace = namespace();
    let said = succeed(&mut namespace.command(program));
    assert_eq!(said, "an urgent one, priority 9\n");
}
