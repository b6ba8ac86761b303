//! Comments: a sentence, a description, and sections under headings.

/// A comment of the source, in lines.
pub struct Doc {
    lines: Vec<String>,
}

/// A paragraph or a list of a comment.
#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    Paragraph(String),
    /// A list of terms, each with its description.
    Terms(Vec<(String, String)>),
}

impl Doc {
    pub fn new(lines: Vec<String>) -> Doc {
        Doc { lines }
    }

    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Returns the first line, which is the summary.
    pub fn summary(&self) -> &str {
        self.lines.first().map_or("", |line| line.as_str())
    }

    /// Returns the text between the summary and the first heading.
    pub fn description(&self) -> Vec<Block> {
        let lines = self.lines.iter().skip(1);
        blocks(lines.take_while(|line| !line.starts_with("# ")))
    }

    /// Returns the text before the first heading, for items without their own summary.
    pub fn text(&self) -> Vec<Block> {
        blocks(self.lines.iter().take_while(|line| !line.starts_with("# ")))
    }

    /// Returns the headings of the sections.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| line.strip_prefix("# "))
    }

    /// Returns the section under a heading; empty if there is no such section.
    pub fn section(&self, heading: &str) -> Vec<Block> {
        let heading = format!("# {heading}");
        let lines = self.lines.iter().skip_while(|line| **line != heading);
        blocks(lines.skip(1).take_while(|line| !line.starts_with("# ")))
    }
}

/// Returns the paragraphs and lists of the lines. An item of a list begins with "- ", its term ends at the first ": ", and further lines of the item
/// are indented.
fn blocks<'a>(lines: impl Iterator<Item = &'a String>) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut ended = true;
    for line in lines {
        let text = line.trim();
        if text.is_empty() {
            ended = true;
        } else if let Some(item) = line.strip_prefix("- ") {
            let (term, rest) = item.split_once(": ").unwrap_or((item, ""));
            let item = (term.to_owned(), rest.to_owned());
            match blocks.last_mut() {
                Some(Block::Terms(terms)) => terms.push(item),
                _ => blocks.push(Block::Terms(vec![item])),
            }
            ended = false;
        } else {
            let last = blocks.last_mut().filter(|_| !ended);
            match last {
                Some(Block::Paragraph(paragraph)) => append(paragraph, text),
                Some(Block::Terms(terms)) => {
                    if let Some((_, rest)) = terms.last_mut() {
                        append(rest, text);
                    }
                }
                None => blocks.push(Block::Paragraph(text.to_owned())),
            }
            ended = false;
        }
    }
    blocks
}

fn append(text: &mut String, more: &str) {
    text.push(' ');
    text.push_str(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc(text: &str) -> Doc {
        Doc::new(text.lines().map(str::to_owned).collect())
    }

    #[test]
    fn a_comment_has_a_summary_a_description_and_sections() {
        let doc = doc(
            "Does it.\n\nAt once,\nor never.\n\n# Errors\n- `A`: one\n  of them\n- `B`: two\n\n# See also\nx(1)",
        );
        assert_eq!(doc.summary(), "Does it.");
        let description = [Block::Paragraph("At once, or never.".into())];
        assert_eq!(doc.description(), description);
        let terms = [("`A`", "one of them"), ("`B`", "two")];
        let terms = terms.map(|(term, text)| (term.to_owned(), text.to_owned()));
        assert_eq!(doc.section("Errors"), [Block::Terms(terms.into())]);
        assert_eq!(doc.section("See also"), [Block::Paragraph("x(1)".into())]);
        assert!(doc.section("Return value").is_empty());
    }
}
