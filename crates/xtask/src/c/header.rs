//! `umsg.h`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::doc::Doc;
use super::model::{Chapter, Function, Library, Shape, Type};
use crate::failure::{Context as _, Failure, Result};

/// Widest line of a prototype.
const WIDTH: usize = 100;

/// Returns the path of the checked-in header.
pub fn path(root: &Path) -> PathBuf {
    root.join("crates/umsg-c/include/umsg.h")
}

/// Writes the checked-in header anew.
pub fn write(root: &Path) -> Result<()> {
    let path = path(root);
    fs::write(&path, text(&Library::read(root)?)).context(path.display())
}

/// Returns an error with advice if the checked-in file differs from the source.
pub fn check(root: &Path) -> Result<()> {
    let path = path(root);
    let found = fs::read_to_string(&path).context(path.display())?;
    if found == text(&Library::read(root)?) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} is not what crates/umsg-c/src says; to write it anew: cargo xtask c-header",
        path.display()
    )))
}

/// Returns the whole header.
fn text(library: &Library) -> String {
    let mut text = opening(&library.version);
    for chapter in &library.chapters {
        add_chapter(&mut text, chapter);
    }
    text.push_str("#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
    text
}

fn opening(version: &str) -> String {
    let mut text = format!(
        "/*
 * Message queues of Linux in shared memory: the C library.
 *
 * Link with -lumsg, or ask pkg-config for umsg. Each function has a manual page: man 3 umsg_mq_open.
 * <umsg/mqueue.h> gives the functions and types the names of POSIX, and <umsg/msg.h> those of System V, for programs that
 * have these. <umsg/ring.h> makes messages and options of rings.
 *
 * Made by `cargo xtask c-header` from crates/umsg-c/src, and to be changed there.
 */
#ifndef UMSG_H
#define UMSG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define UMSG_VERSION \"{version}\"
"
    );
    let names = ["MAJOR", "MINOR", "PATCH"];
    for (name, number) in names.iter().zip(version.split('.')) {
        let _ = writeln!(text, "#define UMSG_VERSION_{name} {number}");
    }
    text.push_str(
        "\nstruct msqid_ds;\nstruct sigevent;\nstruct timespec;\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
    );
    text
}

fn add_chapter(text: &mut String, chapter: &Chapter) {
    let Chapter {
        title,
        constants,
        types,
        functions,
    } = chapter;
    let _ = writeln!(text, "/* ---- {} ---- */\n", title.trim_end_matches('.'));
    for constant in constants {
        add_comment(text, "", &constant.doc);
        let _ = writeln!(text, "#define {} {}\n", constant.name, constant.value);
    }
    for one in types {
        add_comment(text, "", &one.doc);
        text.push_str(&declaration(one, true));
        text.push('\n');
    }
    for function in functions {
        add_comment(text, "", &function.doc);
        text.push_str(&prototype(function));
        text.push_str("\n\n");
    }
}

/// Returns a type, with the comments of its members or without.
pub fn declaration(one: &Type, comments: bool) -> String {
    let members = match &one.shape {
        Shape::Alias(alias) => return format!("typedef {alias};\n"),
        Shape::Structure(members) => members,
    };
    let mut text = format!("struct {} {{\n", one.name);
    for member in members {
        if comments {
            add_comment(&mut text, "    ", &member.doc);
        }
        let _ = writeln!(text, "    {};", member.declaration);
    }
    text.push_str("};\n");
    text
}

/// Returns a function, in one line if it fits.
pub fn prototype(function: &Function) -> String {
    let mut parameters: Vec<&str> = function
        .parameters
        .iter()
        .map(|parameter| &*parameter.declaration)
        .collect();
    if function.variadic {
        parameters.push("...");
    }
    if parameters.is_empty() {
        parameters.push("void");
    }
    let line = format!("{}({});", function.head, parameters.join(", "));
    if line.len() <= WIDTH {
        return line;
    }
    let indented = format!(",\n{}", " ".repeat(function.head.len() + 1));
    format!("{}({});", function.head, parameters.join(&indented))
}

fn add_comment(text: &mut String, indent: &str, doc: &Doc) {
    let lines: Vec<String> = doc.lines().iter().map(|line| plain(line)).collect();
    if let [line] = &lines[..] {
        let _ = writeln!(text, "{indent}/* {line} */");
        return;
    }
    let _ = writeln!(text, "{indent}/*");
    for line in lines {
        let _ = writeln!(text, "{}", format!("{indent} * {line}").trim_end());
    }
    let _ = writeln!(text, "{indent} */");
}

/// Returns the text without the marks of the source.
fn plain(line: &str) -> String {
    match line.strip_prefix("# ") {
        Some(heading) => format!("{heading}:"),
        None => line.replace('`', ""),
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::workspace::Workspace;

    #[test]
    fn the_header_is_what_the_source_says() {
        let workspace = Workspace::find().unwrap();
        check(&workspace.root).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
