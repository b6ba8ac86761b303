//! The tables of ARCHITECTURE.md name each source file of the crates, and no file that does not exist.
//!
//! A row names a file by its path in the `src` directory of a crate, such as `lock/mod.rs`, or by a folder and a file in it, such as
//! "in `lock/`: `mod.rs`". The crates are those that the row names, and the two that most rows are about. Other paths begin at the root of the
//! checkout. Files of tests may be missing in the tables, and also the files that mostly declare modules: `mod.rs`, `lib.rs` and `main.rs`.

use std::collections::BTreeSet;

/// The crates of rows that name no crate.
const USUAL: [&str; 2] = ["umsg-shm", "umsg"];

/// The crates of a row that describes the way of a call, with a column for each layer.
const LAYERS: [&str; 2] = ["umsg-preload", "umsg-c"];

/// The number of columns of such a row.
const COLUMNS: usize = 7;

/// Returns the problems, one line each. `files` are the paths of all Rust and Python files of the checkout.
pub fn problems(page: &str, files: &[String]) -> Vec<String> {
    let files: BTreeSet<&str> = files.iter().map(String::as_str).collect();
    let mut named = BTreeSet::new();
    let mut stale = Vec::new();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let row = Row::of(line);
        for name in &row.names {
            let found = row.paths(name).filter(|path| files.contains(path.as_str()));
            let found: Vec<String> = found.collect();
            if found.is_empty() {
                stale.push(format!(
                    "{name}: ARCHITECTURE.md names this file, but there is no such file: {line}"
                ));
            }
            named.extend(found);
        }
    }
    let missing = files
        .iter()
        .filter(|file| needs_a_name(file) && !named.contains(**file))
        .map(|file| format!("{file}: no table of ARCHITECTURE.md names this file"));
    missing.chain(stale).collect()
}

/// The words in backticks of a row.
struct Row<'a> {
    /// Names of source files.
    names: Vec<&'a str>,
    /// The directories that a name may continue: those of the crates, and folders that the row names.
    roots: Vec<String>,
    folders: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn of(line: &'a str) -> Self {
        let words: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let has_no_space = |word: &&str| !word.contains(' ');
        let is_name = |word: &&str| word.ends_with(".rs") || word.ends_with(".py");
        let names = words.iter().copied().filter(has_no_space).filter(is_name);
        let folders = words.iter().copied().filter(has_no_space);
        let layers = match line.trim_matches('|').split(" | ").count() {
            COLUMNS => &LAYERS[..],
            _ => &[],
        };
        let crates = USUAL.iter().chain(layers).chain(&words);
        let roots = crates.map(|name| format!("crates/{name}/src/"));
        Self {
            names: names.collect(),
            roots: std::iter::once(String::new()).chain(roots).collect(),
            folders: folders.filter(|word| word.ends_with('/')).collect(),
        }
    }

    /// Returns the paths that a name may stand for.
    fn paths(&self, name: &str) -> impl Iterator<Item = String> {
        let folders = std::iter::once("").chain(self.folders.iter().copied());
        folders.flat_map(move |folder| {
            let end = format!("{folder}{name}");
            self.roots.iter().map(move |root| format!("{root}{end}"))
        })
    }
}

fn needs_a_name(file: &str) -> bool {
    let source = file
        .strip_prefix("crates/")
        .and_then(|rest| rest.split_once("/src/"));
    let Some((_, source)) = source else {
        return false;
    };
    let is_of_tests = |part: &str| matches!(part, "tests" | "tests.rs" | "testing.rs");
    let declares_modules = |name: &str| matches!(name, "mod.rs" | "lib.rs" | "main.rs");
    !source
        .split('/')
        .any(|part| is_of_tests(part) || declares_modules(part))
}
