//! Pages made of stored figures: their contents, and that a browser shows the whole page.

mod browser;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

/// The figures of quick runs of all suites. All peers were installed.
const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/figures/quick.json");

fn report(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_umsg-bench");
    let output = Command::new(program).arg("report").args(arguments).output();
    output.unwrap()
}

/// Returns the text that the program writes with this option.
fn made(option: &str) -> String {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("made");
    let output = report(&[FIGURES, option, file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    fs::read_to_string(file).unwrap()
}

#[test]
fn a_page_fetches_nothing_and_runs_nothing() {
    let page = made("--html");
    for foreign in [
        "http:", "https:", "src=", "<link", "url(", "@import", "<script",
    ] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn a_browser_draws_every_plot_and_fills_every_table_on_a_phone_and_on_a_screen() {
    let Some(browser) = browser::find() else {
        return;
    };
    for (width, found) in browser::look(&browser, &made("--html"), &[360, 1280]) {
        found.check_plots(&[
            "plot-depth",
            "plot-sizes",
            "plot-threads",
            "plot-senders",
            "plot-counters",
            "plot-threads-sender",
            "plot-threads-receiver",
            "plot-processes-sender",
            "plot-processes-receiver",
            "plot-kills-sender",
            "plot-kills-receiver",
        ]);
        found.check_tables();
        found.check_width(width);
    }
}

#[test]
fn a_document_says_when_and_where_and_its_tables_have_as_many_cells_in_each_line() {
    let text = made("--markdown");
    for part in [
        "2026-",
        "Linux ",
        "Published in 2012",
        "Published in 2024",
        "Mitigations",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let mut width = None;
    for line in text.lines() {
        let cells = line.replace("\\|", "").matches('|').count();
        if !line.starts_with('|') {
            width = None;
        } else if cells != *width.get_or_insert(cells) {
            panic!("{line}");
        }
    }
}

#[test]
fn peers_that_were_measured_stand_beside_the_kernel_with_how_they_were_used() {
    let text = made("--markdown");
    let table = text.split("### Between two processes").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let lines: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let column = |name: &str| lines[0].iter().position(|head| *head == name).unwrap();
    let cell = |row: &str, peer: &str| {
        let line = lines.iter().find(|line| line[0].ends_with(row)).unwrap();
        line[column(peer)]
    };
    for row in ["both spinning", "two cores, both asleep", "one thread"] {
        assert_ne!(cell(row, "Boost.Interprocess"), "–", "{row}");
    }
    assert_eq!(cell("busy sender was killed", "umsg"), "0.00");
    assert_ne!(cell("busy sender was killed", "Boost.Interprocess"), "0.00");
    assert_eq!(cell("one core, both asleep", "Boost.Interprocess"), "–");
    assert!(
        table.contains("\n- Boost.Interprocess: Boost 1."),
        "{table}"
    );
}

#[test]
fn a_document_ends_with_what_was_tried() {
    let directory = TempDir::new().unwrap();
    let [attempts, made] = ["attempts.md", "made.md"].map(|name| directory.path().join(name));
    fs::write(&attempts, "## Attempts\n\nOne failed.\n").unwrap();
    let [attempts, text] = [&attempts, &made].map(|path| path.to_str().unwrap());
    let output = report(&[FIGURES, "--markdown", text, "--attempts", attempts]);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(made).unwrap();
    assert!(text.ends_with("\n\n## Attempts\n\nOne failed.\n"), "{text}");
}

#[test]
fn figures_of_another_format_are_refused_with_the_reason() {
    let directory = TempDir::new().unwrap();
    let file: PathBuf = directory.path().join("figures.json");
    let cases = [
        (
            "{\"format\": 2}",
            "format 2, and this program reads only format 1",
        ),
        ("[]", "use a file written by umsg-bench --json"),
        ("{", "EOF while parsing"),
    ];
    for (text, reason) in cases {
        fs::write(&file, text).unwrap();
        let output = report(&[file.to_str().unwrap()]);
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && says.contains(reason), "{says}");
    }
}
