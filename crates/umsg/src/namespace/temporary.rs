//! Temporary names, and the sweep that removes the files of dead creators.
//!
//! A name is `.tmp-NS-PID-START-N`: the inode number of the creator's PID namespace, the creator's process id and its start time in clock ticks
//! (field 22 of /proc/PID/stat), and a counter. These values are enough to prove that a creator is dead. The sweep keeps the file of every other
//! creator.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{self, AtFlags, Dir, Mode, OFlags};
use rustix::io::{self, Errno};
use rustix::process::{Pid, getpid, test_kill_process};

use super::directory::Directory;
use super::error::NamespaceError;
use super::{Namespace, caller, home, transient};

const PREFIX: &str = ".tmp-";

/// The name of a temporary file, as a path from the directory for which the file was created.
#[derive(Debug)]
pub(super) struct TemporaryName(String);

impl TemporaryName {
    /// Returns a name that this process has not used yet.
    pub(super) fn next(to_namespace: &str) -> TemporaryName {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        // Relaxed: no data are published; the numbers only have to differ.
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        TemporaryName(format!(
            "{to_namespace}{PREFIX}{}-{n}",
            Maker::this_process()
        ))
    }

    pub(super) fn path(&self) -> &OsStr {
        OsStr::new(&self.0)
    }

    /// Removes the temporary file, or the temporary directory of a queue. Returns whether it was removed. Later sweeps remove what remains.
    pub(super) fn remove(&self, directory: &Directory) -> bool {
        let (at, path) = directory.locate(self.path());
        match fs::unlinkat(at, &path, AtFlags::empty()) {
            Err(Errno::ISDIR) => transient::remove_temporary(directory, self.path()),
            outcome => outcome.is_ok(),
        }
    }
}

/// Removes the temporary files of dead creators that this user may remove. Failures are left for the next sweep. Returns the number of
/// removed files.
pub(super) fn sweep(directory: &Directory, to_namespace: &str) -> usize {
    sweep_first(directory, to_namespace, usize::MAX)
}

/// Does the same as [`sweep`], for at most `most` files.
pub(super) fn sweep_first(directory: &Directory, to_namespace: &str, most: usize) -> usize {
    let names = stale_names(directory, to_namespace, most).unwrap_or_default();
    let removed = |name| TemporaryName(name).remove(directory);
    names
        .into_iter()
        .filter(|name| removed(name.clone()))
        .count()
}

impl Namespace {
    /// Removes all temporary files of dead creators. Returns the number of removed files.
    ///
    /// # Errors
    /// Fails if the namespace no longer exists.
    pub(crate) fn remove_left_temporary(&self) -> Result<usize, NamespaceError> {
        Ok(sweep(&Directory::open(self.path())?, ""))
    }

    /// Returns the number of files that [`remove_left_temporary`](Self::remove_left_temporary) would remove.
    ///
    /// # Errors
    /// The errors of `remove_left_temporary`.
    pub(crate) fn left_temporary(&self) -> Result<usize, NamespaceError> {
        let directory = Directory::open(self.path())?;
        let names = stale_names(&directory, "", usize::MAX).unwrap_or_default();
        let is_ours = |name: &String| {
            let (at, path) = directory.locate(name);
            let found = fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW);
            caller() == 0 || found.is_ok_and(|stat| stat.st_uid == caller())
        };
        Ok(names.iter().filter(|name| is_ours(name)).count())
    }
}

fn stale_names(directory: &Directory, to_namespace: &str, most: usize) -> io::Result<Vec<String>> {
    let (at, path) = directory.locate(if to_namespace.is_empty() {
        "."
    } else {
        to_namespace
    });
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let entries = Dir::new(fs::openat(at, &path, flags, Mode::empty())?)?;
    let names = entries.take(most).filter_map(|entry| {
        let name = OsStr::from_bytes(entry.ok()?.file_name().to_bytes())
            .to_str()?
            .to_owned();
        is_stale(&name).then(|| format!("{to_namespace}{name}"))
    });
    Ok(names.collect())
}

/// Returns whether a file has a temporary name, regardless of its creator.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX.as_bytes())
}

fn is_stale(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .and_then(Maker::parse)
        .is_some_and(|maker| maker.is_dead())
}

/// The creator of a temporary file. Zero means unknown.
#[derive(Debug, PartialEq, Eq)]
struct Maker {
    pid_namespace: u64,
    pid: i32,
    start: u64,
}

impl std::fmt::Display for Maker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.pid_namespace, self.pid, self.start)
    }
}

impl Maker {
    fn this_process() -> Maker {
        let pid = getpid().as_raw_nonzero().get();
        Maker {
            pid_namespace: this_pid_namespace(),
            pid,
            start: start_time(pid).unwrap_or(0),
        }
    }

    fn parse(text: &str) -> Option<Maker> {
        let mut parts = text.split('-');
        let pid_namespace = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        let start = parts.next()?.parse().ok()?;
        parts.next()?.parse::<u32>().ok()?;
        parts.next().is_none().then_some(Maker {
            pid_namespace,
            pid,
            start,
        })
    }

    /// Returns whether the creator is proved dead: it belongs to this PID namespace, and either no process has its id, or the process with its
    /// id started at another time.
    fn is_dead(&self) -> bool {
        if self.pid_namespace == 0 || self.pid_namespace != this_pid_namespace() {
            return false;
        }
        let Some(pid) = Pid::from_raw(self.pid) else {
            return false;
        };
        let gone = test_kill_process(pid) == Err(Errno::SRCH);
        let other = start_time(self.pid).is_some_and(|now| self.start != 0 && now != self.start);
        gone || other
    }
}

fn this_pid_namespace() -> u64 {
    home::pid_namespace().map_or(0, |id| id.inode)
}

/// Returns the time at which a process started, in clock ticks after boot; None if /proc does not show it.
fn start_time(pid: i32) -> Option<u64> {
    let stat = umsg_shm::sys::file::read(&format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in parentheses, and may contain any bytes. The 22nd field is the 20th after it.
    let after = stat.iter().rposition(|&b| b == b')')? + 1;
    let rest = str::from_utf8(&stat[after..]).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::namespace::testing::{TestDir, forking};

    /// Returns the name of a temporary file whose creator is dead.
    pub(in crate::namespace) fn name_of_the_dead() -> String {
        name_of(&dead_maker())
    }

    fn name_of(maker: &Maker) -> String {
        format!("{PREFIX}{maker}-7")
    }

    /// Returns a creator that has been reaped. For a long time, no new process gets its process id.
    fn dead_maker() -> Maker {
        let _forking = forking();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        child.wait().unwrap();
        Maker {
            pid,
            ..Maker::this_process()
        }
    }

    #[test]
    fn a_sweep_removes_the_files_of_the_dead_and_no_others() {
        let dir = TestDir::new();
        let living = Maker::this_process();
        let elsewhere = Maker {
            pid_namespace: living.pid_namespace + 1,
            ..dead_maker()
        };
        let keep = [
            name_of(&living),
            name_of(&elsewhere),
            ".tmp-x".into(),
            "1-2-3-4".into(),
        ];
        for name in keep.iter().chain([&name_of(&dead_maker())]) {
            std::fs::write(dir.path().join(name), b"").unwrap();
        }
        let directory = Directory::open(dir.path()).unwrap();
        assert_eq!(sweep(&directory, ""), 1);
        assert_eq!(sweep(&directory, ""), 0);
        let mut expected = keep.to_vec();
        expected.sort();
        assert_eq!(dir.names(), expected);
    }

    #[test]
    fn a_reused_process_number_is_recognised_by_its_start_time() {
        let mine = Maker::this_process();
        assert!(mine.start != 0 && !mine.is_dead());
        assert!(
            Maker {
                start: mine.start + 1,
                ..mine
            }
            .is_dead()
        );
    }

    #[test]
    fn names_are_read_back_and_never_repeat() {
        let (one, two) = (TemporaryName::next("../"), TemporaryName::next("../"));
        assert_ne!(one.0, two.0);
        let maker = Maker::parse(one.0.strip_prefix("../.tmp-").unwrap());
        assert_eq!(maker, Some(Maker::this_process()));
    }
}
