//! The limits of a namespace, which its owner sets without any privilege.

use std::ops::RangeInclusive;
use std::sync::Mutex;

use super::Namespace;
use super::changes::{self, Watch};
use super::directory::Directory;
use super::error::NamespaceError;
use super::file_error::FileError;
use super::home::Home;
use super::record::{self, Record};
use super::{Locked, PATIENCE, caller, trust};

/// The largest possible capacity of a queue, in messages.
const MOST_MESSAGES: u32 = 1_048_576;
/// The largest possible message size of a queue of either kind, in bytes.
const MOST_MESSAGE_SIZE: u32 = 16 << 20;
/// The largest possible number of System V queues, because identifiers have this many indices.
const MOST_SYSV_QUEUES: u32 = 32_768;
/// The largest identifier of a System V queue.
const MOST_ID: u32 = i32::MAX.cast_unsigned();

/// The limits of a namespace. They apply to queues that are created later; `max_bytes` also limits the growth of existing queues.
///
/// ```
/// let limits = umsg::Limits { max_queues: 100, ..Default::default() };
/// assert_eq!((limits.default_messages, limits.default_message_size), (10, 8192));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The largest number of POSIX queues at a time; the default is 65,536. 0 permits no new queues.
    pub max_queues: u32,
    /// The largest capacity of a new POSIX queue, in messages: 1 to 1,048,576, which is also the default.
    pub max_messages: u32,
    /// The largest message size of a new POSIX queue, in bytes: 1 to 16 MiB, which is also the default.
    pub max_message_size: u32,
    /// The capacity of a POSIX queue that is created without a capacity, in messages: 1 to 1,048,576; the default is 10. Such a queue gets
    /// `max_messages` if that is lower.
    pub default_messages: u32,
    /// The message size of a POSIX queue that is created without a message size, in bytes: 1 to 16 MiB; the default is 8,192. Such a queue gets
    /// `max_message_size` if that is lower.
    pub default_message_size: u32,
    /// The largest memory of all queues of both kinds and rings together, in bytes, counted when it is allocated. There is no limit by
    /// default.
    pub max_bytes: Option<u64>,
    /// Refuses modes that permit a class of users only to send or only to receive. Only the library enforces such modes, so a malicious
    /// program can ignore them. Off by default.
    pub enforced_modes: bool,
    /// The largest message of System V queues, in bytes: 0 to 16 MiB. The default is 8,192, as in the kernel. Like all limits of System V
    /// queues, it applies to queues that are created later.
    pub msgmax: u32,
    /// The initial `msg_qbytes` of a System V queue: the largest number of bytes of all its messages together. The default is 16,384, as in the
    /// kernel.
    pub msgmnb: u32,
    /// The largest number of System V queues at a time: 0 to 32,768. The default is 32,000, as in the kernel.
    pub msgmni: u32,
    /// The largest `msg_qbytes` that a queue's owner may set (`IPC_SET`), in bytes. The default is 1 GiB. An owner may always set up to `msgmnb`, which
    /// is the kernel's limit. More needs CAP_SYS_RESOURCE.
    pub max_qbytes: u32,
    /// Limits the bytes of each user's POSIX queues by the creator's RLIMIT_MSGQUEUE (getrlimit(2)), as the kernel computes them: the whole
    /// capacity of each queue counts, used or not. Off by default.
    pub rlimit_msgqueue: bool,
    /// The identifier of the next System V queue, from 0 to 2,147,483,647, or `None` for the usual one. The creation of a queue resets this to
    /// `None`. If another queue has the identifier's index, the new queue gets the next free index. The kernel calls it `msg_next_id`.
    pub next_id: Option<u32>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_queues: 65_536,
            max_messages: MOST_MESSAGES,
            max_message_size: MOST_MESSAGE_SIZE,
            default_messages: 10,
            default_message_size: 8192,
            max_bytes: None,
            enforced_modes: false,
            msgmax: 8192,
            msgmnb: 16_384,
            msgmni: 32_000,
            max_qbytes: 1 << 30,
            rlimit_msgqueue: false,
            next_id: None,
        }
    }
}

impl Limits {
    /// Returns an error for the first limit that is out of its range (`InvalidLimit`).
    pub(super) fn validate(&self) -> Result<(), NamespaceError> {
        let ranges = [
            ("max_messages", self.max_messages, MOST_MESSAGES),
            ("max_message_size", self.max_message_size, MOST_MESSAGE_SIZE),
            ("default_messages", self.default_messages, MOST_MESSAGES),
            (
                "default_message_size",
                self.default_message_size,
                MOST_MESSAGE_SIZE,
            ),
        ];
        for (limit, value, most) in ranges {
            in_range(limit, u64::from(value), 1..=u64::from(most))?;
        }
        in_range("max_bytes", self.max_bytes.unwrap_or(1), 1..=u64::MAX)?;
        // The other two limits of System V queues, of the bytes in a queue, accept every value.
        for (limit, value, most) in [
            ("msgmax", self.msgmax, MOST_MESSAGE_SIZE),
            ("msgmni", self.msgmni, MOST_SYSV_QUEUES),
            ("next_id", self.next_id.unwrap_or(0), MOST_ID),
        ] {
            in_range(limit, u64::from(value), 0..=u64::from(most))?;
        }
        Ok(())
    }

    /// Returns whether a queue may have this mode.
    pub(crate) fn allow_mode(&self, mode: u32) -> bool {
        let separates = |class: u32| [2, 4].contains(&(mode >> class & 6));
        !self.enforced_modes || ![0, 3, 6].into_iter().any(separates)
    }
}

fn in_range(
    limit: &'static str,
    value: u64,
    range: RangeInclusive<u64>,
) -> Result<(), NamespaceError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(NamespaceError::InvalidLimit {
        limit,
        value,
        least,
        most,
    })
}

/// The limits that [`Namespace::limits_since`] has compared last. If a call finds the mutex locked, for example in a signal handler or a forked
/// child, the call compares the record instead.
static WATCHED: Mutex<Option<Watched>> = Mutex::new(None);

struct Watched {
    watch: Watch,
    limits: Limits,
    /// The time of the record's last change.
    changed: (i64, i64),
}

impl Namespace {
    /// Reads the current limits; the defaults if no process has set any. `next_id` is `None` after a queue has got the identifier.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// assert_eq!(namespace.limits()?, umsg::Limits::default());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of opening the directory; `RecordNotReadable`, `RecordDamaged`, `RecordVersion`.
    pub fn limits(&self) -> Result<Limits, NamespaceError> {
        let record = record::read(&self.directory()?)?;
        let mut limits = record.map(|record| record.limits).unwrap_or_default();
        if limits.next_id.is_some() && self.is_next_id_taken() {
            limits.next_id = None;
        }
        Ok(limits)
    }

    /// Returns the current limits as [`limits`](Self::limits) does, for a caller that checks the directory of the queues itself. That directory and
    /// the record belong to root or to the namespace's owner, so for a known record, this function does not open the namespace's directory.
    ///
    /// # Errors
    /// The errors of `limits`.
    pub(crate) fn limits_of_creation(&self) -> Result<Limits, NamespaceError> {
        record::last_limits(self.path(), self.owner()).map_or_else(|| self.limits(), Ok)
    }

    /// Returns the limits of the record that was read last, if the record is unchanged and its last change was before `time`, a time of the file
    /// system's clock. Makes at most one system call, and none while the count of changes is the same.
    pub(crate) fn limits_since(&self, time: (i64, i64)) -> Option<Limits> {
        let mut last = WATCHED.try_lock().ok();
        let known = last.as_ref().and_then(|last| last.as_ref());
        let known = known.filter(|known| known.watch.holds(self));
        if let Some(known) = known.filter(|known| known.changed < time) {
            return Some(known.limits.clone());
        }
        let watch = Watch::begin(self);
        let (limits, changed) = record::last_limits_and_change(self.path(), self.owner())?;
        if let (Some(last), Some(watch)) = (&mut last, watch) {
            let limits = limits.clone();
            **last = Some(Watched {
                watch,
                limits,
                changed,
            });
        }
        (changed < time).then_some(limits)
    }

    /// Returns the limits, if the record has not changed since its last reading. This costs two system calls. None if the record must be
    /// read.
    pub(crate) fn unchanged_limits(&self) -> Option<Limits> {
        let directory = Directory::look(self.path()).ok()?;
        trust::check(&directory, self.owner()).ok()?;
        record::unchanged(&directory).map(|record| record.limits)
    }

    /// Reads the current limit of bytes. None if there is no limit, or if it can't be read.
    pub(crate) fn max_bytes(&self) -> Option<u64> {
        record::max_bytes(self.path(), self.owner())
    }

    /// Sets all limits at once, for all processes. Existing queues keep their limits.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let limits = umsg::Limits { max_queues: 100, ..umsg::Limits::default() };
    /// namespace.set_limits(&limits)?;
    /// assert_eq!(namespace.limits()?.max_queues, 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidLimit` (`EINVAL`); `NotPermitted` (`EPERM`) unless the caller is the directory's owner or root; `Busy` if a stopped process holds the
    /// owner's lock.
    ///
    /// # If the process dies
    /// Either all old limits or all new limits apply.
    pub fn set_limits(&self, limits: &Limits) -> Result<(), NamespaceError> {
        let _locked = self.lock_limits()?;
        self.write_limits(limits)
    }

    /// Sets all limits. The caller holds the lock of the namespace's owner.
    pub(super) fn write_limits(&self, limits: &Limits) -> Result<(), NamespaceError> {
        limits.validate()?;
        let mut directory = self.directory()?;
        if !directory.may_be_mended_by(caller()) {
            let (path, who) = (self.path().to_owned(), "the namespace's owner or root");
            return Err(NamespaceError::NotPermitted {
                path,
                action: "set the limits of",
                who,
            });
        }
        let home = home_to_record(&directory)?;
        record::replace(
            &mut directory,
            &Record {
                limits: limits.clone(),
                home,
            },
        )?;
        changes::note_limits(self.path());
        Ok(())
    }

    /// Reads the limits, changes them and sets them. Two changes at the same time both take effect. Returns the new limits.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// namespace.update_limits(|limits| limits.max_queues += 10)?;
    /// assert_eq!(namespace.limits()?.max_queues, umsg::Limits::default().max_queues + 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`limits`](Self::limits) and [`set_limits`](Self::set_limits).
    ///
    /// # Blocking
    /// Waits for other processes of the owner and of root that change limits or names of System V queues, which takes some microseconds.
    ///
    /// # If the process dies
    /// Either all old limits or all new limits apply.
    pub fn update_limits(
        &self,
        change: impl FnOnce(&mut Limits),
    ) -> Result<Limits, NamespaceError> {
        self.update_limits_under(None, change)
    }

    /// Does the same as [`update_limits`](Self::update_limits). If `held` is the owner's lock, the function uses this lock and takes no other lock.
    pub(super) fn update_limits_under(
        &self,
        held: Option<&Locked>,
        change: impl FnOnce(&mut Limits),
    ) -> Result<Limits, NamespaceError> {
        let is_locked = match held {
            Some(held) => held.is_of(self.directory()?.owner()),
            None => false,
        };
        let _locked = match is_locked {
            true => None,
            false => self.lock_limits()?,
        };
        let mut limits = self.limits()?;
        change(&mut limits);
        self.write_limits(&limits)?;
        Ok(limits)
    }

    /// Takes the lock of the namespace's owner. Returns None in three cases: the caller may not set the limits, root finds that the owner has no lock
    /// yet, or no descriptor is free. The change then succeeds or fails without the lock.
    fn lock_limits(&self) -> Result<Option<Locked>, NamespaceError> {
        if !self.may_set_limits() {
            return Ok(None);
        }
        let owner = self.directory()?.owner();
        let locked = self
            .msg_files()
            .and_then(|files| files.lock_of(owner, PATIENCE));
        match locked {
            Ok(locked) => Ok(Some(locked)),
            Err(FileError::Namespace(busy @ NamespaceError::Busy { .. })) => Err(busy),
            Err(_) => Ok(None),
        }
    }

    /// Returns whether the caller may set the limits: the directory's owner and root may.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// assert!(namespace.may_set_limits());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn may_set_limits(&self) -> bool {
        self.directory()
            .is_ok_and(|directory| directory.may_be_mended_by(caller()))
    }

    /// Opens the namespace's directory, and checks the owner of the open directory.
    pub(super) fn directory(&self) -> Result<Directory, NamespaceError> {
        let directory = Directory::open(self.path())?;
        trust::check(&directory, self.owner())?;
        Ok(directory)
    }
}

/// Returns the home to write into the record: the recorded home if it is of this boot, or else the caller's home.
fn home_to_record(directory: &Directory) -> Result<Home, NamespaceError> {
    let here = Home::of_caller()?;
    // A corrupted record, or one of another user, is replaced.
    let recorded = record::read(directory)
        .ok()
        .flatten()
        .map(|record| record.home);
    Ok(recorded
        .filter(|home| home.boot == here.boot)
        .unwrap_or(here))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{STRANGER, TestDir, as_user};

    #[test]
    fn only_modes_that_the_system_enforces_are_allowed_where_that_is_asked_for() {
        let strict = Limits {
            enforced_modes: true,
            ..Limits::default()
        };
        for mode in [0, 0o600, 0o660, 0o666, 0o606, 0o060, 0o711, 0o4677] {
            assert!(strict.allow_mode(mode), "{mode:o}");
        }
        for mode in [
            0o400, 0o200, 0o640, 0o620, 0o644, 0o622, 0o222, 0o444, 0o604, 0o602,
        ] {
            assert!(!strict.allow_mode(mode), "{mode:o}");
            assert!(Limits::default().allow_mode(mode), "{mode:o}");
        }
    }

    #[test]
    fn watched_limits_need_no_look_and_new_ones_are_known_at_once() {
        let (dir, aside) = (TestDir::new(), TestDir::new());
        let (aside, any_time) = (aside.path().join("aside"), (i64::MAX, 0));
        let namespace = dir.namespace();
        namespace.set_limits(&Limits::default()).unwrap();
        namespace.begin_count_of_changes();
        let began = std::time::Instant::now();
        // `limits_since` relies on a count for 10 ms, and another test may hold the lock of the remembered count. So the test repeats the attempt.
        loop {
            let read = namespace.limits().unwrap();
            let watched = namespace.limits_since(any_time);
            std::fs::rename(dir.path(), &aside).unwrap();
            let without_look = namespace.limits_since(any_time);
            std::fs::rename(&aside, dir.path()).unwrap();
            if watched.is_some() && without_look == Some(read) {
                break;
            }
            assert!(began.elapsed() < std::time::Duration::from_secs(60));
        }
        assert_eq!(namespace.limits_since((0, 0)), None, "set since then");
        namespace.set_limits(&changed()).unwrap();
        let now = namespace.limits_since(any_time);
        assert!(now.is_none_or(|limits| limits == changed()));
    }

    fn changed() -> Limits {
        Limits {
            max_queues: 3,
            max_bytes: Some(1 << 40),
            enforced_modes: true,
            msgmnb: u32::MAX,
            ..Limits::default()
        }
    }

    #[test]
    fn limits_are_the_defaults_until_they_are_set_and_then_seen_by_all() {
        let dir = TestDir::new();
        let (one, two) = (dir.namespace(), dir.namespace());
        assert_eq!(two.limits().unwrap(), Limits::default());
        one.set_limits(&changed()).unwrap();
        assert_eq!(two.limits().unwrap(), changed());
        dir.expect_no_leftovers();
    }

    #[test]
    fn limits_out_of_range_are_refused_by_name_and_change_nothing() {
        let dir = TestDir::new();
        let good = Limits::default;
        let bad = [
            (
                "max_messages",
                Limits {
                    max_messages: MOST_MESSAGES + 1,
                    ..good()
                },
            ),
            (
                "max_messages",
                Limits {
                    max_messages: 0,
                    ..good()
                },
            ),
            (
                "max_message_size",
                Limits {
                    max_message_size: MOST_MESSAGE_SIZE + 1,
                    ..good()
                },
            ),
            (
                "default_messages",
                Limits {
                    default_messages: MOST_MESSAGES + 1,
                    ..good()
                },
            ),
            (
                "default_message_size",
                Limits {
                    default_message_size: MOST_MESSAGE_SIZE + 1,
                    ..good()
                },
            ),
            (
                "default_message_size",
                Limits {
                    default_message_size: 0,
                    ..good()
                },
            ),
            (
                "max_bytes",
                Limits {
                    max_bytes: Some(0),
                    ..good()
                },
            ),
            (
                "msgmax",
                Limits {
                    msgmax: MOST_MESSAGE_SIZE + 1,
                    ..good()
                },
            ),
            (
                "msgmni",
                Limits {
                    msgmni: MOST_SYSV_QUEUES + 1,
                    ..good()
                },
            ),
        ];
        for (name, limits) in bad {
            let error = dir.namespace().set_limits(&limits).unwrap_err();
            assert!(
                matches!(error, NamespaceError::InvalidLimit { limit, .. } if limit == name),
                "{error}"
            );
        }
        assert_eq!(dir.namespace().limits().unwrap(), good());
    }

    #[test]
    fn a_stranger_reads_the_limits_of_a_shared_namespace_and_may_not_set_them() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        namespace.set_limits(&changed()).unwrap();
        as_user(STRANGER, || {
            assert_eq!(namespace.limits().unwrap(), changed());
            let error = namespace.set_limits(&Limits::default()).unwrap_err();
            assert!(
                matches!(error, NamespaceError::NotPermitted { .. }),
                "{error}"
            );
        });
        assert_eq!(namespace.limits().unwrap(), changed());
    }

    #[test]
    fn changes_at_the_same_time_do_not_undo_each_other() {
        const CHANGES: u32 = 200;
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let (before, add) = (namespace.limits().unwrap(), |change: fn(&mut Limits)| {
            (0..CHANGES).for_each(|_| _ = namespace.update_limits(change).unwrap());
        });
        std::thread::scope(|scope| {
            scope.spawn(|| add(|limits| limits.max_queues += 1));
            scope.spawn(|| add(|limits| limits.msgmnb += 1));
        });
        let after = namespace.limits().unwrap();
        let added = (
            after.max_queues - before.max_queues,
            after.msgmnb - before.msgmnb,
        );
        assert_eq!(added, (CHANGES, CHANGES));
    }

    #[test]
    fn setting_limits_keeps_the_home_of_this_boot_and_no_earlier_one() {
        let here = Home::of_caller().unwrap();
        let (mut elsewhere, mut earlier) = (here, here);
        elsewhere.pid_namespace.inode += 1;
        earlier.boot[0] ^= 1;
        for (recorded, kept) in [(elsewhere, elsewhere), (earlier, here)] {
            let dir = TestDir::new();
            let namespace = dir.namespace();
            let record = Record {
                limits: Limits::default(),
                home: recorded,
            };
            record::replace(&mut namespace.directory().unwrap(), &record).unwrap();
            namespace.set_limits(&changed()).unwrap();
            let record = record::read(&namespace.directory().unwrap())
                .unwrap()
                .unwrap();
            assert_eq!(
                record,
                Record {
                    limits: changed(),
                    home: kept
                }
            );
        }
    }

    #[test]
    fn a_damaged_record_is_an_error_that_setting_the_limits_mends() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::write(dir.path().join(".namespace"), b"nonsense").unwrap();
        let error = namespace.limits().unwrap_err();
        assert!(matches!(error, NamespaceError::RecordDamaged { .. }));
        namespace.set_limits(&changed()).unwrap();
        assert_eq!(namespace.limits().unwrap(), changed());
    }
}
