//! The README shows the same headline figures as the document of benchmarks.

use std::fs;

use crate::failure::{Context as _, Failure, Result};
use crate::workspace::Workspace;

/// The markers before and after the README's table.
const BEGIN: &str = "<!-- From docs/benchmarks.md, by `cargo xtask bench-publish`. -->\n";
const END: &str = "<!-- End of the table from docs/benchmarks.md. -->\n";

/// Puts the document's first table, and the day and machine above it, into the README.
pub fn renew(workspace: &Workspace, document: &str) -> Result<()> {
    let read = |name: &str| fs::read_to_string(workspace.root.join(name)).context(name);
    let (readme, document) = (read("README.md")?, read(document)?);
    let renewed = renewed(&readme, &document).ok_or_else(|| {
        Failure::new("README.md lacks the markers of the table, or docs/benchmarks.md has no table")
    })?;
    fs::write(workspace.root.join("README.md"), renewed).context("README.md")
}

fn renewed(readme: &str, document: &str) -> Option<String> {
    let (before, rest) = readme.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let table = first_table(document)?;
    let origin = origin(document)?;
    Some(format!(
        "{before}{BEGIN}{table}\n\nMeasured on {origin}.\n{END}{after}"
    ))
}

/// Returns the lines of the table, without the last line's end.
fn first_table(document: &str) -> Option<&str> {
    let from = document.find("\n|")? + 1;
    let len = document[from..].find("\n\n")?;
    Some(&document[from..][..len])
}

/// Returns day, machine, and number of rounds: `2026-01-01: ... umsg 0.1.0. 174 rows, medians of 7 rounds that ...`.
fn origin(document: &str) -> Option<&str> {
    let is_dated = |line: &&str| line.starts_with("20") && line.contains(" rows, medians of ");
    let line = document.lines().find(is_dated)?;
    Some(line.split_once(". ")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# Benchmarks\n\n2026-01-02: a machine, Linux 6.18. 3 rows, medians of 5 rounds.\n\n| | umsg |\n|---|--:|\n| a | 1 ns |\n\nMore.\n\n| b |\n";

    #[test]
    fn the_first_table_takes_the_place_of_the_old_one() {
        let readme = format!("# umsg\n\n{BEGIN}| old |\n{END}\nText.\n");
        let expected = format!(
            "# umsg\n\n{BEGIN}| | umsg |\n|---|--:|\n| a | 1 ns |\n\nMeasured on 2026-01-02: a machine, Linux 6.18.\n{END}\nText.\n"
        );
        let once = renewed(&readme, DOCUMENT).unwrap();
        assert_eq!(once, expected);
        assert_eq!(renewed(&once, DOCUMENT).unwrap(), expected);
    }

    #[test]
    fn a_readme_without_a_place_and_a_document_without_a_table_are_refused() {
        assert_eq!(renewed("# umsg\n", DOCUMENT), None);
        let readme = format!("{BEGIN}{END}");
        assert_eq!(renewed(&readme, "# Benchmarks\n\nNothing.\n"), None);
    }

    #[test]
    fn the_readme_shows_what_the_document_says() {
        let workspace = Workspace::find().unwrap();
        let read = |name| fs::read_to_string(workspace.root.join(name)).unwrap();
        let readme = read("README.md");
        let again = renewed(&readme, &read("docs/benchmarks.md"));
        assert!(
            again.as_ref() == Some(&readme),
            "cargo xtask bench-publish --again renews it"
        );
    }
}
