//! The language of manual pages.

/// Text in which nothing is an instruction.
pub fn escape(text: &str) -> String {
    let lines = text.lines().map(escape_line);
    let mut escaped = lines.collect::<Vec<_>>().join("\n");
    if text.ends_with('\n') {
        escaped.push('\n');
    }
    escaped
}

fn escape_line(line: &str) -> String {
    let escaped = line.replace('\\', "\\e").replace('-', "\\-");
    match escaped.starts_with(['.', '\'']) {
        true => format!("\\&{escaped}"),
        false => escaped,
    }
}

/// Prose: what is between backquotes is set in bold, or as a variable if it is one; so are the names of other pages.
/// Each sentence begins a line, as manual pages have it.
pub fn inline(text: &str, variables: &[&str]) -> String {
    let mut set = String::new();
    for (index, piece) in text.split('`').enumerate() {
        if index % 2 == 0 {
            set.push_str(&prose(piece));
        } else if variables.contains(&piece) {
            set.push_str(&format!("\\fI{}\\fP", escape(piece)));
        } else {
            set.push_str(&format!("\\fB{}\\fP", escape(piece)));
        }
    }
    let lines: Vec<String> = sentences(&set).map(begin_line).collect();
    lines.join("\n")
}

fn begin_line(line: &str) -> String {
    match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    }
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(". ").map(str::trim_end)
}

/// Sets the names of pages: `name(3)` with the name in bold.
fn prose(text: &str) -> String {
    let words = text
        .split_inclusive([' ', '\n'])
        .map(|word| match page_of(word.trim_end()) {
            Some((before, name, rest)) => {
                let space = &word[word.trim_end().len()..];
                format!("{before}\\fB{name}\\fP{rest}{space}")
            }
            None => word.replace('\\', "\\e"),
        });
    words.collect()
}

/// A page's name in a word, what comes before it, and the section with what follows.
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

/// A list of pages, separated by commas, each on a line of its own.
pub fn see_also(pages: &str) -> String {
    let mut lines = String::new();
    for page in pages.split_whitespace() {
        match page.split_once('(') {
            Some((name, section)) => lines.push_str(&format!(".BR {name} ({section}\n")),
            None => lines.push_str(&format!("{page}\n")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_bold_and_parameters_are_variables() {
        assert_eq!(
            inline("If `mqdes` has `O_NONBLOCK`, it fails.", &["mqdes"]),
            "If \\fImqdes\\fP has \\fBO_NONBLOCK\\fP, it fails."
        );
    }

    #[test]
    fn names_of_pages_are_bold() {
        assert_eq!(
            inline("As umsg_mq_open(3), but (see errno(3)) later.", &[]),
            "As \\fBumsg_mq_open\\fP(3), but (see \\fBerrno\\fP(3)) later."
        );
        assert_eq!(
            inline("The process (a child)", &[]),
            "The process (a child)"
        );
    }

    #[test]
    fn a_sentence_begins_a_line() {
        assert_eq!(inline("One. Two.", &[]), "One.\nTwo.");
    }

    #[test]
    fn nothing_in_text_is_an_instruction() {
        assert_eq!(escape(".so x\\y-z"), "\\&.so x\\ey\\-z");
    }

    #[test]
    fn pages_to_see_have_a_line_each() {
        assert_eq!(see_also("a(1), b(3)"), ".BR a (1),\n.BR b (3)\n");
    }
}
