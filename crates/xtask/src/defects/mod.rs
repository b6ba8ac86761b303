//! `cargo xtask defects`: whether the soak fails if it should.
//!
//! Each of a list of plausible defects is planted into a copy of the sources, one at a time; then the soak of its face has to fail,
//! within the time that was asked for. Which did, after how long and with which words, is printed.

mod list;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::soak::Wish;
use crate::workspace::Workspace;
use list::{DEFECTS, Defect};

/// What is copied: what a build of the library's tests needs.
const COPIED: [&str; 6] = [
    "Cargo.toml",
    "Cargo.lock",
    "crates",
    "examples",
    "docs",
    "README.md",
];

/// Plants the defects whose names contain one of these words, or all; `minutes` is how long each soak may take to notice.
pub fn run(workspace: &Workspace, words: &[String], minutes: f64) -> Result<()> {
    interrupt::install();
    let nursery = Nursery::new(workspace)?;
    let is_meant = |defect: &&Defect| {
        words.is_empty() || words.iter().any(|word| defect.name.contains(&word[..]))
    };
    let mut unnoticed = Vec::new();
    for defect in DEFECTS.iter().filter(is_meant) {
        let noticed = nursery.plant(defect, minutes)?;
        println!("{}: {}", defect.name, defect.what);
        match noticed {
            Some(Noticed { after, words }) => {
                println!("    noticed after {:.1} s: {words}", after.as_secs_f64());
            }
            None => {
                println!("    NOT NOTICED");
                unnoticed.push(defect.name);
            }
        }
    }
    match unnoticed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "not noticed: {}",
            unnoticed.join(", ")
        ))),
    }
}

/// A soak's failure.
struct Noticed {
    after: Duration,
    words: String,
}

/// A copy of the sources, in which defects grow.
struct Nursery {
    copy: Workspace,
}

impl Nursery {
    fn new(workspace: &Workspace) -> Result<Nursery> {
        let copy = Workspace {
            root: workspace.target.join("defects"),
            // What the library depends on need not be built again.
            target: workspace.target.clone(),
        };
        let _ = fs::remove_dir_all(&copy.root);
        fs::create_dir_all(&copy.root).context(copy.root.display())?;
        let mut all = Command::new("cp");
        all.current_dir(&workspace.root).args(["-a", "--"]);
        all.args(COPIED).arg(&copy.root);
        let status = interrupt::run(&mut all)?;
        match status.success() {
            true => Ok(Nursery { copy }),
            false => Err(Failure::new("the sources could not be copied")),
        }
    }

    fn file(&self, defect: &Defect) -> PathBuf {
        source(&self.copy.root, defect)
    }

    /// The library's tests in a debug build, which is soon made anew, in which processes die at named points.
    fn tests(&self) -> Command {
        let mut tests = self.copy.cargo(&["test", "--quiet", "-p", "umsg"]);
        tests.args(["--features", "crash-points"]);
        tests.env("CARGO_TARGET_DIR", &self.copy.target);
        tests
    }

    /// Has the soak run with the defect in place.
    fn plant(&self, defect: &Defect, minutes: f64) -> Result<Option<Noticed>> {
        let path = self.file(defect);
        let sound = fs::read_to_string(&path).context(path.display())?;
        fs::write(&path, sound.replace(defect.old, defect.new)).context(path.display())?;
        let noticed = self.soak(defect, minutes);
        fs::write(&path, sound).context(path.display())?;
        noticed
    }

    fn soak(&self, defect: &Defect, minutes: f64) -> Result<Option<Noticed>> {
        let mut build = Wish::new(minutes, None).command_in(self.tests(), defect.face);
        build.args(["--list"]).stdout(Stdio::null());
        if !interrupt::run(&mut build)?.success() {
            return Err(Failure::new(format!("{} does not build", defect.name)));
        }
        let mut soak = Wish::new(minutes, None).command_in(self.tests(), defect.face);
        soak.env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        let begun = Instant::now();
        let mut child = soak.spawn().context(defect.name)?;
        let words = complaint(&mut child);
        let after = begun.elapsed();
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        child.wait().context(defect.name)?;
        interrupt::check()?;
        Ok(words.map(|words| Noticed { after, words }))
    }
}

/// What the first panic says that a soak prints, if there is one before its end.
fn complaint(child: &mut Child) -> Option<String> {
    let lines = BufReader::new(child.stderr.take()?).lines();
    let mut lines = lines.map_while(std::result::Result::ok);
    lines.find(|line| line.contains("panicked at"))?;
    lines.find(|line| !line.trim().is_empty())
}

fn source(root: &Path, defect: &Defect) -> PathBuf {
    root.join("crates/umsg/src").join(defect.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_defect_can_be_planted_at_one_place() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut names = BTreeSet::new();
        for defect in DEFECTS {
            let text = fs::read_to_string(source(&root, defect)).unwrap();
            assert_eq!(text.matches(defect.old).count(), 1, "{}", defect.name);
            assert_ne!(defect.old, defect.new, "{}", defect.name);
            assert!(names.insert(defect.name), "{}", defect.name);
        }
    }

    #[test]
    fn the_first_complaint_of_a_soak_is_what_it_failed_with() {
        let script = "echo round 1 >&2; echo \"thread 'x' panicked at a.rs:1:1:\" >&2; echo lost >&2; echo later >&2";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stderr(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        assert_eq!(complaint(&mut child).as_deref(), Some("lost"));
        child.wait().unwrap();
    }
}
