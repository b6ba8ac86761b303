//! The place where a page's commands run: as the user ann of a machine on which umsg is installed.
//!
//! User, mount, PID and IPC namespaces keep the commands apart: /dev/shm is empty, the kernel's limits of queues are those of a user, and the end of
//! the script ends all processes that the script has started. unshare(1) makes these namespaces, without root.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::page::Page;
use super::session::{Session, Step};
use super::transcript;
use crate::failure::{Context as _, Failure, Result};
use crate::workspace::Workspace;
use crate::{c, interrupt, programs, shell};

/// The longest time that a page's commands may take.
const LONGEST: Duration = Duration::from_secs(120);

/// The script that becomes root of namespaces of its own, prepares them, and becomes ann.
const ENTER: &str = r#"set -e
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount --bind "$ROOM/passwd" /etc/passwd
cd "$HOME"
exec unshare --user --map-user=1000 --map-group=1000 -- bash "$1"
"#;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000:Ann:/home/ann:/bin/bash\n";

pub struct Room {
    checkout: PathBuf,
    /// `bin`, `lib`, `include` and `share` of the installation; the scripts.
    directory: TempDir,
    has_posix_ipc: bool,
}

impl Room {
    /// Builds and installs umsg: the release build, or a build without optimisation of the parts that the commands need.
    pub fn furnish(workspace: &Workspace, release: bool) -> Result<Room> {
        let parts = ["-p", "umsg-cli", "-p", "umsg-preload", "-p", "umsg-c"];
        let usual = [&["build", "--quiet"], &parts[..]].concat();
        let (mut build, profile) = match release {
            true => (workspace.build_release(), "release"),
            false => (workspace.cargo(&usual), "debug"),
        };
        if !interrupt::run(&mut build)?.success() {
            return Err(Failure::new(format!("{} failed", shell::line(&build))));
        }
        let directory = tempfile::Builder::new()
            .prefix("guide-")
            .tempdir_in(&workspace.target)
            .context("a directory for the guide's commands")?;
        let python = programs::python_with_posix_ipc();
        let room = Room {
            checkout: workspace.root.clone(),
            directory,
            has_posix_ipc: python.is_some(),
        };
        c::install_built(workspace, &room.path(""), release)?;
        for (file, place) in [("umsg", "bin"), ("libumsg_preload.so", "lib")] {
            let from = workspace.target.join(profile).join(file);
            make_directory(&room.path(place))?;
            fs::copy(&from, room.path(place).join(file)).context(from.display())?;
        }
        write(&room.path("passwd"), PASSWD)?;
        write(&room.path("enter"), ENTER)?;
        if let Some(python) = python {
            let script = format!("#!/bin/sh\nexec {} \"$@\"\n", python.to_string_lossy());
            write(&room.path("bin/python3"), &script)?;
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(room.path("bin/python3"), executable).context("python3")?;
        }
        Ok(room)
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a page's commands; returns a sentence for each command whose result differs from the page.
    pub fn run(&self, page: &Page) -> Result<Vec<String>> {
        let session = Session::of(page)?;
        let name = page.path.display();
        if session.steps.is_empty() {
            return Ok(vec![]);
        }
        if !session.needs.is_empty() && !self.has_posix_ipc {
            println!("{name}: not run, because Python's posix_ipc is not installed");
            let is_required = std::env::var_os("CI").is_some();
            return Ok(is_required
                .then(|| format!("{name}: not run"))
                .into_iter()
                .collect());
        }
        let began = Instant::now();
        let place = tempfile::tempdir_in(self.path("")).context("a directory")?;
        let end = self.perform(&session, place.path())?;
        let count = session.steps.len();
        println!(
            "{name}: {count} steps in {:.1} s",
            began.elapsed().as_secs_f64()
        );
        let steps = session.steps.iter().enumerate();
        let faults = steps.filter_map(|(number, step)| fault(step, number, place.path()));
        let faults = faults.map(|(line, why)| format!("{name}:{line}: {why}"));
        // If one step was not run, the following steps were not run either: only the first of these faults is reported.
        let mut faults: Vec<String> = faults.collect();
        if let Some(first) = faults.iter().position(|fault| fault.ends_with(NOT_RUN)) {
            faults.truncate(first + 1);
            faults.push(format!("{name}: the script ended early: {end}"));
        }
        Ok(faults)
    }

    /// Runs the script of a session to its end, or kills the script; returns the output that belongs to no step.
    fn perform(&self, session: &Session, place: &Path) -> Result<String> {
        let script = place.join("script");
        write(&script, &session.script)?;
        let home = place.join("home");
        make_directory(&home)?;
        // The C library of an installation in ann's own directory.
        symlink(self.path(""), home.join(".local")).context(home.display())?;
        let log = place.join("log");
        let output = || fs::File::create(&log).context(log.display());
        let mut child = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "--pid", "--ipc"])
            .args(["--fork", "--kill-child", "--mount-proc", "bash"])
            .arg(self.path("enter"))
            .arg(&script)
            .env_clear()
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", self.path("bin").display()),
            )
            .env("HOME", &home)
            .env("USER", "ann")
            .env("LC_ALL", "C.UTF-8")
            .env("ROOM", self.path(""))
            .env("STEPS", place)
            .env("CHECKOUT", &self.checkout)
            .stdin(Stdio::null())
            .stdout(output()?)
            .stderr(
                fs::OpenOptions::new()
                    .append(true)
                    .open(&log)
                    .context("the log")?,
            )
            .spawn()
            .context("unshare, of util-linux")?;
        let end = Instant::now() + LONGEST;
        let status = loop {
            if let Some(status) = child.try_wait().context("wait")? {
                break status.to_string();
            }
            if interrupt::check().is_err() || Instant::now() > end {
                // Each call fails only if the child has already ended.
                let _ = child.kill();
                let _ = child.wait();
                interrupt::check()?;
                break format!("killed after {} s", LONGEST.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let printed = fs::read_to_string(&log).unwrap_or_default();
        Ok(format!("{status}. {}", printed.trim()))
    }
}

const NOT_RUN: &str = "not run to its end";

/// Returns the number of a command's line, and the reason, if the command's result differs from the page.
fn fault(step: &Step, number: usize, place: &Path) -> Option<(usize, String)> {
    let read = |ending| fs::read_to_string(place.join(format!("{number}.{ending}")));
    let printed = read("out").unwrap_or_default();
    let first = step.commands.lines().next().unwrap_or_default();
    let Ok(end) = read("end") else {
        return Some((step.line, format!("{first}\n{printed}{NOT_RUN}")));
    };
    let is_success = end.trim() == "0";
    let why = match &step.output {
        None => (!is_success).then(|| format!("exit code and failed command: {end}{printed}")),
        Some(shown) => transcript::difference(shown, &printed)
            .or_else(|| (shown.is_empty() && !is_success).then(|| format!("exit code {end}"))),
    };
    why.map(|why| (step.line, format!("{first}\n{why}")))
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).context(file.display())
}

fn make_directory(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).context(directory.display())
}
