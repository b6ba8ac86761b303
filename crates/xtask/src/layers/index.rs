//! The tables of ARCHITECTURE.md name each source file of the crates, and no file that does not exist.
//!
//! A row names a file by its path in the `src` directory of a crate, such as `lock/mod.rs`, or by a folder and a file in it, such as
//! "in `lock/`: `mod.rs`". The crates are those that the row names, and the two that most rows are about. Other paths begin at the root of the
//! checkout. Files of tests may be missing in the tables, and also the files that mostly declare modules: `mod.rs`, `lib.rs` and `main.rs`.
//!
//! Each function, type or constant that a row names occurs in one of the row's files. Such a name contains an underscore or a capital letter, which
//! tells it from a word of a command line.

use std::collections::BTreeSet;

/// The crates of rows that name no crate.
const USUAL: [&str; 2] = ["umsg-shm", "umsg"];

/// The crates of a row that describes the way of a call, with a column for each layer.
const LAYERS: [&str; 2] = ["umsg-preload", "umsg-c"];

/// The number of columns of such a row.
const COLUMNS: usize = 7;

/// Returns the problems, one line each. `files` are the paths of all Rust and Python files of the checkout, and `read` returns the text of one.
pub fn problems<E>(
    page: &str,
    files: &[String],
    read: impl Fn(&str) -> Result<String, E>,
) -> Result<Vec<String>, E> {
    let files: BTreeSet<&str> = files.iter().map(String::as_str).collect();
    let mut named = BTreeSet::new();
    let mut stale = Vec::new();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let row = Row::of(line);
        let mut texts = Vec::new();
        for name in &row.names {
            let paths = row.paths(name).filter(|path| files.contains(path.as_str()));
            let found: Vec<String> = paths.collect();
            if found.is_empty() {
                stale.push(format!(
                    "{name}: ARCHITECTURE.md names this file, but there is no such file: {line}"
                ));
            }
            for path in &found {
                texts.push(read(path)?);
            }
            named.extend(found);
        }
        let occurs = |part: &str| {
            texts
                .iter()
                .any(|text| words(text).any(|word| word == part))
        };
        if !texts.is_empty() {
            let missing = row
                .items
                .iter()
                .filter(|item| !item.split("::").all(occurs));
            stale.extend(missing.map(|item| {
                format!("{item}: no file of this row of ARCHITECTURE.md contains the name: {line}")
            }));
        }
    }
    let missing = files
        .iter()
        .filter(|file| needs_a_name(file) && !named.contains(**file))
        .map(|file| format!("{file}: no table of ARCHITECTURE.md names this file"));
    Ok(missing.chain(stale).collect())
}

/// Returns the words of a text: names of items, keywords, numbers.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The words in backticks of a row.
struct Row<'a> {
    /// Names of source files.
    names: Vec<&'a str>,
    /// Names of functions, types and constants.
    items: Vec<&'a str>,
    /// The directories that a name may continue: those of the crates, and folders that the row names.
    roots: Vec<String>,
    folders: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn of(line: &'a str) -> Self {
        let words: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let has_no_space = |word: &&str| !word.contains(' ');
        let is_name = |word: &&str| word.ends_with(".rs") || word.ends_with(".py");
        let is_item = |word: &&str| {
            word.starts_with(|c: char| c.is_ascii_alphabetic())
                && word
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
                && word.contains(|c: char| c == '_' || c.is_ascii_uppercase())
        };
        let names = words.iter().copied().filter(has_no_space).filter(is_name);
        let items = words.iter().copied().filter(is_item);
        let folders = words.iter().copied().filter(has_no_space);
        let layers = match line.trim_matches('|').split(" | ").count() {
            COLUMNS => &LAYERS[..],
            _ => &[],
        };
        let crates = USUAL.iter().chain(layers).chain(&words);
        let roots = crates.map(|name| format!("crates/{name}/src/"));
        Self {
            names: names.collect(),
            items: items.collect(),
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
