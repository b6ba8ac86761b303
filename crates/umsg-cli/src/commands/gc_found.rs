//! Finds the queues and rings that `umsg gc` can remove, with their properties.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use umsg::posix::{self, OpenError, OpenOptions};
use umsg::{Namespace, ring, sysv};

use super::ls::{Kind, shown};
use crate::address::{Label, RING};
use crate::failure::{Code, Explain, Failure, Result};
use crate::output::json::last_activity;
use crate::users::{File, Users};

/// A queue or ring. A property is None if the mode of the queue hides it from the caller.
pub struct Found {
    /// The name as in `umsg ls --quiet`; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// The name as in `umsg ls`.
    pub shown: String,
    pub path: PathBuf,
    /// The identity of the file at the time of the inspection.
    pub file: Option<File>,
    pub messages: Option<u64>,
    /// True if the queue has no message, neither one to receive now nor one that is leased, reserved, delayed or set aside.
    pub is_empty: Option<bool>,
    pub last_used: Option<SystemTime>,
    pub creator: Option<Creator>,
    pub removal: Removal,
}

impl Found {
    /// Returns the processes that have the item open.
    pub fn users(&self, users: &Users) -> Vec<u32> {
        self.file
            .map_or_else(Vec::new, |file| users.of(file).to_vec())
    }

    /// Returns whether the item is the POSIX queue of one of these names.
    pub fn is_one_of(&self, names: &[OsString]) -> bool {
        matches!(&self.removal, Removal::Posix(name) if names.contains(name))
    }

    /// Returns whether another file has taken the name since the inspection.
    pub fn is_another_by_now(&self) -> bool {
        File::at(&self.path) != self.file
    }
}

#[derive(Clone, Copy)]
pub struct Creator {
    pub pid: u32,
    pub lives: bool,
}

/// The way to remove the item.
pub enum Removal {
    Posix(OsString),
    SystemV(i32),
    Ring(OsString),
}

/// System V queues whose identifiers differ by a multiple of this number use the same file, one after the other.
const INDICES: i32 = 32_768;

/// If a process started more than this time after the creation, it is not the creator. The tolerance is for changes of the clock, because the start
/// time is computed with the current clock.
const SLACK: Duration = Duration::from_secs(3600);

/// Returns all queues and rings.
pub fn found(namespace: &Namespace, kind: Option<Kind>) -> Result<Vec<Found>> {
    let wants = |this| kind.is_none_or(|kind| kind == this);
    let mut all = Vec::new();
    if wants(Kind::Mq) {
        let listed = posix::list_untouched(namespace)?.into_iter();
        all.extend(listed.map(|listed| of_posix(namespace, listed)));
    }
    if wants(Kind::Sysv) {
        let listed = sysv::list(namespace);
        let listed = listed.map_err(|error| Failure::new(Code::Failed, error.explain()))?;
        all.extend(listed.iter().map(|entry| of_system_v(namespace, entry)));
    }
    if wants(Kind::Ring) {
        let listed = ring::list(namespace)?.into_iter();
        all.extend(listed.map(|listed| of_ring(namespace, listed)));
    }
    Ok(all)
}

fn of_posix(namespace: &Namespace, listed: posix::Listed) -> Found {
    let bare = listed.name.to_string_lossy().into_owned();
    let path = namespace.path().join("mq").join(file_name(&listed.name));
    let path = match path.is_dir() {
        // A queue with --remove-on-last-close is a directory, with the queue's file in it.
        true => path.join("queue"),
        false => path,
    };
    let file = File::at(&path);
    let queue = match listed.queue {
        Err(OpenError::PermissionDenied) => OpenOptions::new()
            .write(true)
            .counted(false)
            .remove_unused(false)
            .namespace(namespace)
            .open(&listed.name),
        other => other,
    };
    let status = queue.ok().map(|queue| queue.status());
    let status = status.as_ref();
    Found {
        name: bare,
        shown: shown(&listed.name),
        path,
        file,
        messages: status.map(|status| status.attributes.messages as u64),
        is_empty: status.map(|status| {
            let now = &status.attributes;
            now.messages + now.reserved + now.leased + now.delayed + status.set_aside == 0
        }),
        last_used: status.map(|status| last_activity(status).unwrap_or(status.created)),
        creator: status.and_then(|status| creator(status.creator, status.created)),
        removal: Removal::Posix(listed.name),
    }
}

fn of_system_v(namespace: &Namespace, entry: &sysv::Entry) -> Found {
    let path = sysv_file(namespace, entry.id);
    let mut options = sysv::OpenOptions::new();
    let queue = options.namespace(namespace).open_id(entry.id);
    let status = queue.ok().and_then(|queue| queue.status().ok());
    let used = entry.last_send.max(entry.last_receive).or(entry.changed);
    Found {
        name: Label::Id(entry.id).to_string(),
        shown: Label::Id(entry.id).to_string(),
        file: File::at(&path),
        path,
        messages: entry.readable.then_some(entry.messages),
        is_empty: status
            .as_ref()
            .map(|status| entry.messages + status.leased + status.delayed == 0),
        last_used: used.filter(|_| entry.readable),
        creator: status.and_then(|status| creator(status.creator, status.created)),
        removal: Removal::SystemV(entry.id),
    }
}

fn of_ring(namespace: &Namespace, listed: ring::Listed) -> Found {
    let bare = listed.name.to_string_lossy().into_owned();
    let path = namespace.path().join("ring");
    let path = path.join(file_name(&listed.name));
    let status = listed.found.ok().map(|found| found.status);
    Found {
        name: format!("{RING}{bare}"),
        shown: format!("{RING}{}", shown(&listed.name)),
        file: File::at(&path),
        path,
        messages: status.map(|status| status.messages),
        is_empty: status.map(|status| status.messages == 0),
        last_used: status.map(|status| status.created),
        creator: status.map(|status| Creator {
            pid: status.owner,
            lives: status.owner_alive,
        }),
        removal: Removal::Ring(listed.name),
    }
}

/// Returns the path of the file of a System V queue.
pub fn sysv_file(namespace: &Namespace, id: i32) -> PathBuf {
    namespace
        .path()
        .join("msg")
        .join((id % INDICES).to_string())
}

/// Returns the name of the file of a queue or ring.
pub fn file_name(name: &OsStr) -> &OsStr {
    let bytes = name.as_bytes();
    OsStr::from_bytes(bytes.strip_prefix(b"/").unwrap_or(bytes))
}

/// Returns the creator. The creator is reported as alive unless it is known to have ended: another process may have the creator's id now. Returns
/// None for the id 0, which means that the creator is in another PID namespace.
fn creator(pid: u32, created: SystemTime) -> Option<Creator> {
    let is_later = || began(pid).is_some_and(|began| began > created + SLACK);
    let lives = exists(pid) && !is_later();
    (pid != 0).then_some(Creator { pid, lives })
}

/// Returns whether the process exists, even if the caller may not signal it.
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Returns the start time of a process. None if it can't be read. Source: proc(5), /proc/PID/stat, the 22nd field.
fn began(pid: u32) -> Option<SystemTime> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses, and may itself contain parentheses. So the fields are counted from the last parenthesis.
    let ticks: u64 = stat
        .rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(19)?
        .parse()
        .ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    let age = uptime - ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    SystemTime::now().checked_sub(Duration::from_secs_f64(age.max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_created_what_was_made_since_it_began() {
        let (me, now) = (std::process::id(), SystemTime::now());
        assert!(creator(me, now).unwrap().lives);
        assert!(
            !creator(me, now - Duration::from_secs(86_400 * 365))
                .unwrap()
                .lives
        );
        assert!(!creator(u32::MAX, now).unwrap().lives);
    }
}
