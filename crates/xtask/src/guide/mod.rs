//! `cargo xtask guide`: checks the documents, runs the commands of the guide, and builds the book.
//!
//! ```text
//! all documents ── page.rs ──┬─ links.rs    each link leads to a file of the checkout, and to a heading in it
//!                            ├─ contents.rs docs/SUMMARY.md lists each document; each program of a page is run by some check
//!                            └─ session.rs  the commands of a page, as a script of bash
//!                                  └─ room.rs   runs it in namespaces of its own, as an ordinary user of an installed umsg
//! book.rs: mdbook, if it is installed
//! pictures.rs: `umsg top` in tmux, if it is installed; svg.rs: the pictures of its screens
//! ```
//!
//! Comments, which no reader of the page sees, say how the blocks of a page are run:
//!
//! | comment | meaning |
//! |---|---|
//! | `<!-- run` commands `-->` | commands that prepare or check something |
//! | `<!-- file: NAME -->` | the next block is the content of this file |
//! | `<!-- not run: REASON -->` | the next block is not run |
//! | `<!-- needs: posix_ipc -->` | the page needs this module of Python |
//!
//! Blocks of `sh` and `bash` have to succeed. In a block of `console`, a line that begins with `$ ` is a command and the following lines are
//! its output; a command without output has to succeed and to print nothing. See [`transcript`] for the differences that are permitted.

mod book;
mod contents;
mod links;
mod page;
mod pictures;
mod room;
mod session;
mod svg;
mod transcript;

use std::path::Path;

use crate::failure::{Failure, Result};
use crate::workspace::Workspace;

use page::Page;
use room::Room;

/// The page of which only the transcripts are run: its other blocks are tasks of CI, and programs that other tests run.
const README: &str = "README.md";

/// The selection of the checks.
#[derive(clap::Args)]
pub struct Options {
    /// Check the text alone: run no commands, and build no book
    #[arg(long, conflicts_with = "pages")]
    text: bool,
    /// Run the commands on the release build, instead of a build without optimisation
    #[arg(long, conflicts_with = "text")]
    release: bool,
    /// Only make the pictures of the guide again
    #[arg(long, conflicts_with_all = ["text", "pages"])]
    pictures: bool,
    /// Run the commands of these pages only, by parts of their names; check nothing else
    pages: Vec<String>,
}

/// Checks the documents; lists all that is wrong.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    crate::interrupt::install();
    if options.pictures {
        let wrong = pictures::make(workspace, true)?;
        return wrong
            .into_iter()
            .next()
            .map_or(Ok(()), |why| Err(Failure::new(why)));
    }
    let pages = page::all(workspace)?;
    let mut wrong = vec![];
    if options.pages.is_empty() {
        wrong.extend(links::broken(workspace, &pages));
        wrong.extend(contents::missing(workspace, &pages)?);
        println!("{} documents read", pages.len());
    }
    if !options.text {
        wrong.extend(run_commands(workspace, &pages, options)?);
    }
    if !options.text && options.pages.is_empty() {
        wrong.extend(pictures::make(workspace, false)?);
        wrong.extend(book::build(workspace)?);
    }
    for sentence in &wrong {
        println!("{sentence}");
    }
    match wrong.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} things are wrong"))),
    }
}

/// Returns whether all programs and commands of a page are run.
fn is_guide(page: &Page) -> bool {
    page.path.starts_with("docs/guide")
}

/// Returns whether some commands of a page are run.
fn is_run(page: &Page) -> bool {
    is_guide(page) || page.path == Path::new(README)
}

fn run_commands(workspace: &Workspace, pages: &[Page], options: &Options) -> Result<Vec<String>> {
    let names = &options.pages;
    let is_meant = |page: &&Page| {
        let path = page.path.to_string_lossy();
        is_run(page) && (names.is_empty() || names.iter().any(|name| path.contains(&**name)))
    };
    let room = Room::furnish(workspace, options.release)?;
    let mut wrong = vec![];
    for page in pages.iter().filter(is_meant) {
        wrong.extend(room.run(page)?);
    }
    Ok(wrong)
}
