//! Finds the processes that have a queue's file mapped or open. Only root can find such processes of other users.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// The device and the inode of a file, in the form of a line of /proc/PID/maps: `00:1a 4711`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct File {
    major: u32,
    minor: u32,
    inode: u64,
}

impl File {
    /// Identifies the file at a path. Returns None if the file does not exist.
    pub fn at(path: &Path) -> Option<File> {
        let metadata = path.symlink_metadata().ok()?;
        Some(File::of(&metadata))
    }
}

impl File {
    /// Returns the descriptors of the file in all processes except this one, by process.
    pub fn descriptors(self) -> Vec<(u32, Vec<u32>)> {
        let found = pids().map(|pid| {
            let directory = format!("/proc/{pid}/fd");
            let numbers = fs::read_dir(&directory).into_iter().flatten().flatten();
            let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            let mut numbers: Vec<u32> = numbers
                .filter(|number| self.is_at(format!("{directory}/{number}")))
                .collect();
            numbers.sort_unstable();
            (pid, numbers)
        });
        found.filter(|(_, numbers)| !numbers.is_empty()).collect()
    }

    fn is_at(self, path: String) -> bool {
        fs::metadata(path).is_ok_and(|found| File::of(&found) == self)
    }

    fn of(metadata: &fs::Metadata) -> File {
        File {
            major: major(metadata.dev()),
            minor: minor(metadata.dev()),
            inode: metadata.ino(),
        }
    }
}

/// Returns the ids of all processes except this one.
fn pids() -> impl Iterator<Item = u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|&pid| pid != std::process::id())
}

/// The ids of processes, by the files that the processes have mapped.
pub struct Users(HashMap<File, Vec<u32>>);

impl Users {
    /// Reads the mappings of all processes except this one.
    pub fn read() -> Users {
        let mut users = HashMap::<File, Vec<u32>>::new();
        for pid in pids() {
            // The file may contain a path with arbitrary bytes.
            let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
            for file in String::from_utf8_lossy(&maps).lines().filter_map(mapped) {
                let pids = users.entry(file).or_default();
                if pids.last() != Some(&pid) {
                    pids.push(pid);
                }
            }
        }
        Users(users)
    }

    /// Returns the ids of the processes that have a file mapped.
    pub fn of(&self, file: File) -> &[u32] {
        self.0.get(&file).map_or(&[], Vec::as_slice)
    }
}

/// Parses a line: address, permissions, offset, device, inode, path.
fn mapped(line: &str) -> Option<File> {
    let mut fields = line.split_ascii_whitespace().skip(3);
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?.parse().ok().filter(|&inode| inode != 0)?;
    Some(File {
        major: u32::from_str_radix(major, 16).ok()?,
        minor: u32::from_str_radix(minor, 16).ok()?,
        inode,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_its_file_or_none() {
        let line = "7f00-7f10 rw-s 00000000 00:1a 4711   /dev/shm/umsg-0/mq/a b (deleted)";
        let file = File {
            major: 0,
            minor: 0x1a,
            inode: 4711,
        };
        assert_eq!(mapped(line), Some(file));
        assert_eq!(mapped("7f00-7f10 rw-p 00000000 00:00 0 [heap]"), None);
        assert_eq!(mapped(""), None);
    }
}
