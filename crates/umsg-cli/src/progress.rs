//! Progress bars on standard error, shown if it is a terminal. A bar disappears when it is dropped.
//!
//! The working thread draws the bars, at most 20 times a second.

use std::fs::File;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

const BYTES: &str = "{msg} {wide_bar} {binary_bytes}, {eta} left";
const THINGS: &str = "{msg} {wide_bar} {pos} of {len}";

/// Returns a bar for bytes that are written or read.
pub fn of_bytes(what: &'static str, total: u64) -> ProgressBar {
    bar(total, BYTES).with_message(what)
}

/// Returns a bar for the bytes of a regular file. Other files, such as FIFOs, have no known length and get no bar.
pub fn of_file(what: &'static str, file: &File) -> ProgressBar {
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => of_bytes(what, metadata.len()),
        _ => ProgressBar::hidden(),
    }
}

/// Returns a bar for a number of items. A single item gets no bar.
pub fn of_things(what: &'static str, count: usize) -> ProgressBar {
    match count {
        0 | 1 => ProgressBar::hidden(),
        _ => bar(count as u64, THINGS).with_message(what),
    }
}

fn bar(length: u64, template: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length).with_finish(ProgressFinish::AndClear);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_alone_and_a_file_of_unknown_length_have_no_bar() {
        assert_eq!(of_things("examining", 1).length(), None);
        assert_eq!(of_things("examining", 2).length(), Some(2));
        let device = File::open("/dev/null").unwrap();
        assert_eq!(of_file("loading", &device).length(), None);
        let file = tempfile::tempfile().unwrap();
        file.set_len(7).unwrap();
        assert_eq!(of_file("loading", &file).length(), Some(7));
    }

    #[test]
    fn templates_are_right() {
        for template in [BYTES, THINGS] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
