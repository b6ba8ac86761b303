//! Manual pages, one a function.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::doc::Block;
use super::header;
use super::model::{Function, Library, Shape, Type};
use super::roff::{escape, inline, see_also};
use crate::failure::{Context as _, Failure, Result};

/// Writes the pages into a directory, and removes those of functions that are no more.
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

/// Whether a file has the name of a page that an earlier version may have written.
fn is_ours(page: &Path) -> bool {
    let name = page.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("umsg_") && name.ends_with(".3"))
}

/// The page of a function.
fn text(library: &Library, function: &Function) -> Result<String> {
    let mut page = Page::new(function);
    let name = &function.name;
    let _ = writeln!(
        page.text,
        ".\\\" Made by `cargo xtask c-man` from crates/umsg-c/src.\n.TH {name} 3 \"\" \"umsg {}\" \"Library Functions Manual\"",
        library.version
    );
    page.heading("NAME");
    let _ = writeln!(
        page.text,
        "{name} \\- {}",
        in_a_phrase(function.doc.summary())
    );
    page.heading("LIBRARY");
    page.text
        .push_str("Message queues in shared memory\n.RI ( libumsg ,\\~ \\-lumsg )\n");
    page.heading("SYNOPSIS");
    page.synopsis(function);
    page.heading("DESCRIPTION");
    let described = page.text.len();
    page.blocks(&function.doc.description());
    if page.text.len() == described {
        return Err(Failure::new(format!("{name} has no description")));
    }
    for parameter in &function.parameters {
        let explained = parameter.explained.as_ref();
        if let Some(explained) = explained.and_then(|name| library.named(name)) {
            page.explain(explained);
        }
    }
    for (heading, section) in [
        ("RETURN VALUE", "Return value"),
        ("ERRORS", "Errors"),
        ("IF THE PROCESS DIES", "If the process dies"),
    ] {
        let blocks = function.doc.section(section);
        if blocks.is_empty() {
            return Err(Failure::new(format!("{name} has no section \"{section}\"")));
        }
        page.heading(heading);
        page.blocks(&blocks);
    }
    page.heading("SEE ALSO");
    match &function.doc.section("See also")[..] {
        [Block::Paragraph(pages)] => page.text.push_str(&see_also(pages)),
        _ => return Err(Failure::new(format!("{name} says not what to see also"))),
    }
    Ok(page.text)
}

/// A sentence as NAME has it.
fn in_a_phrase(summary: &str) -> String {
    let mut letters = summary.trim_end_matches('.').chars();
    let first = letters.next().map(|first| first.to_lowercase().to_string());
    escape(&format!(
        "{}{}",
        first.unwrap_or_default(),
        letters.as_str()
    ))
}

/// What a list says of a term begins with a capital in a manual page, unless it begins with code.
fn as_a_sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

struct Page<'a> {
    text: String,
    /// Names that are set as variables.
    variables: Vec<&'a str>,
}

impl<'a> Page<'a> {
    fn new(function: &'a Function) -> Page<'a> {
        let variables = function.parameters.iter();
        Page {
            text: String::new(),
            variables: variables.map(|parameter| &*parameter.name).collect(),
        }
    }

    fn heading(&mut self, heading: &str) {
        let _ = writeln!(self.text, ".SH {heading}");
    }

    fn synopsis(&mut self, function: &Function) {
        self.text.push_str(".nf\n");
        if function.takes_flags_of_system_v() {
            self.text.push_str(".B #include <sys/msg.h>\n");
        }
        if header::prototype(function).contains("struct sigevent") {
            self.text.push_str(".B #include <signal.h>\n");
        }
        self.text.push_str(".B #include <umsg.h>\n.P\n");
        for line in header::prototype(function).lines() {
            let _ = writeln!(self.text, ".B \"{}\"", escape(line));
        }
        self.text.push_str(".fi\n");
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for (index, block) in blocks.iter().enumerate() {
            match block {
                Block::Paragraph(text) => {
                    if index > 0 {
                        self.text.push_str(".P\n");
                    }
                    let _ = writeln!(self.text, "{}", inline(text, &self.variables));
                }
                Block::Terms(terms) => {
                    for (term, text) in terms {
                        self.term(&inline(term, &self.variables), &as_a_sentence(text));
                    }
                }
            }
        }
    }

    fn term(&mut self, term: &str, text: &str) {
        let text = inline(text, &self.variables);
        let _ = writeln!(self.text, ".TP\n{term}\n{text}");
    }

    fn explain(&mut self, explained: &'a Type) {
        let members = match &explained.shape {
            Shape::Structure(members) => &members[..],
            Shape::Alias(_) => &[],
        };
        self.variables
            .extend(members.iter().map(|member| &*member.name));
        let declaration = escape(&header::declaration(explained, false));
        let _ = writeln!(self.text, ".P\n.EX\n{declaration}.EE\n.P");
        self.blocks(&explained.doc.text());
        for member in members {
            if let [Block::Paragraph(text)] = &member.doc.text()[..] {
                self.term(&format!("\\fI{}\\fP", escape(&member.name)), text);
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
        let mut seen = 0;
        for function in library.functions() {
            let page = text(&library, function).unwrap_or_else(|failure| panic!("{failure}"));
            for heading in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "RETURN VALUE",
                "ERRORS",
                "IF THE PROCESS DIES",
                "SEE ALSO",
            ] {
                let line = format!("\n.SH {heading}\n");
                assert!(page.contains(&line), "{}: {heading}", function.name);
            }
            seen += 1;
        }
        assert!(seen > 10, "{seen} functions");
    }

    #[test]
    fn a_name_is_explained_by_a_phrase() {
        assert_eq!(in_a_phrase("Sends a message."), "sends a message");
    }
}
