//! Checks the tables of ARCHITECTURE.md: they name each source file of the crates, and no file that does not exist.
//!
//! A row names a file by its path in the `src` directory of a crate, such as `lock/mod.rs`, or by a folder and a file in it, such as "in `lock/`:
//! `mod.rs`". The crates are those that the row names. A row that names no crate is about [`USUAL`], and a row of the table of calls also about the
//! crates of its columns. Other paths begin at the root of the checkout. A folder also stands for the `mod.rs` in it. Files of tests, the roots of
//! crates, and files that only declare modules may be missing in the tables.
//!
//! Each function, type or constant that a row names occurs in the code of one of the row's files. Such a name contains an underscore or a capital
//! letter, which tells it from a word of a command line. Comments do not count.

use std::collections::{BTreeMap, BTreeSet};

/// The crates of rows that name no crate.
const USUAL: [&str; 2] = ["umsg-shm", "umsg"];

/// The beginning of the head of the table of calls, which has a column for each layer.
const CALLS: &str = "| call | ";

/// The crates of the columns of this table.
const LAYERS: [&str; 4] = ["umsg-shm", "umsg", "umsg-preload", "umsg-c"];

/// The source files of the checkout.
pub struct Sources<'a, R> {
    /// The paths of all files.
    pub files: BTreeSet<&'a str>,
    /// Returns the text of a file.
    pub read: R,
}

/// Returns the problems, one line each.
pub fn problems<E>(
    page: &str,
    sources: &Sources<'_, impl Fn(&str) -> Result<String, E>>,
) -> Result<Vec<String>, E> {
    let mut codes = BTreeMap::new();
    for path in &sources.files {
        codes.insert(*path, Code::of(path, &(sources.read)(path)?));
    }
    let crates: BTreeSet<&str> = codes.keys().filter_map(|path| crate_of(path)).collect();
    let mut named = BTreeSet::new();
    let mut problems = Vec::new();
    for (line, row) in rows(page) {
        match row {
            Ok(row) => {
                let (found, wrong) = Row::of(row, &crates).check(&codes);
                named.extend(found);
                let at_line = |problem| format!("ARCHITECTURE.md:{line}: {problem}");
                problems.extend(wrong.into_iter().map(at_line));
            }
            Err(problem) => problems.push(format!("ARCHITECTURE.md:{line}: {problem}")),
        }
    }
    let is_missing = |(path, code): &(&&str, &Code)| code.needs_a_name && !named.contains(**path);
    let missing = codes.iter().filter(is_missing);
    problems.extend(
        missing.map(|(path, _)| format!("{path}: no table of ARCHITECTURE.md names this file")),
    );
    Ok(problems)
}

/// A row, and whether it belongs to the table of calls.
#[derive(Clone, Copy)]
struct Line<'a> {
    text: &'a str,
    is_call: bool,
}

/// Returns the rows of all tables with the numbers of their lines, and an error for a line that can't be a row.
fn rows(page: &str) -> Vec<(usize, Result<Line<'_>, &'static str>)> {
    let mut rows = Vec::new();
    let (mut in_table, mut is_call) = (false, false);
    let mut lines = page.lines().enumerate().peekable();
    while let Some((at, text)) = lines.next() {
        if !text.starts_with('|') {
            in_table = false;
            continue;
        }
        if !in_table {
            in_table = lines
                .next_if(|(_, next)| next.starts_with("|---"))
                .is_some();
            is_call = text.starts_with(CALLS);
            if in_table {
                continue;
            }
        }
        let row = match (in_table, text.matches('`').count() % 2) {
            (false, _) => Err("this row belongs to no table: remove the empty line before it"),
            (true, 1) => Err("a backtick of this row has no partner"),
            (true, _) => Ok(Line { text, is_call }),
        };
        rows.push((at + 1, row));
    }
    rows
}

/// The words in backticks of a row.
struct Row<'a> {
    /// Names of source files.
    names: Vec<&'a str>,
    /// Names of functions, types and constants.
    items: Vec<&'a str>,
    /// The directories that a name may continue: the root of the checkout, and those of the crates.
    roots: Vec<String>,
    /// Folders that the row names, each with a slash at its end.
    folders: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn of(line: Line<'a>, crates: &BTreeSet<&str>) -> Self {
        let words: Vec<&str> = line.text.split('`').skip(1).step_by(2).collect();
        let with = |is_wanted: &dyn Fn(&str) -> bool| {
            let wanted = words.iter().copied().filter(|word| is_wanted(word));
            wanted.collect::<Vec<_>>()
        };
        let is_path = |word: &str| !word.contains(' ');
        let mut named = with(&|word| crates.contains(word));
        if line.is_call {
            named.extend(LAYERS);
        } else if named.is_empty() {
            named.extend(USUAL);
        }
        let roots = named.iter().map(|name| format!("crates/{name}/src/"));
        Self {
            names: with(&|word| is_path(word) && (word.ends_with(".rs") || word.ends_with(".py"))),
            items: with(&is_item),
            roots: std::iter::once(String::new()).chain(roots).collect(),
            folders: with(&|word| is_path(word) && word.ends_with('/')),
        }
    }

    /// Returns the files that the row names, and its problems.
    fn check<'b>(&self, codes: &BTreeMap<&'b str, Code>) -> (Vec<&'b str>, Vec<String>) {
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        for name in &self.names {
            let before = found.len();
            found.extend(self.paths(name).filter_map(|path| {
                let (path, _) = codes.get_key_value(path.as_str())?;
                Some(*path)
            }));
            if found.len() == before {
                problems.push(format!("{name}: there is no such file"));
            }
        }
        for folder in &self.folders {
            found.extend(self.roots.iter().filter_map(|root| {
                let path = format!("{root}{folder}mod.rs");
                Some(*codes.get_key_value(path.as_str())?.0)
            }));
        }
        let occurs = |part: &str| found.iter().any(|path| codes[path].words.contains(part));
        let missing = |item: &&&str| !found.is_empty() && !item.split("::").all(occurs);
        let missing = self.items.iter().filter(missing);
        problems
            .extend(missing.map(|item| format!("{item}: not in the code of a file of this row")));
        (found, problems)
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

/// Returns whether a word is the name of a function, type or constant.
fn is_item(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
        && word.contains(|c: char| c == '_' || c.is_ascii_uppercase())
}

/// Returns the name of the crate to which a source file belongs.
fn crate_of(path: &str) -> Option<&str> {
    let (name, _) = path.strip_prefix("crates/")?.split_once("/src/")?;
    Some(name)
}

/// A source file.
struct Code {
    /// The words outside of comments: names of items, keywords, numbers.
    words: BTreeSet<String>,
    needs_a_name: bool,
}

impl Code {
    fn of(path: &str, text: &str) -> Self {
        let comment = match path.ends_with(".py") {
            true => "#",
            false => "//",
        };
        let lines = text.lines().filter_map(|line| line.split(comment).next());
        let is_end = |c: char| !c.is_alphanumeric() && c != '_';
        let words = lines.clone().flat_map(|line| line.split(is_end));
        let is_of_tests = |part: &str| matches!(part, "tests" | "tests.rs" | "testing.rs");
        let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
        let only_declares = path.ends_with("/mod.rs") && !lines.clone().any(defines);
        Self {
            needs_a_name: crate_of(path).is_some()
                && path.ends_with(".rs")
                && !path.split('/').any(is_of_tests)
                && !is_root
                && !only_declares,
            words: words.map(str::to_owned).collect(),
        }
    }
}

/// Returns whether a line begins an item that is more than a declaration of a module.
fn defines(line: &str) -> bool {
    let item = line.strip_prefix("pub").unwrap_or(line);
    let item = item.strip_prefix("(crate)").unwrap_or(item).trim_start();
    ["fn ", "unsafe fn ", "impl", "struct ", "enum ", "trait "]
        .iter()
        .any(|beginning| item.starts_with(beginning))
        && !line.starts_with(' ')
}
