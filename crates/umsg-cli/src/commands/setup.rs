//! `umsg setup`.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use umsg::{Namespace, NamespaceError, OutOfSight, SetupReport, TMPFILES};

use crate::cli::{Cli, OwnIdentity};
use crate::failure::{Code, Failure, Result, say};
use crate::output::owner::Owners;
use crate::output::{self, Format, json, text};
use crate::place;

/// The directory of the namespace that all users share. Every program looks for this directory.
const SHARED: &str = "/dev/shm/umsg";

/// Create the namespace that all users share (root only)
///
/// The command creates /dev/shm/umsg, or the directory that --dir names. The command ignores UMSG_DIR. The directory belongs to root and is sticky:
/// all users can create queues, and no user can remove another user's queue. If the directory exists, the command keeps it. Running programs keep
/// their namespace; programs that start later use the shared namespace if UMSG_DIR is not set.
///
/// /dev/shm is empty after a boot. --print-tmpfiles prints the lines for tmpfiles.d(5) that create the directory at boot.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo umsg setup
  sudo umsg setup --dir /dev/shm/test   for UMSG_DIR=/dev/shm/test
  umsg setup --print-tmpfiles | sudo tee /etc/tmpfiles.d/umsg.conf

Environment:
  UMSG_DIR  is ignored: without --dir the directory is /dev/shm/umsg")]
pub struct Setup {
    /// The directory to create [default: /dev/shm/umsg]
    #[arg(id = "dir", long = "dir", value_name = "DIR")]
    _dir: Option<PathBuf>,
    #[command(flatten)]
    _own_identity: OwnIdentity,
    /// Print the lines for tmpfiles.d(5), and create nothing
    #[arg(long, conflicts_with = "json")]
    print_tmpfiles: bool,
    #[command(flatten)]
    format: Format,
}

/// The result of `umsg setup`, as --json prints it.
#[derive(Serialize)]
struct Report {
    path: String,
    directory_made: bool,
    mode_changed: bool,
    queues_directory_made: bool,
    record_written: bool,
    out_of_sight: Vec<Hidden>,
}

#[derive(Serialize)]
struct Hidden {
    path: String,
    uid: u32,
    queues: usize,
}

impl Setup {
    pub fn perform(&self, cli: &Cli) -> Result {
        let mut out = output::standard()?;
        let path = std::path::absolute(cli.dir.as_deref().unwrap_or(Path::new(SHARED)))?;
        if self.print_tmpfiles {
            out.write_all(lines(&path)?.as_bytes())?;
            return Ok(out.flush()?);
        }
        check_contents(&path)?;
        let report = Namespace::setup_shared(&path).map_err(refused)?;
        if self.format.json {
            json::print(&mut out, &Report::new(&report))?;
        } else {
            print(&mut out, &report)?;
            warn(&report.out_of_sight);
        }
        Ok(out.flush()?)
    }
}

/// Returns the lines of tmpfiles.d(5) for a directory. Fails if the path has characters with a special meaning in tmpfiles.d(5).
fn lines(path: &Path) -> Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    match path.to_str().filter(|path| path.chars().all(plain)) {
        Some(path) => Ok(TMPFILES.replace(SHARED, path)),
        None => Err(Failure::new(
            Code::Failed,
            format_args!(
                "{}: tmpfiles.d(5) needs a path of letters, digits and / . _ + -; choose another with --dir",
                path.display()
            ),
        )),
    }
}

/// Refuses a directory with other files, such as /etc, because the command would give all users write access to the directory.
fn check_contents(path: &Path) -> Result {
    let open_already = path.metadata().is_ok_and(|is| is.mode() & 0o7777 == 0o1777);
    // If the directory can't be read, the library reports the error.
    let Ok(entries) = std::fs::read_dir(path) else {
        return Ok(());
    };
    let is_own = |name: &OsStr| {
        ["bell", "mq", "msg", "own", "ring"]
            .iter()
            .any(|own| name == *own)
            || name == ".changes"
            || name.as_bytes().starts_with(b".namespace")
    };
    let other = entries.flatten().find(|entry| !is_own(&entry.file_name()));
    match other {
        Some(other) if !open_already => Err(Failure::new(
            Code::Failed,
            format_args!(
                "{} holds other files, such as {}, and would be open to all users; give --dir a directory that is empty or does not exist",
                path.display(),
                text::on_one_line(other.file_name().as_bytes())
            ),
        )),
        _ => Ok(()),
    }
}

/// Replaces the library's advice for users of a namespace by advice for its creator.
fn refused(error: NamespaceError) -> Failure {
    let (path, what) = match &error {
        NamespaceError::Missing { path } => (
            path,
            "does not exist; create it first, with search permission for all users",
        ),
        NamespaceError::NotADirectory { path } => {
            (path, "is not a directory; choose another place with --dir")
        }
        NamespaceError::Symlink { path } => (path, "is a symbolic link; give --dir its target"),
        NamespaceError::NotWritable { path, .. } => (
            path,
            "can't hold queues, because no files can be created there; choose another place with --dir",
        ),
        NamespaceError::HoldsOtherFiles { path, .. } => (
            path,
            "holds other files; give --dir a directory that is empty or does not exist",
        ),
        _ => return error.into(),
    };
    Failure::new(Code::Failed, format_args!("{} {what}", path.display()))
}

fn print(out: &mut impl Write, report: &SetupReport) -> io::Result<()> {
    let path = report.path.display();
    let changed = report.mode_changed || report.queues_directory_made || report.record_written;
    match (report.directory_made, changed) {
        (true, _) => writeln!(out, "{path}: created, for all users")?,
        (false, true) => writeln!(out, "{path}: completed, for all users")?,
        (false, false) => writeln!(out, "{path}: already complete")?,
    }
    if report.path != Path::new(SHARED) {
        writeln!(
            out,
            "programs use it with UMSG_DIR={path} or `umsg --dir {path}`"
        )?;
    }
    Ok(())
}

/// Warns about queues in the private namespaces of users: running programs keep using these namespaces, and later programs use the shared namespace.
fn warn(out_of_sight: &[OutOfSight]) {
    let owners = Owners::new();
    for OutOfSight {
        path, user, queues, ..
    } in out_of_sight
    {
        let (path, user) = (path.display(), owners.name(*user));
        let noun = if *queues == 1 { "queue" } else { "queues" };
        say(format_args!(
            "{path}: new programs no longer find the {queues} {noun} of user {user} in this directory; set UMSG_DIR={path} to use them"
        ));
    }
}

impl Report {
    fn new(report: &SetupReport) -> Report {
        let hidden = |hidden: &OutOfSight| Hidden {
            path: place::path(&hidden.path),
            uid: hidden.user,
            queues: hidden.queues,
        };
        Report {
            path: place::path(&report.path),
            directory_made: report.directory_made,
            mode_changed: report.mode_changed,
            queues_directory_made: report.queues_directory_made,
            record_written: report.record_written,
            out_of_sight: report.out_of_sight.iter().map(hidden).collect(),
        }
    }
}
