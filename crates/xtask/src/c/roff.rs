//! Prose of comments as lines of manual pages.

use roff::{Inline, Roff, bold, italic, roman};

/// Returns a text for a manual page: text between backquotes is bold, or a variable if the text is a variable, and the names of other pages are bold.
/// Each sentence begins a line, as manual pages have it.
pub fn inline(text: &str, variables: &[&str]) -> Vec<Inline> {
    let mut set = Vec::new();
    for (index, piece) in text.split('`').enumerate() {
        if index % 2 == 0 {
            prose(piece, &mut set);
        } else if variables.contains(&piece) {
            set.push(italic(piece));
        } else {
            set.push(bold(piece));
        }
    }
    set
}

/// Adds a text to `set`, in which the name of each page, as in `name(3)`, is bold.
fn prose(text: &str, set: &mut Vec<Inline>) {
    let text = text.replace(". ", ".\n");
    let mut plain = String::new();
    for word in text.split_inclusive([' ', '\n']) {
        match page_of(word) {
            Some((before, name, rest)) => {
                plain.push_str(before);
                set.push(roman(std::mem::take(&mut plain)));
                set.push(bold(name));
                plain.push_str(rest);
            }
            None => plain.push_str(word),
        }
    }
    set.push(roman(plain));
}

/// Returns the parts of a word with a page's name: the text before it, the name, and the section with the following text.
fn page_of(word: &str) -> Option<(&str, &str, &str)> {
    let open = word.find('(')?;
    let (name, rest) = word.split_at(open);
    let before = name.len() - name.trim_start_matches(['(', '"']).len();
    let (before, name) = name.split_at(before);
    let is_name = !name.is_empty()
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let is_section =
        rest[1..].starts_with(|c: char| c.is_ascii_digit()) && rest[2..].starts_with(')');
    (is_name && is_section).then_some((before, name, rest))
}

/// Adds a list of pages, separated by commas, one on each line.
pub fn see_also(pages: &str, page: &mut Roff) {
    for reference in pages.split_whitespace() {
        match reference.find('(') {
            Some(section) => {
                let (name, section) = reference.split_at(section);
                page.control("BR", [name, section])
            }
            None => page.text([roman(reference)]),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, variables: &[&str]) -> String {
        let line = Roff::new().text(inline(text, variables)).to_roff();
        line.trim_end().to_owned()
    }

    #[test]
    fn code_is_bold_and_parameters_are_variables() {
        assert_eq!(
            line("If `mqdes` has `O_NONBLOCK`, it fails.", &["mqdes"]),
            "If \\fImqdes\\fR has \\fBO_NONBLOCK\\fR, it fails."
        );
    }

    #[test]
    fn names_of_pages_are_bold() {
        assert_eq!(
            line("As umsg_mq_open(3), but (see errno(3)) later.", &[]),
            "As \\fBumsg_mq_open\\fR(3), but (see \\fBerrno\\fR(3)) later."
        );
        assert_eq!(line("The process (a child)", &[]), "The process (a child)");
    }

    #[test]
    fn a_sentence_begins_a_line_and_is_no_instruction() {
        assert_eq!(line("One. Two.", &[]), "One.\nTwo.");
        assert_eq!(line("One. .so x\\y", &[]), "One.\n\\&.so x\\\\y");
    }

    #[test]
    fn pages_to_see_have_a_line_each() {
        let mut page = Roff::new();
        see_also("a(1), b(3)", &mut page);
        assert_eq!(page.to_roff(), ".BR a (1),\n.BR b (3)\n");
    }
}
