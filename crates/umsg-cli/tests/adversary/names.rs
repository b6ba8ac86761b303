//! Finds the names that the adversary occupies. Some are names that new processes create and remove in each of two rounds. The others are unused
//! names, each one similar to the name of an existing entry of each kind.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::objects::{Entry, kind};
use super::stage::{Stage, Without};

/// The placeholder for the process ids of the newcomers.
const PID: &str = "<pid>";
/// The placeholder for each free index of System V queues.
pub const INDEX: &str = "msg/<index>";
/// The number of indices of System V queues that the adversary tries to occupy, from 0 on.
const INDICES: u32 = 100;

/// Returns the names, as paths with placeholders.
pub fn learn(stage: &mut Stage) -> Result<Vec<String>, String> {
    let first = appearing(stage)?;
    let second = appearing(stage)?;
    let mut names: Vec<String> = first.intersection(&second).cloned().collect();
    names.extend(neighbours(&stage.entries()));
    Ok(names)
}

/// Returns, for each kind of entry, an unused name that looks like a name of the kind.
fn neighbours(entries: &[Entry]) -> Vec<String> {
    let mut seen = Vec::new();
    let mut names = Vec::new();
    for entry in entries {
        let is_new = kind(entry).is_ok_and(|kind| !seen.contains(&kind));
        let Some((_, last)) = entry.path.char_indices().next_back().filter(|_| is_new) else {
            continue;
        };
        seen.extend(kind(entry));
        // The name may end with a hexadecimal number, so the new character is a hexadecimal digit.
        let other = if last == 'd' { 'c' } else { 'd' };
        let mut name = entry.path.clone();
        name.pop();
        name.push(other);
        names.push(name);
    }
    names
}

/// Returns the names of the entries that appear during one round of newcomers and are removed by the end of that round.
fn appearing(stage: &mut Stage) -> Result<BTreeSet<String>, String> {
    let directories = stage
        .entries()
        .into_iter()
        .filter(|entry| entry.meta.is_dir());
    let watchers: Vec<(String, OwnedFd)> = directories
        .map(|directory| {
            let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
            let watcher = inotify::init(flags).unwrap();
            let path = stage.space.join(&directory.path);
            inotify::add_watch(&watcher, &path, WatchFlags::CREATE | WatchFlags::MOVED_TO).unwrap();
            (directory.path, watcher)
        })
        .collect();
    let newcomers = stage.newcomers();
    newcomers.round(Without::default())?;
    let pids = newcomers.pids();
    let mut names = BTreeSet::new();
    for (directory, watcher) in watchers {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut events = inotify::Reader::new(watcher, &mut buffer);
        // The loop ends with EAGAIN: there are no more events.
        while let Ok(event) = events.next() {
            let Some(name) = event.file_name() else {
                continue;
            };
            let path = Path::new(&directory).join(name.to_string_lossy().as_ref());
            if stage.space.join(&path).symlink_metadata().is_err() {
                names.insert(generalised(&path.to_string_lossy(), &pids));
            }
        }
    }
    Ok(names)
}

/// Returns a name in which placeholders replace the parts that differ from process to process.
fn generalised(path: &str, pids: &[u32]) -> String {
    let index = path.strip_prefix("msg/");
    if index.is_some_and(|index| index.parse::<u32>().is_ok()) {
        return INDEX.to_owned();
    }
    let is_pid = |part: &&str| pids.iter().any(|pid| *part == pid.to_string());
    let parts = path.split('-');
    let parts: Vec<&str> = parts
        .map(|part| if is_pid(&part) { PID } else { part })
        .collect();
    parts.join("-")
}

/// Returns the paths for which a name with placeholders stands.
pub fn expand(name: &str, pids: &[u32]) -> Vec<String> {
    match name {
        INDEX => (0..INDICES).map(|index| format!("msg/{index}")).collect(),
        _ if name.contains(PID) => {
            let with = |pid: &u32| name.replace(PID, &pid.to_string());
            pids.iter().map(with).collect()
        }
        _ => vec![name.to_owned()],
    }
}

/// Removes the planted entry, of any kind. The victims may already have removed it.
pub fn remove(path: &Path) {
    let is_directory = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let _ = match is_directory {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
}
