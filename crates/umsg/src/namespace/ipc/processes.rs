//! The search in /proc for the IPC namespaces that processes, mounts and descriptors keep alive.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs as files;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use umsg_shm::sys::ipc_namespace::{self, IpcNamespace};
use umsg_shm::sys::stat::Stat;

use super::super::caller;

/// The name of the process of a supervisor, which acts for the programs of `umsg run`. No usual file name of a program has this beginning.
pub const SUPERVISOR: &CStr = c"umsg:supervisor";

/// The IPC namespaces of other processes.
pub(super) struct Others {
    pub(super) found: Vec<IpcNamespace>,
    /// False if the caller can't see the namespace of a process that may use the directory. For root, this can be any process. For another user, it
    /// is a process of the same user, for example one that is not dumpable.
    are_all_seen: bool,
    /// True if the identity of a process's namespace could not be read, for example because the caller had no descriptor left.
    pub(super) has_failed: bool,
}

impl Others {
    /// Reads the IPC namespaces of all processes except `but`, until `is_enough` returns true for the namespaces found so far.
    pub(super) fn look(but: Option<u32>, is_enough: impl Fn(&[IpcNamespace]) -> bool) -> Others {
        /// The maximum number of listings of /proc. On a machine where processes start all the time, each listing has a new process.
        const ROUNDS: usize = 4;
        let mut others = Others {
            found: Vec::new(),
            are_all_seen: true,
            has_failed: false,
        };
        let mut processes = BTreeSet::<u32>::new();
        for _ in 0..ROUNDS {
            // A process may fork and end before this search has read its namespace: the next listing shows the child.
            let mut new = others.numbers("/proc");
            new.retain(|process| Some(*process) != but && !processes.contains(process));
            if new.is_empty() {
                break;
            }
            for process in &new {
                let tasks = format!("/proc/{process}/task");
                for task in others.numbers(&tasks) {
                    let link = format!("{tasks}/{task}/ns/ipc");
                    if others.add(Some(*process), &link) && is_enough(&others.found) {
                        return others;
                    }
                }
            }
            processes.extend(new);
        }
        // An IPC namespace can live without a process, because of a mount or a descriptor.
        let mounts = files::read("/proc/self/mountinfo");
        others.has_failed |= mounts.is_err();
        let mounts = String::from_utf8_lossy(&mounts.unwrap_or_default()).into_owned();
        for line in mounts.lines().filter(|line| line.contains(" ipc:[")) {
            let known = others.found.len();
            let Some((inode, path)) = mounted(line) else {
                continue;
            };
            others.add(None, &path);
            // The path may lead to another file: the caller has another root, or another mount covers this mount.
            others.has_failed |= !others.found.iter().any(|found| found.inode == inode);
            if others.found.len() > known && is_enough(&others.found) {
                return others;
            }
        }
        for process in processes {
            let all = format!("/proc/{process}/fd");
            for number in others.numbers(&all) {
                let link = format!("{all}/{number}");
                let is_ipc = files::read_link(&link)
                    .is_ok_and(|to| to.as_os_str().as_encoded_bytes().starts_with(b"ipc:["));
                if is_ipc && others.add(Some(process), &link) && is_enough(&others.found) {
                    return others;
                }
            }
        }
        others
    }

    /// Returns the numbers among the names in a directory of /proc. Sets `has_failed` if the listing ends early, because any process may be missing
    /// in the list. A directory that can't be listed at all is no failure if its process has ended or belongs to another user.
    fn numbers(&mut self, directory: &str) -> Vec<u32> {
        let mut numbers = Vec::new();
        let mut read = || {
            for entry in files::read_dir(directory)? {
                numbers.extend(
                    entry?
                        .file_name()
                        .to_str()
                        .and_then(|name| name.parse::<u32>().ok()),
                );
            }
            Ok(())
        };
        let usual = [Errno::NOENT, Errno::SRCH, Errno::ACCESS, Errno::PERM];
        self.has_failed |= read().is_err_and(|error: std::io::Error| {
            directory == "/proc"
                || !Errno::from_io_error(&error).is_some_and(|it| usual.contains(&it))
        });
        numbers
    }

    /// Adds the namespace to which a link leads, unless the link is a supervisor's. Returns whether the namespace was not known before.
    fn add(&mut self, process: Option<u32>, link: &str) -> bool {
        let inode = match ipc_namespace::inode(link) {
            Ok(inode) => inode,
            Err(error) => {
                let is_hidden = [Errno::ACCESS, Errno::PERM].contains(&error);
                self.are_all_seen &= !is_hidden || !process.is_none_or(may_use);
                self.has_failed |= [Errno::NOMEM, Errno::MFILE, Errno::NFILE].contains(&error);
                return false;
            }
        };
        if self.found.iter().any(|known| known.inode == inode) || process.is_some_and(is_supervisor)
        {
            return false;
        }
        match ipc_namespace::of(link) {
            Ok(found) => {
                self.found.push(found);
                true
            }
            Err(error) => {
                // These two errors mean that the process has ended after the listing.
                self.has_failed |= ![Errno::NOENT, Errno::SRCH].contains(&error);
                false
            }
        }
    }

    /// Returns whether no hidden process can use a directory that the caller may remove.
    pub(super) fn suffice(&self, base: &Path) -> bool {
        !self.has_failed && (self.are_all_seen || caller() == 0 && is_closed(base))
    }

    pub(super) fn have(&self, namespace: IpcNamespace) -> bool {
        self.found.contains(&namespace)
    }
}

/// Returns whether a process that /proc hides may use a directory that the caller may remove. Only processes of its owner use an ordinary user's
/// directory. Processes of all users may use root's directories.
fn may_use(process: u32) -> bool {
    caller() == 0 || Stat::real_user(process).is_none_or(|user| user == caller())
}

/// Returns whether a process is a supervisor, which stays in the IPC namespace in which it was started and uses queues for its programs only. If
/// another program takes the name of a supervisor, the search ignores that program: the directory that the program uses may be removed, but no
/// directory that a process of another name uses.
fn is_supervisor(process: u32) -> bool {
    files::read(format!("/proc/{process}/comm"))
        .is_ok_and(|name| name.trim_ascii_end() == SUPERVISOR.to_bytes())
}

/// Returns the inode of the IPC namespace that a line of mountinfo shows, and the path of the mount. Source: proc_pid_mountinfo(5).
fn mounted(line: &str) -> Option<(u64, String)> {
    let mut fields = line.split(' ').skip(3);
    let root = fields.next()?.strip_prefix("ipc:[")?.strip_suffix(']')?;
    let mut path = fields.next()?.to_owned();
    for (code, byte) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        path = path.replace(code, byte);
    }
    Some((root.parse().ok()?, path))
}

/// Returns whether only the caller and root can use the directory.
fn is_closed(base: &Path) -> bool {
    files::metadata(base).is_ok_and(|base| base.mode() & 0o077 == 0 && base.uid() == caller())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::TestDir;
    use umsg_shm::sys::ipc_namespace::OWN;

    #[test]
    fn a_list_of_processes_that_fails_removes_nothing() {
        let dir = TestDir::new();
        let base = dir.namespace();
        let mut others = Others {
            found: vec![],
            are_all_seen: true,
            has_failed: false,
        };
        assert_eq!(others.numbers("/proc/4294967295/task"), vec![]);
        assert!(others.suffice(base.path()), "an ended process");
        assert!(others.numbers("/proc").contains(&std::process::id()));
        assert!(others.suffice(base.path()));
        assert_eq!(others.numbers("/proc/version"), vec![]);
        assert!(!others.suffice(base.path()), "no list");
    }

    #[test]
    fn a_mount_of_a_namespace_has_its_inode_and_path() {
        let line = "521 26 0:4 ipc:[4026532177] /run/a\\040name/ipc rw shared:9 - nsfs nsfs rw";
        let expected = Some((4_026_532_177, "/run/a name/ipc".to_owned()));
        assert_eq!(mounted(line), expected);
        assert_eq!(mounted("521 26 0:4 /x ipc:[1] rw - tmpfs none rw"), None);
    }

    #[test]
    fn a_namespace_that_a_descriptor_keeps_lives() {
        let kept = files::File::open(OWN).unwrap();
        let others = Others::look(None, |_| false);
        assert!(others.have(ipc_namespace::of(OWN).unwrap()));
        drop(kept);
    }
}
