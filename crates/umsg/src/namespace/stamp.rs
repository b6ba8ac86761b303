//! Tells whether a file or directory has changed since it was read.

use rustix::fs::Stat;

/// The identity, the attributes and the times of change of a file or directory. If a file is settled, equal stamps mean equal contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    identity: (u64, u64),
    owner: u32,
    mode: u32,
    size: i64,
    /// Seconds and nanoseconds since 1970: the last change of the contents, and of the attributes.
    times: [(i64, i64); 2],
}

/// Two ticks of the slowest kernel clock, which has 100 ticks a second, in nanoseconds.
const STEPS: u64 = 20_000_000;

/// The longest step of a file system that keeps times in steps of one or two seconds, plus [`STEPS`], in nanoseconds.
const WHOLE_SECONDS: u64 = 2_000_000_000 + STEPS;

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Stamp {
        Stamp {
            identity: (stat.st_dev, stat.st_ino),
            owner: stat.st_uid,
            mode: stat.st_mode,
            size: stat.st_size,
            times: [
                (stat.st_mtime, stat.st_mtime_nsec as i64),
                (stat.st_ctime, stat.st_ctime_nsec as i64),
            ],
        }
    }

    pub(super) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns whether users other than the owner may make files in a directory.
    pub(super) fn is_open_to_others(&self) -> bool {
        self.mode & 0o022 != 0
    }

    /// Returns whether users other than the owner may reach the files of a directory.
    pub(crate) fn is_reached_by_others(&self) -> bool {
        self.mode & 0o077 != 0
    }

    /// Returns whether both stamps are of the same file, with the same owner, mode and size. The times may differ.
    pub(crate) fn is_same_but_times(&self, other: &Stamp) -> bool {
        let times = other.times;
        Stamp { times, ..*self } == *other
    }

    pub(crate) fn is_same_file(&self, other: &Stamp) -> bool {
        self.identity == other.identity
    }

    /// Returns whether the file is settled at `now`, a time of CLOCK_REALTIME_COARSE: a change at `now` or later gives another stamp. A
    /// file system takes its times from that clock, which advances with the kernel's ticks.
    pub(crate) fn is_settled(&self, now: u64) -> bool {
        self.times.iter().all(|&(seconds, nanoseconds)| {
            let at = seconds.saturating_mul(1_000_000_000);
            let at = at.saturating_add(nanoseconds).max(0).cast_unsigned();
            let steps = if nanoseconds == 0 {
                WHOLE_SECONDS
            } else {
                STEPS
            };
            at.saturating_add(steps) < now
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::{Duration, Instant};
    use umsg_shm::sys::clock;

    fn stamp(file: &File) -> Stamp {
        Stamp::of(&rustix::fs::fstat(file).unwrap())
    }

    #[test]
    fn a_file_system_of_whole_seconds_settles_after_two_of_them() {
        let second = |seconds: u64| seconds * 1_000_000_000;
        for (nanoseconds, is_settled) in [(0, false), (1, true)] {
            let stamp = Stamp {
                times: [(1000, nanoseconds); 2],
                ..stamp(&tempfile::tempfile_in("/dev/shm").unwrap())
            };
            assert_eq!(stamp.is_settled(second(1001)), is_settled);
            assert!(stamp.is_settled(second(1003)));
        }
    }

    #[test]
    fn a_file_is_not_settled_within_a_step_of_the_clock() {
        let stamp = Stamp {
            times: [(1000, 1), (1000, 4)],
            ..stamp(&tempfile::tempfile_in("/dev/shm").unwrap())
        };
        let last = 1_000_000_000_004;
        assert!(!stamp.is_settled(last));
        assert!(!stamp.is_settled(last + STEPS));
        assert!(stamp.is_settled(last + STEPS + 1));
    }

    #[test]
    fn each_change_of_a_settled_file_gives_another_stamp() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        let (began, mut changes) = (Instant::now(), 0);
        while changes < 5 {
            let before = stamp(&file);
            if before.is_settled(clock::realtime_coarse()) {
                // The change alters neither the length nor the mode.
                rustix::io::pwrite(&file, b"x", 0).unwrap();
                assert_ne!(stamp(&file).times, before.times);
                changes += 1;
            }
            assert!(began.elapsed() < Duration::from_secs(60));
        }
    }
}
