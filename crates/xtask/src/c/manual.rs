//! Manual pages, one for each function.

use std::fs;
use std::path::Path;

use roff::{Inline, Roff, bold, italic, roman};

use super::doc::Block;
use super::header;
use super::model::{Function, Library, Shape, Type};
use super::roff::{inline, see_also};
use crate::failure::{Context as _, Failure, Result};

/// A section of a comment that a page prints. The heading of the page is in capitals.
struct Section {
    heading: &'static str,
    /// True if each function needs the section.
    is_required: bool,
}

/// The sections in the order of the page. Source: man-pages(7); "IF THE PROCESS DIES" is an addition.
const SECTIONS: [Section; 4] = [
    Section::required("Return value"),
    Section::required("Errors"),
    Section::required("If the process dies"),
    Section {
        heading: "Notes",
        is_required: false,
    },
];

impl Section {
    const fn required(heading: &'static str) -> Self {
        Self {
            heading,
            is_required: true,
        }
    }
}

/// Other sections of a comment: "Safety" concerns Rust programs; "See also" has a form of its own, and is printed last.
const UNPRINTED: [&str; 2] = ["Safety", "See also"];

/// Writes the pages into a directory, and removes the pages of functions that no longer exist.
pub fn write(root: &Path, directory: &Path) -> Result<()> {
    let library = Library::read(root)?;
    fs::create_dir_all(directory).context(directory.display())?;
    for old in fs::read_dir(directory).context(directory.display())? {
        let old = old.context(directory.display())?.path();
        if is_ours(&old) {
            fs::remove_file(&old).context(old.display())?;
        }
    }
    for function in library.functions() {
        let page = directory.join(format!("{}.3", function.name));
        fs::write(&page, text(&library, function)?).context(page.display())?;
    }
    Ok(())
}

/// Returns whether a file has the name of a page that an earlier version may have written.
fn is_ours(page: &Path) -> bool {
    let name = page.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("umsg_") && name.ends_with(".3"))
}

/// Returns the page of a function.
fn text(library: &Library, function: &Function) -> Result<String> {
    let mut page = Page::new(function);
    let name = &function.name;
    page.roff.control(
        "\\\"",
        ["Made by `cargo xtask c-man` from crates/umsg-c/src."],
    );
    let version = format!("umsg {}", library.version);
    // An empty argument marks a page without a date.
    let title = [name, "3", "\"\"", &version, "Library Functions Manual"];
    page.roff.control("TH", title);
    page.heading("NAME");
    let phrase = in_a_phrase(function.doc.summary());
    page.roff.text([roman(format!("{name} - {phrase}"))]);
    page.heading("LIBRARY");
    page.roff.text([
        roman("Message queues in shared memory ("),
        italic("libumsg"),
        roman(", "),
        italic("-lumsg"),
        roman(")"),
    ]);
    page.heading("SYNOPSIS");
    page.synopsis(function);
    page.heading("DESCRIPTION");
    let description = function.doc.description();
    if description.is_empty() {
        return Err(Failure::new(format!("{name} has no description")));
    }
    page.blocks(&description);
    for parameter in &function.parameters {
        let explained = parameter.explained.as_ref();
        if let Some(explained) = explained.and_then(|name| library.named(name)) {
            page.explain(explained);
        }
    }
    for section in &SECTIONS {
        let heading = section.heading;
        let blocks = function.doc.section(heading);
        if blocks.is_empty() {
            if section.is_required {
                return Err(Failure::new(format!("{name} has no section \"{heading}\"")));
            }
            continue;
        }
        page.heading(&heading.to_uppercase());
        page.blocks(&blocks);
    }
    let is_printed = |section: &str| SECTIONS.iter().any(|known| known.heading == section);
    let mut sections = function.doc.sections();
    if let Some(other) =
        sections.find(|section| !is_printed(section) && !UNPRINTED.contains(section))
    {
        return Err(Failure::new(format!(
            "{name} has the section \"{other}\", which no page prints"
        )));
    }
    page.heading("SEE ALSO");
    match &function.doc.section("See also")[..] {
        [Block::Paragraph(pages)] => see_also(pages, &mut page.roff),
        _ => {
            return Err(Failure::new(format!(
                "{name}: the section \"See also\" must be one paragraph"
            )));
        }
    }
    Ok(page.roff.render())
}

/// Returns a sentence in the form of the section NAME: without capital and full stop.
fn in_a_phrase(summary: &str) -> String {
    let mut letters = summary.trim_end_matches('.').chars();
    let first = letters.next().map(|first| first.to_lowercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

/// Converts the description of a term to a sentence. In a manual page, a sentence begins with a capital, unless it begins with code.
fn as_a_sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

struct Page<'a> {
    roff: Roff,
    /// The names of the function's parameters, which the page prints as variables.
    variables: Vec<&'a str>,
}

impl<'a> Page<'a> {
    fn new(function: &'a Function) -> Page<'a> {
        let variables = function.parameters.iter();
        Page {
            roff: Roff::new(),
            variables: variables.map(|parameter| &*parameter.name).collect(),
        }
    }

    fn heading(&mut self, heading: &str) {
        self.roff.control("SH", [heading]);
    }

    fn macro_alone(&mut self, name: &str) {
        self.roff.control(name, []);
    }

    fn synopsis(&mut self, function: &Function) {
        let prototype = header::prototype(function);
        self.macro_alone("nf");
        if function.takes_flags_of_system_v() {
            self.roff.text([bold("#include <sys/msg.h>")]);
        }
        if prototype.contains("struct sigevent") {
            self.roff.text([bold("#include <signal.h>")]);
        }
        self.roff.text([bold("#include <umsg.h>")]);
        self.macro_alone("P");
        for line in prototype.lines() {
            self.roff.text([bold(line)]);
        }
        self.macro_alone("fi");
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for (index, block) in blocks.iter().enumerate() {
            match block {
                Block::Paragraph(text) => {
                    if index > 0 {
                        self.macro_alone("P");
                    }
                    self.roff.text(inline(text, &self.variables));
                }
                Block::Terms(terms) => {
                    for (term, text) in terms {
                        self.term(inline(term, &self.variables), &as_a_sentence(text));
                    }
                }
            }
        }
    }

    fn term(&mut self, term: Vec<Inline>, text: &str) {
        self.macro_alone("TP");
        self.roff.text(term).text(inline(text, &self.variables));
    }

    fn explain(&mut self, explained: &'a Type) {
        let members = match &explained.shape {
            Shape::Structure(members) => &members[..],
            Shape::Alias(_) => &[],
        };
        self.variables
            .extend(members.iter().map(|member| &*member.name));
        self.macro_alone("P");
        self.macro_alone("EX");
        let declaration = header::declaration(explained, false);
        self.roff.text([roman(declaration.trim_end())]);
        self.macro_alone("EE");
        self.macro_alone("P");
        self.blocks(&explained.doc.text());
        for member in members {
            if let [Block::Paragraph(text)] = &member.doc.text()[..] {
                self.term(vec![italic(&*member.name)], text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn every_function_has_all_sections() {
        let workspace = Workspace::find().unwrap();
        let library = Library::read(&workspace.root).unwrap();
        let (mut seen, mut with_notes) = (0, 0);
        for function in library.functions() {
            let page = text(&library, function).unwrap_or_else(|failure| panic!("{failure}"));
            let sections = SECTIONS.iter().filter(|section| section.is_required);
            let sections = sections.map(|section| section.heading.to_uppercase());
            let always = ["NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"].map(str::to_owned);
            for heading in sections.chain(always) {
                let argument = match heading.contains(' ') {
                    true => format!("\"{heading}\""),
                    false => heading.clone(),
                };
                let line = format!("\n.SH {argument}\n");
                assert!(page.contains(&line), "{}: {heading}", function.name);
            }
            let has_notes = !function.doc.section("Notes").is_empty();
            let prints_notes = page.contains("\n.SH NOTES\n");
            assert_eq!(prints_notes, has_notes, "{}", function.name);
            with_notes += usize::from(has_notes);
            seen += 1;
        }
        assert!(
            seen > 10 && with_notes > 0,
            "{seen} functions, {with_notes} with notes"
        );
    }

    #[test]
    fn a_name_is_explained_by_a_phrase() {
        assert_eq!(in_a_phrase("Sends a message."), "sends a message");
    }
}
