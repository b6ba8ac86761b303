//! A document: its headings, its links, and its blocks of code with the comments that belong to them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::failure::{Context as _, Result};
use crate::workspace::Workspace;

/// A document in Markdown.
pub struct Page {
    /// The path of the document in the checkout.
    pub path: PathBuf,
    /// The names by which links lead to the document's headings.
    pub anchors: Vec<String>,
    pub links: Vec<Link>,
    pub parts: Vec<Part>,
}

/// A link, and its line in the document.
pub struct Link {
    pub to: String,
    pub line: usize,
}

/// A part of a page that matters when its commands run.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// The line of the part's first word.
    pub line: usize,
    pub kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// A comment, without its marks.
    Comment(String),
    /// A block of code: all words after its fence, and its text.
    Block { info: String, text: String },
}

/// Reads all documents that are part of the checkout, or will be when they are committed.
pub fn all(workspace: &Workspace) -> Result<Vec<Page>> {
    let names = workspace.files("*.md")?;
    names
        .iter()
        .map(|name| read(&workspace.root, name))
        .collect()
}

fn read(root: &Path, name: &str) -> Result<Page> {
    let text = fs::read_to_string(root.join(name)).context(name)?;
    Ok(Page::of(name.into(), &text))
}

impl Page {
    pub fn of(path: PathBuf, text: &str) -> Page {
        let mut page = Page {
            path,
            anchors: vec![],
            links: vec![],
            parts: vec![],
        };
        let mut reader = Reader::default();
        let line_at = Lines::of(text);
        let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            reader.take(&mut page, event, line_at.of_offset(range.start));
        }
        page
    }
}

/// The offsets at which the lines of a text begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Lines {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Lines(std::iter::once(0).chain(breaks).collect())
    }

    fn of_offset(&self, offset: usize) -> usize {
        self.0.partition_point(|start| *start <= offset)
    }
}

/// The state between two events of the parser.
#[derive(Default)]
struct Reader {
    /// The text of the heading, block or comment that is being read.
    text: String,
    info: String,
    line: usize,
    is_heading: bool,
    taken: HashMap<String, usize>,
}

impl Reader {
    fn take(&mut self, page: &mut Page, event: Event<'_>, line: usize) {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                self.text.clear();
                self.is_heading = true;
            }
            Event::End(TagEnd::Heading(_)) => {
                self.is_heading = false;
                let anchor = self.anchor();
                page.anchors.push(anchor);
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                self.begin(line);
                self.info = match kind {
                    CodeBlockKind::Fenced(info) => info.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
            }
            Event::End(TagEnd::CodeBlock) => {
                let (info, text) = (self.info.clone(), self.text.clone());
                self.end(page, Kind::Block { info, text });
            }
            Event::Start(Tag::HtmlBlock) => self.begin(line),
            Event::End(TagEnd::HtmlBlock) => self.html_block(page),
            Event::Html(html) => self.text.push_str(&html),
            Event::InlineHtml(html) => links_of_html(page, &html, line),
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(Link {
                    to: dest_url.into_string(),
                    line,
                });
            }
            Event::Text(text) | Event::Code(text) => self.text.push_str(&text),
            _ => {}
        }
    }

    fn begin(&mut self, line: usize) {
        self.text.clear();
        self.line = line;
    }

    fn end(&mut self, page: &mut Page, kind: Kind) {
        page.parts.push(Part {
            line: self.line,
            kind,
        });
    }

    fn html_block(&mut self, page: &mut Page) {
        links_of_html(page, &self.text, self.line);
        let comment = self.text.trim().strip_prefix("<!--");
        if let Some(comment) = comment.and_then(|text| text.strip_suffix("-->")) {
            let comment = comment.trim().to_owned();
            self.end(page, Kind::Comment(comment));
        }
    }

    /// Makes the name of a heading as GitHub and mdbook do: letters, digits, `-` and `_` in lower case, a space as `-`, and a number after a name
    /// that is repeated.
    fn anchor(&mut self) -> String {
        let kept = self.text.trim().to_lowercase();
        let kept = kept.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        let name: String = kept.collect();
        let count = self.taken.entry(name.clone()).or_default();
        *count += 1;
        match *count {
            1 => name,
            again => format!("{name}-{}", again - 1),
        }
    }
}

/// Adds the links and the names in the HTML of a document.
fn links_of_html(page: &mut Page, html: &str, line: usize) {
    let values = |attribute: &'static str| {
        let parts = html.split(attribute).skip(1);
        parts.filter_map(|rest| rest.split_once('"').map(|(value, _)| value.to_owned()))
    };
    for attribute in [" href=\"", " src=\"", " srcset=\""] {
        page.links
            .extend(values(attribute).map(|to| Link { to, line }));
    }
    page.anchors.extend(values(" id=\""));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_links_blocks_and_comments_are_found_with_their_lines() {
        let text = "# The `mq_open` call, 2\n\n## Again\n\n## Again\n\nSee [it](a.md#b).\n\n<!-- not run: why -->\n```sh\na\n```\n\n<img src=\"x.svg\">\n";
        let page = Page::of("x.md".into(), text);
        assert_eq!(page.anchors, ["the-mq_open-call-2", "again", "again-1"]);
        let links = page.links.iter().map(|link| (&*link.to, link.line));
        assert_eq!(links.collect::<Vec<_>>(), [("a.md#b", 7), ("x.svg", 14)]);
        let block = Kind::Block {
            info: "sh".into(),
            text: "a\n".into(),
        };
        let comment = Kind::Comment("not run: why".into());
        let expected = [(9, comment), (10, block)].map(|(line, kind)| Part { line, kind });
        assert_eq!(page.parts, expected);
    }
}
