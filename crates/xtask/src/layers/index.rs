//! The tables of ARCHITECTURE.md name each source file of the crates, and no file that does not exist.
//!
//! A table gives the end of a path, such as `lock/mod.rs` or, beside its folder, `mod.rs`. So a name stands for each file whose path
//! ends with the name. Files of tests, and the files in which only modules are declared (`mod.rs`, `lib.rs`, `main.rs`), may be missing
//! in the tables.

use std::collections::BTreeSet;

/// Returns the problems, one line each. `files` are the paths of all Rust and Python files of the checkout.
pub fn problems(page: &str, files: &[String]) -> Vec<String> {
    let names = names(page);
    let is_named = |file: &String| ends(file).any(|end| names.contains(end));
    let ends: BTreeSet<&str> = files.iter().flat_map(|file| ends(file)).collect();
    let missing = files
        .iter()
        .filter(|file| needs_a_name(file) && !is_named(file))
        .map(|file| format!("{file}: no table of ARCHITECTURE.md names this file"));
    let stale = names
        .iter()
        .filter(|name| !ends.contains(*name))
        .map(|name| format!("{name}: ARCHITECTURE.md names this file, but there is no such file"));
    missing.chain(stale).collect()
}

/// Returns the words in backticks that are names of source files.
fn names(page: &str) -> BTreeSet<&str> {
    let is_name = |word: &&str| {
        (word.ends_with(".rs") || word.ends_with(".py")) && !word.contains([' ', '*', '\n'])
    };
    page.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(is_name)
        .collect()
}

/// Returns the path, and all its ends that begin behind a slash.
fn ends(file: &str) -> impl Iterator<Item = &str> {
    let slashes = file.match_indices('/').map(|(at, _)| &file[at + 1..]);
    std::iter::once(file).chain(slashes)
}

fn needs_a_name(file: &str) -> bool {
    let Some((_, source)) = file
        .strip_prefix("crates/")
        .and_then(|rest| rest.split_once("/src/"))
    else {
        return false;
    };
    let of_tests = source
        .split('/')
        .any(|part| matches!(part, "tests" | "tests.rs" | "testing.rs"));
    let declares_modules = ["mod.rs", "lib.rs", "main.rs"]
        .iter()
        .any(|name| source.rsplit('/').next() == Some(name));
    source.ends_with(".rs") && !of_tests && !declares_modules
}
