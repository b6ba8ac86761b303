//! Examines a page with headless Chromium (Debian's package `chromium`), in frames as wide as a phone or a screen.
//!
//! The browser is the program that `UMSG_TEST_CHROMIUM` names, or the first of the usual names in PATH. Without a browser, a test prints a message
//! and passes; with `CI=true`, the test fails.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tempfile::TempDir;

/// The script that runs in each frame.
const PROBE: &str = include_str!("probe.js");

/// The time after which a browser without output is considered stuck, and is killed.
const PATIENCE: Duration = Duration::from_secs(240);

/// Returns the browser, if there is one.
pub fn find() -> Option<PathBuf> {
    let named = std::env::var_os("UMSG_TEST_CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_the_path = ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |directory| directory.join(name)))
        .find(|program| program.is_file());
    let found = named.or(on_the_path);
    if found.is_none() {
        let remedy = "no chromium: apt-get install chromium, or name one in UMSG_TEST_CHROMIUM";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{remedy}");
        eprintln!("skipped: {remedy}");
    }
    found
}

/// The contents of a frame.
#[derive(Deserialize)]
pub struct Found {
    plots: Vec<Drawn>,
    tables: Vec<Filled>,
    /// The elements that exceed the right or the left edge of a box that does not scroll.
    outside: Vec<String>,
    scroll_width: f64,
}

#[derive(Deserialize)]
struct Drawn {
    id: String,
    title: String,
    description: String,
    width: f64,
    height: f64,
    /// The paths of the data, each with its length as the browser computes it.
    paths: Vec<(String, f64)>,
    /// The coordinates and radii of the circles and texts.
    numbers: Vec<String>,
}

#[derive(Deserialize)]
struct Filled {
    name: String,
    columns: usize,
    /// The texts of all cells of the body.
    rows: Vec<Vec<String>>,
}

/// Opens the page in frames of these widths.
pub fn look(browser: &Path, page: &str, widths: &[u32]) -> Vec<(u32, Found)> {
    let directory = TempDir::new().unwrap();
    let outer = directory.path().join("outer.html");
    fs::write(&outer, frames(page, widths)).unwrap();
    let dump = directory.path().join("dump.html");
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--disable-gpu",
            "--no-sandbox",
            "--no-first-run",
        ])
        .args(["--disable-dev-shm-usage", "--disable-background-networking"])
        .arg(format!(
            "--user-data-dir={}",
            directory.path().join("profile").display()
        ))
        .args([
            "--window-size=1400,900",
            "--virtual-time-budget=5000",
            "--dump-dom",
        ])
        .arg(format!("file://{}", outer.display()))
        .env("HOME", directory.path())
        .env("TMPDIR", directory.path())
        .stdin(Stdio::null())
        .stdout(File::create(&dump).unwrap())
        .stderr(File::create(directory.path().join("errors")).unwrap());
    wait(command.spawn().unwrap());
    let dump = fs::read_to_string(dump).unwrap();
    let found = dump
        .split_once("<pre id=\"found\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let Some((found, _)) = found.filter(|(found, _)| !found.is_empty()) else {
        let errors = fs::read_to_string(directory.path().join("errors"));
        panic!("the browser found nothing: {}", errors.unwrap_or_default());
    };
    let found = found
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    let found: Vec<Found> = serde_json::from_str(&found).unwrap();
    widths.iter().copied().zip(found).collect()
}

/// Returns a page with one frame for each width. The script examines the frames when all frames are loaded.
fn frames(page: &str, widths: &[u32]) -> String {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = |width: &u32| {
        format!(
            "<iframe style=\"border:0;width:{width}px;height:800px\" srcdoc=\"{page}\"></iframe>"
        )
    };
    let frames: Vec<String> = widths.iter().map(frame).collect();
    format!(
        "<!DOCTYPE html><body>{}<pre id=\"found\"></pre><script>{PROBE}</script></body>",
        frames.concat()
    )
}

fn wait(mut browser: Child) {
    let end = Instant::now() + PATIENCE;
    while browser.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            browser.kill().unwrap();
            browser.wait().unwrap();
            panic!("the browser was not done in {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

impl Found {
    /// Fails unless these plots exist, have names, and have lines whose coordinates lie in the drawing.
    pub fn check_plots(&self, ids: &[&str]) {
        let found: Vec<&str> = self.plots.iter().map(|plot| plot.id.as_str()).collect();
        assert_eq!(found, ids);
        for plot in &self.plots {
            let Drawn {
                id, width, height, ..
            } = plot;
            assert!(
                !plot.title.is_empty() && !plot.description.is_empty(),
                "{id}"
            );
            assert!(*width > 200.0 && *height > 50.0, "{id}: {width} x {height}");
            assert!(!plot.paths.is_empty(), "{id} has no lines");
            for (path, length) in &plot.paths {
                assert!(length.is_finite() && *length > 0.0, "{id}: {path}");
                let numbers =
                    path.split(|c: char| !"0123456789.-".contains(c) && !c.is_alphabetic());
                let numbers = numbers.flat_map(|part| part.split(['M', 'L', 'H', 'V', 'Z']));
                let numbers = numbers.filter(|number| !number.is_empty());
                numbers.for_each(|number| assert_place(id, number));
            }
            plot.numbers
                .iter()
                .for_each(|number| assert_place(id, number));
        }
    }

    /// Fails unless each table has lines, and each line has all its cells, a name, and a figure of umsg.
    pub fn check_tables(&self) {
        assert!(self.tables.len() > 5);
        for Filled {
            name,
            columns,
            rows,
        } in &self.tables
        {
            assert!(!rows.is_empty(), "{name} is empty");
            for row in rows {
                assert_eq!(row.len(), *columns, "{name}: {row:?}");
                // The cells of a row are the label, the unit, and then umsg's figure.
                let has_figure = row[2].contains(|c: char| c.is_ascii_digit());
                assert!(!row[0].is_empty() && has_figure, "{name}: {row:?}");
            }
        }
    }

    /// Fails if anything is wider than the frame, except inside of boxes that scroll.
    pub fn check_width(&self, width: u32) {
        assert_eq!(self.outside, [""; 0], "at {width}");
        assert!(
            self.scroll_width <= f64::from(width),
            "{} at {width}",
            self.scroll_width
        );
    }
}

/// Fails unless a coordinate lies in a drawing. A drawing is at most 360 units wide and 360 units high; the check allows some tolerance.
fn assert_place(id: &str, number: &str) {
    let place: f64 = number.parse().unwrap_or(f64::NAN);
    assert!((-20.0..=400.0).contains(&place), "{id}: {number}");
}
