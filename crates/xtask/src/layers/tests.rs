//! The check of floors, with crates of a few lines.

use std::fs;

use super::*;

/// Returns the problems of a crate that has these floors and consists of these files.
fn problems_of(floors: &str, files: &[(&str, &str)]) -> Vec<String> {
    check(floors, files, false)
}

fn check(floors: &str, files: &[(&str, &str)], tests: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let page = format!("# A page\n\n```floors crates/it\n{floors}\n```\n\nMore.\n");
    let floors = Floors::all_of(&page).unwrap().remove(0);
    assert_eq!(floors.folder, "crates/it");
    let (modules, imports) = imports::read(folder.path(), tests).unwrap();
    problems(&floors, &modules, &imports)
}

const TWO: (&str, &str) = ("lib.rs", "mod low;\nmod high;\npub use high::Thing;\n");
const FLOORS: &str = "low\nhigh";

/// Returns the only problem of a crate with the modules `low`, which has this text, and `high`.
fn problem_of_low(text: &str) -> Option<String> {
    let files = [TWO, ("low.rs", text), ("high.rs", "pub struct Thing;")];
    let mut problems = problems_of(FLOORS, &files);
    assert!(problems.len() <= 1, "{problems:?}");
    problems.pop()
}

fn upward(line: usize) -> Option<String> {
    Some(format!(
        "src/low.rs:{line}: low imports high of a higher floor"
    ))
}

#[test]
fn an_import_that_runs_downward_is_no_problem() {
    let files = [
        TWO,
        ("low.rs", "pub struct Base;"),
        ("high.rs", "use crate::low::Base;\npub struct Thing(Base);"),
    ];
    assert!(problems_of(FLOORS, &files).is_empty());
}

#[test]
fn an_upward_import_is_named_with_file_and_line() {
    let text = "use std::fmt;\nuse crate::{low, high::Thing};\n";
    assert_eq!(problem_of_low(text), upward(2));
}

#[test]
fn a_path_in_an_expression_a_type_or_a_pattern_is_an_import() {
    assert_eq!(
        problem_of_low("fn f() {\n    crate::high::g();\n}"),
        upward(2)
    );
    assert_eq!(
        problem_of_low("fn f(_: Option<crate::high::Thing>) {}"),
        upward(1)
    );
    assert_eq!(
        problem_of_low("fn f(x: u8) { match x { crate::high::ONE => {} _ => {} } }"),
        upward(1)
    );
}

#[test]
fn a_path_in_a_macro_is_an_import() {
    assert_eq!(
        problem_of_low("fn f() {\n    println!(\"{}\",\n        crate::high::ONE);\n}"),
        upward(3)
    );
    assert_eq!(
        problem_of_low("macro_rules! m { () => { use $crate::{low, high::Thing}; } }"),
        upward(1)
    );
}

#[test]
fn super_is_followed_out_of_inline_modules() {
    assert_eq!(
        problem_of_low("mod a {\n    use super::super::high;\n}"),
        upward(2)
    );
    assert_eq!(
        problem_of_low("mod high {}\nmod a { use super::high; }"),
        None
    );
}

#[test]
fn a_name_that_the_root_exports_again_counts_as_its_module() {
    assert_eq!(problem_of_low("use crate::Thing;"), upward(1));
}

#[test]
fn files_of_nested_modules_are_read() {
    let files = [
        TWO,
        ("low/mod.rs", "mod a;"),
        ("low/a.rs", "mod b;"),
        ("low/a/b.rs", "use crate::high;"),
        ("high.rs", ""),
    ];
    assert_eq!(
        problems_of(FLOORS, &files),
        ["src/low/a/b.rs:1: low imports high of a higher floor"]
    );
}

#[test]
fn items_of_tests_and_of_loom_are_left_out_unless_asked_for() {
    let text = "#[cfg(test)]\nmod t { use crate::high; }\n#[cfg(all(test, not(loom)))]\nuse crate::high::Thing;\n\
                #[cfg(loom)]\nfn f() { crate::high::g() }\n";
    assert_eq!(problem_of_low(text), None);
    let files = [TWO, ("low.rs", text), ("high.rs", "")];
    assert_eq!(check(FLOORS, &files, true).len(), 3);
}

#[test]
fn items_that_also_exist_outside_of_tests_count() {
    assert_eq!(
        problem_of_low("#[cfg(any(test, feature = \"x\"))]\nuse crate::high;"),
        upward(2)
    );
    assert_eq!(
        problem_of_low("#[cfg(not(loom))]\nuse crate::high;"),
        upward(2)
    );
}

#[test]
fn a_module_without_a_floor_and_a_floor_without_a_module_are_problems() {
    let files = [TWO, ("low.rs", ""), ("high.rs", "")];
    assert_eq!(
        problems_of("low\nhihg", &files),
        [
            "high: no floor names this module",
            "hihg: a floor names this module, but the module does not exist"
        ]
    );
}

#[test]
fn modules_of_one_floor_may_import_others_of_it_but_not_in_a_circle() {
    let root = ("lib.rs", "mod a; mod b; mod c;");
    let line = [
        root,
        ("a.rs", "use crate::b;"),
        ("b.rs", "use crate::c;"),
        ("c.rs", ""),
    ];
    assert!(problems_of("a b c", &line).is_empty());
    let circle = [root, line[1], line[2], ("c.rs", "use crate::a;")];
    assert_eq!(
        problems_of("a b c", &circle),
        ["a, b, c: modules of one floor import each other"]
    );
}

#[test]
fn a_page_that_declares_a_module_twice_or_nothing_is_refused() {
    assert!(Floors::all_of("```floors x\na b\nb\n```\n").is_err());
    assert!(Floors::all_of("```floors x\na a\n```\n").is_err());
    assert!(Floors::all_of("```floors x\na\n").is_err());
    assert!(Floors::all_of("nothing").is_err());
}

/// Returns the problems of the rows of a table.
fn problems_of_rows(rows: &str) -> Vec<String> {
    problems_of_page(&format!("| subject | file |\n|---|---|\n{rows}"))
}

fn problems_of_page(page: &str) -> Vec<String> {
    let files = [
        "crates/umsg/src/lib.rs",
        "crates/umsg/src/room/one.rs",
        "crates/umsg/src/room/two.rs",
        "crates/umsg/src/room/tests.rs",
        "crates/umsg/tests/whole.rs",
        "crates/other/src/two.rs",
    ];
    let read = |path: &str| {
        Ok::<_, ()>(match path.ends_with("lib.rs") {
            true => "mod room;\n".to_owned(),
            false => "// take_all\nfn take_one() {}\nstruct Two;\n".to_owned(),
        })
    };
    let files = files.into_iter().collect();
    index::problems(page, &index::Sources { files, read }).unwrap()
}

/// Rows that name the other files of the checkout.
const REST: &str = "| b | in `room/`: `two.rs` |\n| c | `other`: `two.rs` |\n";

#[test]
fn rows_that_name_each_file_and_its_items_are_no_problem() {
    let row = "| a, with `umsg take` (`take_one`, `Two`) | `room/one.rs` |\n";
    assert!(problems_of_rows(&format!("{row}{REST}")).is_empty());
}

#[test]
fn a_name_that_is_only_in_a_comment_of_the_file_is_a_problem() {
    let row = "| a (`take_all`) | `room/one.rs` |\n";
    assert_eq!(
        problems_of_rows(&format!("{row}{REST}")),
        ["ARCHITECTURE.md:3: take_all: not in the code of a file of this row"]
    );
}

#[test]
fn a_file_that_no_row_names_and_a_name_without_a_file_are_problems() {
    assert_eq!(
        problems_of_rows(
            "| a | in `room/`: `one.rs`; `two.rs` |\n| c | `other`: `room/one.rs` |\n"
        ),
        [
            "ARCHITECTURE.md:4: room/one.rs: there is no such file",
            "crates/other/src/two.rs: no table of ARCHITECTURE.md names this file"
        ]
    );
}

#[test]
fn a_row_without_a_table_and_a_backtick_without_a_partner_are_problems() {
    let page = "| subject | file |\n|---|---|\n| a `b | c |\n\n| d | e |\n";
    let problems = problems_of_page(page);
    assert_eq!(
        problems[..2],
        [
            "ARCHITECTURE.md:3: a backtick of this row has no partner",
            "ARCHITECTURE.md:5: this row belongs to no table: remove the empty line before it"
        ]
    );
}
