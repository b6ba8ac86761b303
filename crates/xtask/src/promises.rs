//! Checks that each test that a document names exists.
//!
//! `docs/guarantees.md` and `docs/compatibility.md` name a test for each promise. `docs/protocols.md` names tests in the paragraphs that begin with
//! **T** or **M**. A test is named as *file*`::`*test*, where the file is in one of the directories `PLACES`. If that directory belongs to a
//! test program, the program's name may stand in place of the file's.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::workspace::Workspace;

/// The directories of tests, below the workspace.
const PLACES: [&str; 28] = [
    "crates/umsg/tests",
    "crates/umsg/tests/bad_input",
    "crates/umsg/tests/consent",
    "crates/umsg/tests/diagnosis",
    "crates/umsg/tests/last_close",
    "crates/umsg/tests/sandbox",
    "crates/umsg/tests/salvage",
    "crates/umsg/tests/soak",
    "crates/umsg/tests/hostile",
    "crates/umsg/tests/signals",
    "crates/umsg/tests/sysv_delivery",
    "crates/umsg/src/ring",
    "crates/umsg-shm/src/model/tests",
    "crates/umsg-shm/src/posix_engine",
    "crates/umsg-shm/src/sysv_engine",
    "crates/umsg-shm/src/threads/engines",
    "crates/umsg-bridge/tests",
    "crates/umsg-bridge/tests/carry",
    "crates/umsg-c/tests",
    "crates/umsg-preload/tests",
    "crates/umsg-cli/tests",
    "crates/umsg-cli/tests/run",
    "crates/umsg-cli/tests/supervised",
    "crates/umsg-cli/tests/sysv",
    "crates/umsg-cli/tests/top",
    "crates/umsg-conformance/tests",
    "crates/umsg-conformance/src/cases",
    "crates/umsg-conformance/src/sysv/cases",
];

/// Returns the texts of all files of tests, by the files' names without extension. A file in the folder of a test program is also found by the
/// program's name.
fn tests_by_file(root: &Path) -> HashMap<String, String> {
    let mut texts = HashMap::<String, String>::new();
    for place in PLACES {
        for entry in root.join(place).read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                let text = fs::read_to_string(&path).unwrap();
                if let Some((_, program)) = place.split_once("/tests/") {
                    *texts.entry(program.to_owned()).or_default() += &text;
                }
                *texts.entry(name).or_default() += &text;
            }
        }
    }
    texts
}

/// Returns the names *file*`::`*test* that stand between backticks in a text.
fn named(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|code| code.split_once("::"))
        .filter(move |(file, test)| is_name(file) && is_name(test))
}

/// Returns whether there is a test of this name that is run: a function, or a line in a list from which a macro makes test functions.
fn has(text: &str, test: &str) -> bool {
    let is_listed = |line: &str| line.trim().trim_end_matches(',') == test;
    text.lines().any(is_listed) || has_function(text, test)
}

/// Returns whether a text has a function of this name that is not ignored. `#[test]` is not required, because cases of the conformance tests have no
/// attribute.
fn has_function(text: &str, test: &str) -> bool {
    let function = format!("fn {test}(");
    let mut found = text.match_indices(&function);
    found.any(|(at, _)| {
        let before = text[..at]
            .rsplit_once('\n')
            .map_or("", |(before, _)| before);
        let attributes = before.lines().rev().map(str::trim_start);
        let mut attributes = attributes.take_while(|line| line.starts_with(['#', '/']));
        !attributes.any(|line| line.starts_with("#[ignore"))
    })
}

/// Returns the tests that some paragraphs of a document name, and that do not exist.
fn missing(document: &str, least: usize, paragraphs: impl Fn(&str) -> bool) -> Vec<String> {
    let root = Workspace::find().unwrap().root;
    let texts = tests_by_file(&root);
    let document = fs::read_to_string(root.join(document)).unwrap();
    let found: Vec<_> = document
        .split("\n\n")
        .filter(|paragraph| paragraphs(paragraph))
        .flat_map(named)
        .collect();
    assert!(found.len() >= least, "{found:?}");
    found
        .into_iter()
        .filter(|(file, test)| !texts.get(*file).is_some_and(|text| has(text, test)))
        .map(|(file, test)| format!("{file}::{test}"))
        .collect()
}

#[test]
fn every_promise_names_tests_that_exist() {
    let promises = |paragraph: &str| paragraph.starts_with('|');
    let missing = missing("docs/guarantees.md", 20, promises);
    assert_eq!(missing, [""; 0]);
}

#[test]
fn every_promise_of_compatibility_names_tests_that_exist() {
    let promises = |paragraph: &str| paragraph.starts_with('|');
    let missing = missing("docs/compatibility.md", 8, promises);
    assert_eq!(missing, [""; 0]);
}

#[test]
fn every_test_that_the_protocols_name_exists() {
    let tests = |paragraph: &str| paragraph.starts_with("**T**") || paragraph.starts_with("**M**");
    let missing = missing("docs/protocols.md", 20, tests);
    assert_eq!(missing, [""; 0]);
}

#[test]
fn names_of_tests_are_distinguished_from_other_code() {
    let text = "`soak::all_goes_well`, `Ring::recv`, `x` and `signals::`";
    assert_eq!(named(text).collect::<Vec<_>>(), [("soak", "all_goes_well")]);
    let has = |text| has(text, "all_goes_well");
    assert!(has("fn all_goes_well() {"));
    assert!(has(
        "    #[cfg_attr(miri, ignore)]\n    #[test]\n    fn all_goes_well() {"
    ));
    assert!(!has("fn not_all_goes_well() {"));
    assert!(has("cases! {\n    all_goes_well,\n}"));
    assert!(!has("// all_goes_well,\n"));
    assert!(!has("#[test]\n#[ignore = \"slow\"]\nfn all_goes_well() {"));
}
