//! The namespace's record: the file `.namespace` in its directory, 96 bytes, little-endian.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic `UMSG-NS` and a zero byte |
//! | 8 | 4 | version: 1 |
//! | 12 | 4 | flags: bit 0 was of use to earlier versions, and is ignored; bit 1 `max_bytes` holds; bit 2 some limit of System V queues is not the default; bit 3 only modes that the system enforces are allowed; bit 4 RLIMIT_MSGQUEUE counts; the others 0 |
//! | 16 | 4 | `max_queues` |
//! | 20 | 4 | `max_messages` |
//! | 24 | 4 | `max_message_size`, in bytes |
//! | 28 | 4 | `default_messages` |
//! | 32 | 4 | `default_message_size`, in bytes |
//! | 36 | 4 | `next_id` + 1, or 0 for none |
//! | 40 | 8 | `max_bytes`, 0 unless bit 1 of the flags is set |
//! | 48 | 8 | PID namespace: `st_dev` of /proc/self/ns/pid |
//! | 56 | 8 | PID namespace: `st_ino` of /proc/self/ns/pid |
//! | 64 | 16 | boot id (/proc/sys/kernel/random/boot_id), in the order of its digits |
//! | 80 | 4 | `msgmax`, in bytes; this field and the next three are 0 if bit 2 of the flags is not set |
//! | 84 | 4 | `msgmnb`, in bytes |
//! | 88 | 4 | `msgmni` |
//! | 92 | 4 | `max_qbytes`, in bytes |
//!
//! The file belongs to the owner of the directory or to root, and has mode 0644. The file is never changed in place. The first record is
//! linked: the link is the commit, and the loser of a race reads the winner's record. Later records are renamed over it. So a reader always
//! sees a complete record. A writer that is killed before the rename leaves a `.tmp-...` file, which the next writer removes.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::{self, Errno};

use super::caller;
use super::directory::Directory;
use super::error::NamespaceError;
use super::home::{Home, PidNamespace};
use super::limits::Limits;
use super::staged::Staged;
use super::stamp::Stamp;
use super::trust;
use umsg_shm::sys::clock;

pub(super) const NAME: &str = ".namespace";
const SIZE: usize = 96;
const MAGIC: [u8; 8] = *b"UMSG-NS\0";
const VERSION: u32 = 1;
const HAS_MAX_BYTES: u32 = 2;
const HAS_SYSV: u32 = 4;
const ENFORCED_MODES: u32 = 8;
const RLIMIT_MSGQUEUE: u32 = 16;
const MODE: u32 = 0o644;

/// The contents of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) limits: Limits,
    /// The home in which the thread ids in the queues are valid.
    pub(super) home: Home,
}

/// Reads the record; None if the namespace has no record. If the file belongs to neither root nor the directory's owner, the file is ignored and not
/// opened.
///
/// # Errors
/// `RecordNotReadable`, `RecordDamaged`, `RecordVersion`; `NotAccessible` if the caller may not search the directory.
pub(super) fn read(directory: &Directory) -> Result<Option<Record>, NamespaceError> {
    let path = directory.path().join(NAME);
    let (at, name) = directory.locate(NAME);
    match fs::statat(at, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if !is_trusted(directory, &stat) => return Ok(None),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
            return Err(damaged(path, "a symbolic link"));
        }
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
            return Err(damaged(path, "not a file"));
        }
        Err(Errno::NOENT) => return Ok(None),
        // After this check, only root and the directory's owner can replace the record.
        Ok(stat) => {
            return known(&stat, || read_named(directory, path));
        }
        Err(_) => {}
    }
    read_named(directory, path)
}

fn read_named(directory: &Directory, path: PathBuf) -> Result<Option<Record>, NamespaceError> {
    let (at, name) = directory.locate(NAME);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match fs::openat(at, &name, flags, Mode::empty()) {
        Ok(file) => read_file(directory, path, &file),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::ACCESS) if fs::statat(at, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
            Err(NamespaceError::RecordNotReadable { path })
        }
        Err(e) => Err(NamespaceError::looking("open", directory.path(), e)),
    }
}

/// The record that was read last.
static LAST: Mutex<Option<(Stamp, Record)>> = Mutex::new(None);

/// Returns the record in a trusted file. Reads the file only if it has changed since the last read, or if the mutex of the remembered record is
/// locked. A signal handler or a forked child may find the mutex locked.
fn known<E>(
    stat: &Stat,
    read: impl FnOnce() -> Result<Option<Record>, E>,
) -> Result<Option<Record>, E> {
    if let Some(record) = last_read(stat) {
        return Ok(Some(record));
    }
    let stamp = Stamp::of(stat);
    let is_settled = stamp.is_settled(clock::realtime_coarse());
    let record = read()?;
    if may_all_read(stat)
        && is_settled
        && let Some(record) = &record
        && let Ok(mut last) = LAST.try_lock()
    {
        *last = Some((stamp, record.clone()));
    }
    Ok(record)
}

/// Returns the limits of the record that was read last, if the namespace still has that record. The call costs one system call.
pub(super) fn last_limits(path: &Path, trusted: u32) -> Option<Limits> {
    last_limits_and_stat(path, trusted).map(|(limits, _)| limits)
}

/// Does the same as [`last_limits`], and also returns the time of the record's last change by the file system's clock, in seconds and nanoseconds.
pub(super) fn last_limits_and_change(path: &Path, trusted: u32) -> Option<(Limits, (i64, i64))> {
    let (limits, stat) = last_limits_and_stat(path, trusted)?;
    Some((limits, (stat.st_ctime, stat.st_ctime_nsec as i64)))
}

/// Returns three words that distinguish the current record from all earlier records: its inode number, and the time of its last change in seconds and
/// nanoseconds. None if there is no trusted record.
pub(super) fn identity(path: &Path, trusted: u32) -> Option<[u64; 3]> {
    let stat = fs::lstat(path.join(NAME)).ok()?;
    let time = [stat.st_ctime.cast_unsigned(), stat.st_ctime_nsec as u64];
    [0, trusted]
        .contains(&stat.st_uid)
        .then_some([stat.st_ino, time[0], time[1]])
}

fn last_limits_and_stat(path: &Path, trusted: u32) -> Option<(Limits, Stat)> {
    let stat = fs::lstat(path.join(NAME)).ok()?;
    let is_trusted = [0, trusted].contains(&stat.st_uid);
    let record = last_read(&stat).filter(|_| is_trusted)?;
    Some((record.limits, stat))
}

/// Returns whether all users may read the file. A file that only some users may read is read each time, because the user of the process may have
/// changed.
fn may_all_read(stat: &Stat) -> bool {
    stat.st_mode & 0o444 == 0o444
}

/// Returns the record that was read last, if this file holds it and has not changed.
fn last_read(stat: &Stat) -> Option<Record> {
    let last = LAST.try_lock().ok().filter(|_| may_all_read(stat))?;
    let (stamp, record) = last.as_ref()?;
    (*stamp == Stamp::of(stat)).then(|| record.clone())
}

/// Returns the record that was read last, if the directory still has it. Opens no file.
pub(super) fn unchanged(directory: &Directory) -> Option<Record> {
    let (at, name) = directory.locate(NAME);
    let stat = fs::statat(at, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    last_read(&stat).filter(|_| is_file && is_trusted(directory, &stat))
}

/// Returns the namespace's limit of bytes, if a complete and trusted record has one. With a short path, the function does not call malloc: a send
/// calls this function before it allocates memory, possibly in a signal handler.
pub(super) fn max_bytes(path: &Path, trusted: u32) -> Option<u64> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = fs::open(path, flags, Mode::empty()).ok()?;
    let owner = trust::owner_of_trusted(&fs::fstat(&directory).ok()?, trusted)?;
    let is_record = |stat: &Stat| {
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        (is_file && [0, owner].contains(&stat.st_uid)).then_some(())
    };
    // The owner is checked first, by the name, because a file of another user must not be opened.
    let stat = fs::statat(&directory, NAME, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    is_record(&stat)?;
    let read = || Ok::<_, Infallible>(read_again(&directory, is_record));
    let Ok(record) = known(&stat, read);
    record?.limits.max_bytes
}

fn read_again(directory: &OwnedFd, is_record: impl FnOnce(&Stat) -> Option<()>) -> Option<Record> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(directory, NAME, flags, Mode::empty()).ok()?;
    is_record(&fs::fstat(&file).ok()?)?;
    let mut bytes = [0; SIZE + 1];
    let length = io::pread(&file, &mut bytes, 0).ok()?;
    whole(&bytes[..length])
}

/// Decodes a record, if all of its bytes are valid.
fn whole(bytes: &[u8]) -> Option<Record> {
    let bytes = <&[u8; SIZE]>::try_from(bytes).ok()?;
    let record = fields(bytes);
    (encode(&record) == *bytes && record.limits.validate().is_ok()).then_some(record)
}

fn is_trusted(directory: &Directory, record: &Stat) -> bool {
    record.st_uid == 0 || record.st_uid == directory.owner()
}

fn read_file(
    directory: &Directory,
    path: PathBuf,
    file: &OwnedFd,
) -> Result<Option<Record>, NamespaceError> {
    let stat = fs::fstat(file).map_err(|e| NamespaceError::system("fstat", &path, e))?;
    if !is_trusted(directory, &stat) {
        return Ok(None);
    }
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(damaged(path, "not a file"));
    }
    let mut bytes = [0; SIZE + 1];
    let length =
        io::pread(file, &mut bytes, 0).map_err(|e| NamespaceError::system("read", &path, e))?;
    decode(path, &bytes[..length]).map(Some)
}

fn damaged(path: PathBuf, what: &'static str) -> NamespaceError {
    NamespaceError::RecordDamaged { path, what }
}

/// Writes the first record. Returns false if the namespace already has a record.
pub(super) fn create(directory: &mut Directory, record: &Record) -> Result<bool, NamespaceError> {
    let staged = Staged::create(directory, "", MODE);
    let staged = fill(directory, staged, record)?;
    match staged.link(directory, OsStr::new(NAME)) {
        Ok(_) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(e) => Err(NamespaceError::changing("link", directory.path(), e)),
    }
}

/// Writes a record, and replaces an existing one.
pub(super) fn replace(directory: &mut Directory, record: &Record) -> Result<(), NamespaceError> {
    let staged = Staged::create_temporary(directory, "", MODE);
    let staged = fill(directory, staged, record)?;
    staged
        .rename_over(directory, OsStr::new(NAME))
        .map_err(|e| NamespaceError::changing("rename", directory.path(), e))
}

fn fill(
    directory: &Directory,
    staged: io::Result<Staged>,
    record: &Record,
) -> Result<Staged, NamespaceError> {
    let refuse = |e| NamespaceError::changing("write", directory.path(), e);
    let staged = staged.map_err(refuse)?;
    match write(directory, &staged, record) {
        Ok(()) => Ok(staged),
        Err(e) => {
            staged.discard(directory);
            Err(refuse(e))
        }
    }
}

fn write(directory: &Directory, staged: &Staged, record: &Record) -> io::Result<()> {
    let written = io::write(staged.file(), &encode(record))?;
    if written != SIZE {
        return Err(Errno::NOSPC);
    }
    if caller() == 0 && directory.owner() != 0 {
        let owner = Some(Uid::from_raw(directory.owner()));
        fs::fchown(staged.file(), owner, None::<Gid>)?;
    }
    // The mode does not depend on the umask: each user of the namespace may read its limits.
    fs::fchmod(staged.file(), Mode::from_raw_mode(MODE))
}

fn encode(record: &Record) -> [u8; SIZE] {
    let Record { limits, home } = record;
    let sysv = sysv(limits);
    let flags = [
        (limits.max_bytes.is_some(), HAS_MAX_BYTES),
        (sysv.is_some(), HAS_SYSV),
        (limits.enforced_modes, ENFORCED_MODES),
        (limits.rlimit_msgqueue, RLIMIT_MSGQUEUE),
    ];
    let flags: u32 = flags
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, flag)| flag)
        .sum();
    let mut bytes = [0; SIZE];
    let mut put = |offset: usize, field: &[u8]| {
        bytes[offset..offset + field.len()].copy_from_slice(field);
    };
    put(0, &MAGIC);
    put(8, &VERSION.to_le_bytes());
    put(12, &flags.to_le_bytes());
    put(16, &limits.max_queues.to_le_bytes());
    put(20, &limits.max_messages.to_le_bytes());
    put(24, &limits.max_message_size.to_le_bytes());
    put(28, &limits.default_messages.to_le_bytes());
    put(32, &limits.default_message_size.to_le_bytes());
    put(36, &limits.next_id.map_or(0, |id| id + 1).to_le_bytes());
    put(40, &limits.max_bytes.unwrap_or(0).to_le_bytes());
    put(48, &home.pid_namespace.device.to_le_bytes());
    put(56, &home.pid_namespace.inode.to_le_bytes());
    put(64, &home.boot);
    for (at, limit) in (80..).step_by(4).zip(sysv.unwrap_or_default()) {
        put(at, &limit.to_le_bytes());
    }
    bytes
}

/// Returns the limits of System V queues in the order of the record; None if all have their defaults.
fn sysv(limits: &Limits) -> Option<[u32; 4]> {
    let of = |l: &Limits| [l.msgmax, l.msgmnb, l.msgmni, l.max_qbytes];
    Some(of(limits)).filter(|sysv| *sysv != of(&Limits::default()))
}

fn decode(path: PathBuf, bytes: &[u8]) -> Result<Record, NamespaceError> {
    let head = |range| bytes.get::<std::ops::Range<usize>>(range);
    if head(0..8) != Some(&MAGIC) {
        return Err(damaged(path, "wrong magic"));
    }
    let found = head(8..12).map_or(0, |b| u32_at(b, 0));
    if found != VERSION {
        return Err(NamespaceError::RecordVersion {
            path,
            found,
            known: VERSION,
        });
    }
    let Ok(bytes) = <&[u8; SIZE]>::try_from(bytes) else {
        return Err(damaged(path, "wrong length"));
    };
    let record = fields(bytes);
    if encode(&record) != *bytes {
        return Err(damaged(path, "unknown bits"));
    }
    if record.limits.validate().is_err() {
        return Err(damaged(path, "limits out of range"));
    }
    Ok(record)
}

fn fields(bytes: &[u8; SIZE]) -> Record {
    let (four, eight) = (|at| u32_at(bytes, at), |at| u64_at(bytes, at));
    let flags = four(12);
    let plain = Limits::default();
    let sysv = |at, default| {
        if flags & HAS_SYSV != 0 {
            four(at)
        } else {
            default
        }
    };
    let limits = Limits {
        max_queues: four(16),
        max_messages: four(20),
        max_message_size: four(24),
        default_messages: four(28),
        default_message_size: four(32),
        max_bytes: (flags & HAS_MAX_BYTES != 0).then(|| eight(40)),
        enforced_modes: flags & ENFORCED_MODES != 0,
        msgmax: sysv(80, plain.msgmax),
        msgmnb: sysv(84, plain.msgmnb),
        msgmni: sysv(88, plain.msgmni),
        max_qbytes: sysv(92, plain.max_qbytes),
        rlimit_msgqueue: flags & RLIMIT_MSGQUEUE != 0,
        next_id: four(36).checked_sub(1),
    };
    let mut boot = [0; 16];
    boot.copy_from_slice(&bytes[64..80]);
    let pid_namespace = PidNamespace {
        device: eight(48),
        inode: eight(56),
    };
    Record {
        limits,
        home: Home {
            boot,
            pid_namespace,
        },
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{STRANGER, TestDir, as_user, chown, mode, owner};

    fn record() -> Record {
        let limits = Limits {
            max_queues: 1,
            max_messages: 0x0002_0304,
            max_message_size: 0x0005_0607,
            default_messages: 4,
            default_message_size: 5,
            max_bytes: Some(0x0102_0304_0506_0708),
            enforced_modes: true,
            msgmax: 0x0006_0504,
            msgmnb: 0x0908_0706,
            msgmni: 0x0a0b,
            max_qbytes: u32::MAX,
            rlimit_msgqueue: true,
            next_id: Some(0x0102_0303),
        };
        let boot = *b"0123456789abcdef";
        let pid_namespace = PidNamespace {
            device: 7,
            inode: 0xEFFF_FFFC,
        };
        Record {
            limits,
            home: Home {
                boot,
                pid_namespace,
            },
        }
    }

    fn decoded(bytes: &[u8]) -> Result<Record, NamespaceError> {
        decode(PathBuf::from(NAME), bytes)
    }

    fn open(dir: &TestDir) -> Directory {
        Directory::open(dir.path()).unwrap()
    }

    fn what(error: &NamespaceError) -> &str {
        match error {
            NamespaceError::RecordDamaged { what, .. } => what,
            _ => panic!("{error:?}"),
        }
    }

    #[test]
    fn every_byte_stands_where_the_table_says() {
        let expected: &[(usize, &[u8])] = &[
            (0, b"UMSG-NS\0"),
            (8, &[1, 0, 0, 0]),
            (12, &[30, 0, 0, 0]),
            (
                16,
                &[1, 0, 0, 0, 4, 3, 2, 0, 7, 6, 5, 0, 4, 0, 0, 0, 5, 0, 0, 0],
            ),
            (36, &[4, 3, 2, 1]),
            (40, &[8, 7, 6, 5, 4, 3, 2, 1]),
            (48, &[7, 0, 0, 0, 0, 0, 0, 0]),
            (56, &[0xfc, 0xff, 0xff, 0xef, 0, 0, 0, 0]),
            (64, b"0123456789abcdef"),
            (80, &[4, 5, 6, 0, 6, 7, 8, 9, 0x0b, 0x0a, 0, 0]),
            (92, &[0xff; 4]),
        ];
        let bytes = encode(&record());
        for (offset, field) in expected {
            assert_eq!(&bytes[*offset..offset + field.len()], *field, "at {offset}");
        }
        let limits = Limits::default();
        let plain = encode(&Record { limits, ..record() });
        assert_eq!((&plain[12..16], &plain[80..]), (&[0; 4][..], &[0; 16][..]));
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        assert_eq!(decoded(&encode(&record())), Ok(record()));
    }

    #[test]
    fn a_record_cut_short_or_changed_is_damaged_and_says_how() {
        let good = encode(&record());
        let mut longer = good.to_vec();
        longer.push(0);
        let changed = |at: usize, to: u8| {
            let mut bytes = good;
            bytes[at] = to;
            bytes
        };
        assert_eq!(what(&decoded(b"").unwrap_err()), "wrong magic");
        assert_eq!(
            what(&decoded(&changed(0, b'X')).unwrap_err()),
            "wrong magic"
        );
        assert_eq!(what(&decoded(&good[..95]).unwrap_err()), "wrong length");
        assert_eq!(what(&decoded(&longer).unwrap_err()), "wrong length");
        assert_eq!(
            what(&decoded(&changed(12, 63)).unwrap_err()),
            "unknown bits"
        );
        assert_eq!(
            what(&decoded(&changed(39, 0x81)).unwrap_err()),
            "limits out of range"
        );
        assert_eq!(what(&decoded(&changed(12, 3)).unwrap_err()), "unknown bits");
        assert_eq!(
            what(&decoded(&changed(28, 0)).unwrap_err()),
            "limits out of range"
        );
    }

    #[test]
    fn limits_of_zero_are_distinguished_from_limits_that_are_not_set() {
        let limits = Limits {
            msgmax: 0,
            msgmnb: 0,
            msgmni: 0,
            max_qbytes: 0,
            ..Limits::default()
        };
        let record = Record { limits, ..record() };
        assert_eq!(decoded(&encode(&record)), Ok(record));
    }

    #[test]
    fn a_record_of_another_version_is_distinguished_from_a_damaged_one() {
        let mut bytes = encode(&record());
        bytes[8] = 2;
        let error = decoded(&bytes).unwrap_err();
        assert!(matches!(
            error,
            NamespaceError::RecordVersion {
                found: 2,
                known: 1,
                ..
            }
        ));
    }

    #[test]
    fn the_first_record_stays_and_a_second_creator_gets_an_error() {
        let dir = TestDir::new();
        let mut second = record();
        second.limits.max_queues = 2;
        assert_eq!(create(&mut open(&dir), &record()), Ok(true));
        assert_eq!(create(&mut open(&dir), &second), Ok(false));
        assert_eq!(read(&open(&dir)), Ok(Some(record())));
        replace(&mut open(&dir), &second).unwrap();
        assert_eq!(read(&open(&dir)), Ok(Some(second)));
        assert_eq!(dir.names(), [NAME]);
    }

    #[test]
    fn a_record_belongs_to_the_owner_of_the_directory_and_all_may_read_it() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        chown(dir.path(), STRANGER);
        create(&mut open(&dir), &record()).unwrap();
        let path = dir.path().join(NAME);
        assert_eq!((owner(&path), mode(&path)), (STRANGER, MODE));
    }

    #[test]
    fn what_a_stranger_puts_in_place_of_the_record_counts_for_nothing() {
        umsg_testkit::needs_root!();
        type Make = fn(&std::path::Path);
        let makes: [Make; 5] = [
            |path| std::fs::write(path, b"").unwrap(),
            |path| std::fs::write(path, encode(&record())).unwrap(),
            |path| std::fs::create_dir(path).unwrap(),
            |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
            |path| fs::mkfifoat(fs::CWD, path, Mode::RWXU).unwrap(),
        ];
        for make in makes {
            let dir = TestDir::shared();
            as_user(STRANGER, || make(&dir.path().join(NAME)));
            assert_eq!(read(&open(&dir)), Ok(None));
        }
    }

    #[test]
    fn what_is_no_file_in_place_of_the_record_is_refused_without_waiting() {
        let dir = TestDir::new();
        let path = dir.path().join(NAME);
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(what(&read(&open(&dir)).unwrap_err()), "a symbolic link");
        std::fs::remove_file(&path).unwrap();
        fs::mkfifoat(fs::CWD, &path, Mode::RUSR).unwrap();
        assert_eq!(what(&read(&open(&dir)).unwrap_err()), "not a file");
    }
}
