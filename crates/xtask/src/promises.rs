//! The tests that the documents name exist.
//!
//! `docs/guarantees.md` names a test for each promise, `docs/protocols.md` in paragraphs that begin with **T** or **M**; as
//! *file*`::`*test*, where the file is one of `crates/*/tests`, of the models, of the modules that are tested by themselves, or of the conformance cases.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::workspace::Workspace;

/// Where tests are, below the workspace.
const PLACES: [&str; 13] = [
    "crates/umsg/tests",
    "crates/umsg/tests/diagnosis",
    "crates/umsg/tests/salvage",
    "crates/umsg/src/model/tests",
    "crates/umsg/src/queue",
    "crates/umsg/src/ring",
    "crates/umsg/src/threads",
    "crates/umsg/src/typed",
    "crates/umsg-preload/tests",
    "crates/umsg-cli/tests",
    "crates/umsg-conformance/tests",
    "crates/umsg-conformance/src/cases",
    "crates/umsg-conformance/src/sysv/cases",
];

/// The texts of all files of tests, by their names without an ending.
fn tests_by_file(root: &Path) -> HashMap<String, String> {
    let mut texts = HashMap::<String, String>::new();
    for place in PLACES {
        for entry in root.join(place).read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                *texts.entry(name).or_default() += &fs::read_to_string(&path).unwrap();
            }
        }
    }
    texts
}

/// The *file*`::`*test* that stand between backticks in a text.
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

fn has(text: &str, test: &str) -> bool {
    text.split(|byte: char| !byte.is_ascii_alphanumeric() && byte != '_')
        .any(|word| word == test)
}

/// The names in some paragraphs of a document that no file of tests has.
fn missing(document: &str, paragraphs: impl Fn(&str) -> bool) -> Vec<String> {
    let root = Workspace::find().unwrap().root;
    let texts = tests_by_file(&root);
    let document = fs::read_to_string(root.join(document)).unwrap();
    let found: Vec<_> = document
        .split("\n\n")
        .filter(|paragraph| paragraphs(paragraph))
        .flat_map(named)
        .collect();
    assert!(found.len() > 20, "{found:?}");
    found
        .into_iter()
        .filter(|(file, test)| !texts.get(*file).is_some_and(|text| has(text, test)))
        .map(|(file, test)| format!("{file}::{test}"))
        .collect()
}

#[test]
fn every_promise_names_tests_that_exist() {
    let promises = |paragraph: &str| paragraph.starts_with('|');
    let missing = missing("docs/guarantees.md", promises);
    assert_eq!(missing, [""; 0]);
}

#[test]
fn every_test_that_the_protocols_name_exists() {
    let tests = |paragraph: &str| paragraph.starts_with("**T**") || paragraph.starts_with("**M**");
    let missing = missing("docs/protocols.md", tests);
    assert_eq!(missing, [""; 0]);
}

#[test]
fn names_of_tests_are_told_from_other_code() {
    let text = "`soak::all_goes_well`, `Ring::recv`, `x` and `signals::`";
    assert_eq!(named(text).collect::<Vec<_>>(), [("soak", "all_goes_well")]);
    assert!(has("fn all_goes_well() {", "all_goes_well"));
    assert!(!has("fn not_all_goes_well() {", "all_goes_well"));
}
