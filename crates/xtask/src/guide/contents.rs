//! Checks that the table of contents lists each document of `docs`, and that some check runs each program of the guide.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::links::plain;
use super::page::{Kind, Page};
use super::{is_guide, session};
use crate::failure::{Context as _, Failure, Result};
use crate::workspace::Workspace;

const SUMMARY: &str = "docs/SUMMARY.md";

/// The file through which the programs in Rust are compiled and run, as tests of documentation.
const DOCUMENTATION_TESTS: &str = "crates/umsg/src/lib.rs";

/// The languages of blocks that are not programs.
const SHOWN: [&str; 2] = ["", "text"];

/// Describes the documents that the table of contents omits, and the programs that no check runs.
pub fn missing(workspace: &Workspace, pages: &[Page]) -> Result<Vec<String>> {
    let summary = pages.iter().find(|page| page.path == Path::new(SUMMARY));
    let summary = summary.ok_or_else(|| Failure::new(format!("{SUMMARY} is missing")))?;
    let tests = workspace.root.join(DOCUMENTATION_TESTS);
    let tests = fs::read_to_string(&tests).context(tests.display())?;
    let mut wrong = unlisted(summary, pages);
    for page in pages.iter().filter(|page| is_guide(page)) {
        wrong.extend(not_run(page, &tests));
    }
    Ok(wrong)
}

fn unlisted(summary: &Page, pages: &[Page]) -> Vec<String> {
    let listed: HashSet<PathBuf> = summary
        .links
        .iter()
        .filter_map(|link| plain(&summary.path.with_file_name(&link.to)))
        .collect();
    let is_unlisted = |page: &&Page| {
        page.path.starts_with("docs") && page.path != summary.path && !listed.contains(&page.path)
    };
    let unlisted = pages.iter().filter(is_unlisted);
    unlisted
        .map(|page| format!("{SUMMARY} does not list {}", page.path.display()))
        .collect()
}

/// Describes the blocks of a page that no check runs.
fn not_run(page: &Page, documentation_tests: &str) -> Vec<String> {
    let is_tested = documentation_tests.contains(&format!("\"../../../{}\"", page.path.display()));
    let mut wrong = vec![];
    let mut before = None;
    for part in &page.parts {
        if let Kind::Block { info, .. } = &part.kind {
            let is_explained = before.is_some_and(|comment: &String| {
                comment.starts_with(session::FILE) || comment.starts_with(session::NOT_RUN)
            });
            if let Some(why) = gap(info, is_explained, is_tested) {
                wrong.push(format!("{}:{}: {why}", page.path.display(), part.line));
            }
        }
        before = match &part.kind {
            Kind::Comment(text) => Some(text),
            Kind::Block { .. } => None,
        };
    }
    wrong
}

/// Returns the reason why no check runs a block.
fn gap(info: &str, is_explained: bool, is_tested: bool) -> Option<String> {
    let words: Vec<&str> = info.split([',', ' ']).collect();
    let language = words[0];
    if language == "rust" {
        return match (words.contains(&"ignore"), is_tested) {
            (true, _) => Some("a program that is not even compiled".into()),
            (false, false) => Some(format!(
                "{DOCUMENTATION_TESTS} does not name this page, so its programs are not compiled"
            )),
            (false, true) => None,
        };
    }
    let is_fine =
        is_explained || SHOWN.contains(&language) || session::LANGUAGES.contains(&language);
    (!is_fine).then(|| {
        format!(
            "a block of {language} needs a comment before it, \"file: NAME\" or \"not run: REASON\""
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_programs_that_are_left_out_are_found() {
        let page = |path: &str, text: &str| Page::of(path.into(), text);
        let summary = page(SUMMARY, "[a](guide/a.md)\n");
        let pages = [
            page("docs/guide/a.md", ""),
            page("docs/b.md", ""),
            page("X.md", ""),
        ];
        assert_eq!(
            unlisted(&summary, &pages),
            ["docs/SUMMARY.md does not list docs/b.md"]
        );

        let text = "```rust\n```\n\n```c\n```\n\n<!-- file: a.c -->\n```c\n```\n\n```sh\n```\n\n```\n```\n";
        let page = page("docs/guide/a.md", text);
        let tests = "include_str!(\"../../../docs/guide/a.md\")";
        assert_eq!(not_run(&page, tests).len(), 1);
        assert!(not_run(&page, tests)[0].starts_with("docs/guide/a.md:4: a block of c needs"));
        assert_eq!(not_run(&page, "").len(), 2);
    }
}
