//! Compares the output of a command with the page.
//!
//! Runs of spaces are equal, because the widths of columns depend on their contents. Three kinds of words may differ: process ids, which the
//! page shows with five digits or more; times that have passed, such as `3s ago` or `1.2ms`; dates and times of day. A line `...` stands for
//! any number of lines.

/// Returns the first line of the page that the output does not have, or the first line of the output that the page does not have.
pub fn difference(shown: &[String], printed: &str) -> Option<String> {
    let printed: Vec<&str> = printed.lines().collect();
    let mut rest = &printed[..];
    let mut shown = shown.iter().peekable();
    while let Some(line) = shown.next() {
        if line == "..." {
            let next = shown.peek()?;
            let at = rest.iter().position(|printed| is_like(next, printed));
            rest = &rest[at.unwrap_or(rest.len())..];
            continue;
        }
        match rest.split_first() {
            Some((first, others)) if is_like(line, first) => rest = others,
            Some((first, _)) => return Some(format!("shown:   {line}\nprinted: {first}")),
            None => return Some(format!("shown:   {line}\nprinted: nothing")),
        }
    }
    let extra = rest.iter().find(|line| !line.trim().is_empty())?;
    Some(format!("shown:   nothing\nprinted: {extra}"))
}

fn is_like(shown: &str, printed: &str) -> bool {
    let [mut shown, mut printed] = [shown, printed].map(str::split_whitespace);
    loop {
        match (shown.next(), printed.next()) {
            (None, None) => return true,
            (Some(shown), Some(printed)) if is_like_word(shown, printed) => {}
            _ => return false,
        }
    }
}

fn is_like_word(shown: &str, printed: &str) -> bool {
    if shown == printed {
        return true;
    }
    let punctuation = [',', '.', ':', ';', '(', ')', '[', ']'];
    let [shown, printed] = [shown, printed].map(|word| word.trim_matches(punctuation));
    shown == printed
        || (is_process(shown) && is_number(printed))
        || (is_span(shown) && is_span(printed))
        || (is_date(shown) && is_date(printed))
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_process(word: &str) -> bool {
    is_number(word) && word.len() >= 5
}

fn is_span(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    word.len() > unit.len() && ["ns", "us", "µs", "ms", "s", "m", "h", "d"].contains(&unit)
}

/// Returns whether a word is a date or a time: `2026-11-22`, `12:30:05`, `2026-11-22T12:30:05Z`.
fn is_date(word: &str) -> bool {
    let is_digits = |part: &str| part.len() >= 2 && is_number(part);
    let parts: Vec<&str> = word
        .trim_end_matches('Z')
        .split(['-', ':', 'T', '.'])
        .collect();
    parts.len() >= 3 && parts.into_iter().all(is_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differs(shown: &[&str], printed: &str) -> bool {
        let shown: Vec<String> = shown.iter().map(|line| String::from(*line)).collect();
        difference(&shown, printed).is_some()
    }

    #[test]
    fn process_ids_times_and_widths_may_differ_and_nothing_else() {
        assert!(!differs(&["a  28446  5s ago"], "a 7 12ms ago\n"));
        assert!(!differs(&["a", "...", "d"], "a\nb\nc\nd\n"));
        assert!(!differs(&["a", "..."], "a\nb\n"));
        assert!(!differs(
            &["at 2026-11-22 10:00:01"],
            "at 2027-01-02 23:59:59"
        ));
        assert!(differs(&["a 12"], "a 13\n"));
        assert!(differs(&["a"], "a\nb\n"));
        assert!(differs(&["a", "b"], "a\n"));
        assert!(differs(&["a", "...", "d"], "a\nb\n"));
        assert!(differs(&[], "a\n"));
    }
}
