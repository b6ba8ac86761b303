//! `cargo xtask defects`: checks that the soak, and tests of parts that no soak uses, fail if they should.
//!
//! The task plants each of a list of plausible defects into a copy of the sources, one at a time. Then the soak of the defect's API, or the test that
//! the list names, has to fail within the given time, and to report the defect's effect. Another failure is not accepted. The task prints the soak or
//! test that failed, the time that passed, and the words of the failure.
//!
//! First, the soak or test has to pass on the copy without a defect; a soak runs for the same time. A soak that fails without a defect, for example
//! because the machine is too busy, would "notice" every defect.

mod beside;
mod delivery;
mod list;
mod modelled;
mod straight;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::soak::Wish;
use crate::workspace::Workspace;
use list::{By, Defect};

/// The files and folders that the task copies: the library's tests are built from them.
const COPIED: [&str; 6] = [
    "Cargo.toml",
    "Cargo.lock",
    "crates",
    "examples",
    "docs",
    "README.md",
];

/// Plants the defects whose names contain one of these words, or all defects. Each soak has `minutes` to notice its defect.
pub fn run(workspace: &Workspace, words: &[String], minutes: f64) -> Result<()> {
    interrupt::install();
    let nursery = Nursery::new(workspace)?;
    let is_meant = |defect: &&Defect| {
        words.is_empty() || words.iter().any(|word| defect.name.contains(&word[..]))
    };
    let meant: Vec<&Defect> = all().filter(is_meant).collect();
    let noticers: BTreeSet<By> = meant.iter().map(|defect| defect.by).collect();
    for by in noticers {
        nursery.expect_sound(by, minutes)?;
    }
    let mut unnoticed = Vec::new();
    for defect in meant {
        let noticed = nursery.plant(defect, minutes)?;
        println!("{}: {}", defect.name, defect.what);
        match noticed {
            Some(noticed) if noticed.is_of(defect) => println!("    noticed {noticed}"),
            Some(other) => {
                println!("    NOT NOTICED, but something else {other}");
                unnoticed.push(defect.name);
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

/// Returns all defects.
fn all() -> impl Iterator<Item = &'static Defect> {
    let lists = [
        list::DEFECTS,
        delivery::DEFECTS,
        beside::DEFECTS,
        straight::DEFECTS,
        modelled::DEFECTS,
    ];
    lists.into_iter().flatten()
}

/// The failure of a soak or test.
struct Noticed {
    after: Duration,
    words: String,
}

impl Noticed {
    /// Returns whether the failure is the effect of the defect.
    fn is_of(&self, defect: &Defect) -> bool {
        defect
            .finding
            .iter()
            .any(|words| self.words.contains(words))
    }
}

impl fmt::Display for Noticed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "after {:.1} s: {}",
            self.after.as_secs_f64(),
            self.words
        )
    }
}

/// A copy of the sources, into which defects are planted.
struct Nursery {
    copy: Workspace,
}

impl Nursery {
    fn new(workspace: &Workspace) -> Result<Nursery> {
        let bed = workspace.target.join("defects");
        let copy = Workspace {
            root: bed.join("source"),
            // A target folder of its own: otherwise cargo would use a library with a defect for the original checkout.
            target: bed.join("target"),
        };
        let _ = fs::remove_dir_all(&copy.root);
        fs::create_dir_all(&copy.root).context(copy.root.display())?;
        let mut all = Command::new("cp");
        // The copies get the current time, so that cargo rebuilds everything that an earlier run has built with a defect.
        let options = ["-a", "--no-preserve=timestamps", "--"];
        all.current_dir(&workspace.root).args(options);
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

    /// Returns the command that runs the tests of a crate in a debug build, which builds quickly, and in which processes die at named points.
    fn tests(&self, of: &str) -> Command {
        let mut tests = self.copy.cargo(&["test", "--quiet", "-p", of]);
        tests.args(["--features", "crash-points"]);
        tests.env("CARGO_TARGET_DIR", &self.copy.target);
        tests
    }

    /// Returns the command that runs the tests of the engines under the model checker. The build for the model checker has other flags, so it has a
    /// target folder of its own.
    fn models(&self) -> Command {
        let options = ["test", "--quiet", "-p", "umsg-shm", "--profile"];
        let mut models = self.copy.cargo(&options);
        models.args(["fast-tests", "--lib"]);
        models.env("RUSTFLAGS", "--cfg loom");
        models.env("CARGO_TARGET_DIR", self.copy.target.join("loom"));
        models
    }

    /// Plants a defect, runs the soak or test that has to notice it, and takes the defect out again. Returns the failure, if there was one.
    fn plant(&self, defect: &Defect, minutes: f64) -> Result<Option<Noticed>> {
        let path = self.file(defect);
        let sound = fs::read_to_string(&path).context(path.display())?;
        fs::write(&path, sound.replace(defect.old, defect.new)).context(path.display())?;
        let noticed = self.run(defect.name, defect.by, minutes);
        fs::write(&path, sound).context(path.display())?;
        noticed
    }

    /// Fails if a soak or test fails without any defect.
    fn expect_sound(&self, by: By, minutes: f64) -> Result<()> {
        let what = format!("{by} without a defect");
        match self.run(&what, by, minutes)? {
            None => {
                println!("{what}: passes");
                Ok(())
            }
            Some(noticed) => Err(Failure::new(format!(
                "{what} fails {noticed}. Mend this failure first: it would hide the defects"
            ))),
        }
    }

    /// Returns the command that runs the soak or the test.
    fn command(&self, by: By, minutes: f64) -> Command {
        let (mut command, test) = match by {
            By::Soak(face) => return Wish::new(minutes, None).command_in(self.tests("umsg"), face),
            By::Test(program, test) => {
                let mut command = self.tests("umsg");
                command.args(["--test", program]);
                (command, test)
            }
            By::Unit(test) => {
                let mut command = self.tests("umsg-shm");
                command.arg("--lib");
                (command, test)
            }
            By::Model(test) => (self.models(), test),
        };
        command.args(["--", "--nocapture", test]);
        command
    }

    /// Returns the failure of a soak or test, if it fails.
    fn run(&self, what: &str, by: By, minutes: f64) -> Result<Option<Noticed>> {
        let mut build = self.command(by, minutes);
        build.args(["--list"]).stdout(Stdio::null());
        if !interrupt::run(&mut build)?.success() {
            return Err(Failure::new(format!("{what} does not build")));
        }
        let queues = directory().context("/dev/shm")?;
        let mut command = self.command(by, minutes);
        command
            .env("RUST_BACKTRACE", "0")
            .env("UMSG_TEST_DIRECTORY", queues.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let begun = Instant::now();
        let words = failure(&mut command).context(what);
        let after = begun.elapsed();
        remove(queues);
        let words = words?;
        interrupt::check()?;
        Ok(words.map(|words| Noticed { after, words }))
    }
}

/// Makes a directory for the tests' queues. A failed test program is killed, and removes nothing, so this task removes the directory.
fn directory() -> std::io::Result<TempDir> {
    let only_ours = Permissions::from_mode(0o700);
    tempfile::Builder::new()
        .prefix("umsg-defects-")
        .permissions(only_ours)
        .tempdir_in("/dev/shm")
}

/// Removes the directory. Processes of the tests may make files in it until they have died with their program, so the removal is repeated.
fn remove(queues: TempDir) {
    let mut tries = 0..100;
    while fs::remove_dir_all(queues.path()).is_err() && tries.next().is_some() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the failure of a soak or test: its first panic, after which the program is killed, or its exit with a failure.
fn failure(command: &mut Command) -> std::io::Result<Option<String>> {
    let mut child = command.stderr(Stdio::piped()).process_group(0).spawn()?;
    let words = complaint(&mut child);
    if words.is_some() {
        // This fails only if the program has ended.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    let status = child.wait()?;
    Ok(words.or_else(|| (!status.success()).then(|| status.to_string())))
}

/// Returns the text of the first panic that the program prints; None if the program ends without one.
fn complaint(child: &mut Child) -> Option<String> {
    let lines = BufReader::new(child.stderr.take()?).lines();
    let mut lines = lines.map_while(std::result::Result::ok);
    lines.find(|line| line.contains("panicked at"))?;
    lines.find(|line| !line.trim().is_empty())
}

fn source(root: &Path, defect: &Defect) -> PathBuf {
    root.join("crates").join(defect.file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_defect_can_be_planted_at_one_place() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut names = BTreeSet::new();
        for defect in all() {
            let text = fs::read_to_string(source(&root, defect)).unwrap();
            assert_eq!(text.matches(defect.old).count(), 1, "{}", defect.name);
            assert_ne!(defect.old, defect.new, "{}", defect.name);
            assert!(names.insert(defect.name), "{}", defect.name);
            assert!(!defect.finding.is_empty(), "{}", defect.name);
        }
    }

    /// Returns whether a text has a test of this name: a function, or a line in a list from which a macro makes test functions.
    fn has_test(text: &str, test: &str) -> bool {
        let function = format!("fn {test}() {{");
        let mut lines = text.lines().map(str::trim);
        lines.any(|line| line == function || line == test)
    }

    /// Returns the Rust files in a folder and its subfolders; none if there is no such folder.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = folder.read_dir().into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .flat_map(|path| match path.is_dir() {
                true => sources(&path),
                false => vec![path],
            })
            .collect()
    }

    #[test]
    fn each_defect_names_a_test_that_there_is() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for defect in all() {
            let (test, files) = match defect.by {
                By::Soak(_) => continue,
                By::Unit(test) | By::Model(test) => (test, sources(&crates.join("umsg-shm/src"))),
                // The test may be in the file of the test program, or in a file of the folder that has the program's name.
                By::Test(program, test) => {
                    let folder = crates.join("umsg/tests").join(program);
                    let mut files = sources(&folder);
                    files.push(folder.with_extension("rs"));
                    (test, files)
                }
            };
            let is_there = |file: &PathBuf| has_test(&fs::read_to_string(file).unwrap(), test);
            assert!(files.iter().any(is_there), "{}: {test}", defect.name);
        }
    }

    #[test]
    fn a_soak_fails_with_its_first_complaint_or_by_its_end_or_not_at_all() {
        let panics = "echo round 1 >&2; echo \"thread 'x' panicked at a.rs:1:1:\" >&2; echo lost >&2; sleep 1000";
        for (script, expected) in [
            (panics, Some("lost")),
            ("echo round 1 >&2; exit 3", Some("exit status: 3")),
            ("echo round 1 >&2", None),
        ] {
            let mut shell = Command::new("sh");
            let failed = failure(shell.args(["-c", script])).unwrap();
            assert_eq!(failed.as_deref(), expected, "{script}");
        }
    }
}
