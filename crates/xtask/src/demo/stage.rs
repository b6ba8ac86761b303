//! The stage of the demonstration: its programs, and its namespaces, which are removed with the stage.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::shell;
use crate::workspace::Workspace;

/// Debian's user and group for a process that owns nothing.
const NOBODY: u32 = 65_534;

/// The files of a release build that the demo runs.
const PROGRAMS: [&str; 2] = ["umsg", "libumsg_preload.so"];

/// Returns whether a release build has made the files that the demo runs.
pub fn is_built(workspace: &Workspace) -> bool {
    PROGRAMS.iter().all(|file| workspace.release(file).exists())
}

/// The programs of the demonstration.
pub struct Stage {
    /// Readable by all users, because an unprivileged user runs programs from it.
    directory: TempDir,
    pub root: bool,
    /// True for one round of each measurement.
    quick: bool,
}

impl Stage {
    /// Copies the programs to a place from which an unprivileged user can run them. The checkout may belong to another user.
    pub fn new(workspace: &Workspace, quick: bool) -> Result<Self> {
        let root = geteuid().is_root();
        let directory = tempfile::Builder::new()
            .prefix("umsg-demo-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(Self::place(workspace, root))
            .context("a directory for the demo's programs")?;
        let stage = Self {
            directory,
            root,
            quick,
        };
        for file in PROGRAMS {
            let built = workspace.release(file);
            fs::copy(&built, stage.program(file)).context(built.display())?;
        }
        Ok(stage)
    }

    /// Returns the target directory, because a temporary directory may forbid running programs. Returns the temporary
    /// directory for root, whose checkout the unprivileged user may not be able to read, and if LD_PRELOAD can't name
    /// the target directory.
    fn place(workspace: &Workspace, root: bool) -> PathBuf {
        let target = workspace.target.to_string_lossy();
        match root || target.contains([' ', ':']) {
            true => std::env::temp_dir(),
            false => workspace.target.clone(),
        }
    }

    /// Returns the number of rounds of a measurement that usually has `usual` rounds.
    pub fn rounds(&self, usual: usize) -> usize {
        if self.quick { 1 } else { usual }
    }

    /// Returns the path of a program of umsg.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Compiles a C program that knows only <mqueue.h>.
    pub fn compile(&self, name: &str, source: &str) -> Result<PathBuf> {
        let file = self.program(&format!("{name}.c"));
        fs::write(&file, source).context(file.display())?;
        let program = self.program(name);
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O2", "-o"])
            .arg(&program)
            .arg(&file);
        // Before glibc 2.34, the functions are in librt.
        cc.arg("-lrt");
        if interrupt::run(&mut cc)?.success() {
            Ok(program)
        } else {
            Err(Failure::new(format!("cc can't compile {name}.c")))
        }
    }

    /// Writes a script.
    pub fn script(&self, name: &str, source: &str) -> Result<PathBuf> {
        let file = self.program(name);
        fs::write(&file, source).context(file.display())?;
        Ok(file)
    }

    /// Returns a namespace of the caller.
    pub fn namespace(&self) -> Result<Namespace> {
        Namespace::new(self, None)
    }

    /// Returns a namespace of an unprivileged user: of the caller, unless the caller is root.
    pub fn unprivileged_namespace(&self) -> Result<Namespace> {
        Namespace::new(self, self.root.then_some(NOBODY))
    }
}

/// A directory of queues, and its user.
pub struct Namespace {
    directory: TempDir,
    umsg: PathBuf,
    user: Option<u32>,
}

impl Namespace {
    fn new(stage: &Stage, user: Option<u32>) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("umsg-demo-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in("/dev/shm")
            .context("a directory in /dev/shm")?;
        if user.is_some() {
            chown(directory.path(), user, user).context(directory.path().display())?;
        }
        Ok(Self {
            directory,
            umsg: stage.program("umsg"),
            user,
        })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the user of this namespace's programs; None for the caller.
    pub fn user(&self) -> Option<u32> {
        self.user
    }

    /// Returns the command that runs a program on the kernel's queues, as the namespace's user.
    pub fn on_kernel(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments);
        self.as_user(command)
    }

    /// Returns the command that runs a program under `umsg run`, as the namespace's user.
    pub fn on_umsg(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = self.umsg(&["run", "--"]);
        command.arg(program).args(arguments);
        command
    }

    /// Returns a command of the command line tool `umsg` on this namespace.
    pub fn umsg(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.umsg);
        command.args(arguments).env("UMSG_DIR", self.path());
        self.as_user(command)
    }

    fn as_user(&self, mut command: Command) -> Command {
        if let Some(user) = self.user {
            // Setting the user drops the capabilities and, from root, the supplementary groups too.
            command.uid(user).gid(user).current_dir("/");
        }
        command
    }
}

/// Runs a program that has to succeed, and returns its output.
pub fn answer(command: &mut Command) -> Result<String> {
    let output = interrupt::output(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Failure::new(format!(
        "{} ended with {}: {}",
        shell::line(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}
