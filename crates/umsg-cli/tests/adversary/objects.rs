//! The entries of a namespace, by kind. The row of each kind gives the maximum access for other users.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::actor::User;

/// An entry of the namespace.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The path in the namespace; empty for the namespace itself.
    pub path: String,
    pub meta: Metadata,
    /// The metadata of the directory that contains the entry.
    pub parent: Metadata,
}

/// The purpose of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Top,
    Record,
    Directory,
    Queue,
    /// The directory of a queue that is removed with its last user.
    Transient,
    Label,
    /// A directory below `own`, which contains a `lock` and the file `next` with the next identifier of System V queues.
    Own,
    Lock,
    Next,
    Ring,
    Socket,
    Bell,
    /// An entry that names the dead-letter queue of a queue.
    DeadLetter,
    /// The file whose lock tells whether a process lives.
    Life,
    /// The file with the count of changes.
    Changes,
    Temporary,
}

use Kind::*;

/// The kinds, each with its file type and the maximum access that its modes may grant to group and others. The file of a queue or ring may grant that
/// access only if its creator requested it.
pub const KINDS: &[(Kind, u32, u32)] = &[
    (Top, libc::S_IFDIR, 0o077),
    (Record, libc::S_IFREG, 0o044),
    (Directory, libc::S_IFDIR, 0o077),
    (Queue, libc::S_IFREG, 0o066),
    (Transient, libc::S_IFDIR, 0o011),
    (Label, libc::S_IFLNK, 0o777),
    (Own, libc::S_IFDIR, 0o011),
    (Lock, libc::S_IFDIR, 0),
    (Next, libc::S_IFREG, 0o044),
    (Ring, libc::S_IFREG, 0o066),
    (Socket, libc::S_IFSOCK, 0o066),
    (Bell, libc::S_IFIFO, 0),
    (DeadLetter, libc::S_IFLNK, 0o777),
    (Life, libc::S_IFREG, 0o044),
    (Changes, libc::S_IFREG, 0),
    (Temporary, libc::S_IFREG, 0),
];

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Returns the kind of an entry, by its path and the type of the file. An error if no row of [`KINDS`] fits.
pub fn kind(entry: &Entry) -> Result<Kind, String> {
    let parts: Vec<&str> = entry.path.split('/').collect();
    let is_directory = entry.meta.is_dir();
    let kind = match parts[..] {
        [""] => Top,
        [".namespace"] => Record,
        [name] if name.starts_with(".dead-") => DeadLetter,
        [name] if name.starts_with(".life-") => Life,
        [".changes"] => Changes,
        [_] if is_directory => Directory,
        ["bell", _] => Bell,
        ["ring", name] if name.starts_with(".bell-") => Socket,
        [_, name] if name.starts_with(".tmp-") => Temporary,
        ["mq", _] if is_directory => Transient,
        ["mq", _] | ["mq", _, "queue"] => Queue,
        ["own", _] => Own,
        ["own", _, "lock"] => Lock,
        ["own", _, "next"] => Next,
        ["msg", name] if is_number(name) => Queue,
        ["msg", name] if is_label(name) => Label,
        ["ring", _] => Ring,
        _ => return Err(unknown(entry)),
    };
    let (_, format, _) = KINDS.iter().find(|row| row.0 == kind).unwrap();
    match entry.meta.mode() & libc::S_IFMT == *format {
        true => Ok(kind),
        false => Err(unknown(entry)),
    }
}

fn is_label(name: &str) -> bool {
    name.strip_prefix("k-").is_some_and(is_hex) || name.strip_prefix("p-").is_some_and(is_hex)
}

fn unknown(entry: &Entry) -> String {
    format!(
        "{} is a {} of mode {:o}, which no row of adversary/objects.rs knows: give it one that says what it grants to strangers",
        entry.path,
        type_of(&entry.meta),
        entry.meta.mode() & 0o7777,
    )
}

fn type_of(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symbolic link",
        () if kind.is_fifo() => "FIFO",
        () if kind.is_socket() => "socket",
        () => "file",
    }
}

/// Returns all entries, the namespace itself first. Entries that vanish meanwhile are omitted.
pub fn walk(space: &Path) -> Vec<Entry> {
    let meta = space.symlink_metadata().unwrap();
    let parent = space.parent().unwrap().symlink_metadata().unwrap();
    let top = Entry {
        path: String::new(),
        meta,
        parent,
    };
    let mut entries = vec![top];
    let mut at = 0;
    while at < entries.len() {
        if entries[at].meta.is_dir() {
            let inside = list(space, &entries[at]);
            entries.extend(inside);
        }
        at += 1;
    }
    entries[1..].sort_by(|one, other| one.path.cmp(&other.path));
    entries
}

fn list(space: &Path, directory: &Entry) -> Vec<Entry> {
    let names = fs::read_dir(space.join(&directory.path))
        .into_iter()
        .flatten();
    let names = names.filter_map(|name| {
        let name = name.ok()?;
        let path = Path::new(&directory.path).join(name.file_name());
        Some(Entry {
            meta: name.path().symlink_metadata().ok()?,
            path: path.to_string_lossy().into_owned(),
            parent: directory.meta.clone(),
        })
    });
    names.collect()
}

/// The access to an object that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Read,
    Write,
    Both,
    /// The ownership of the object.
    Own,
    /// The right to remove the name, or to put another object under the name.
    Name,
    /// Granted to root only, or to no user.
    Never,
}

/// Returns whether the system grants a user the access that an operation needs. Modes and sticky directories decide.
pub fn grants(user: User, entry: &Entry, needs: Needs) -> bool {
    match needs {
        Needs::Read => may(user, &entry.meta, 4),
        Needs::Write => may(user, &entry.meta, 2),
        Needs::Both => may(user, &entry.meta, 6),
        Needs::Own => entry.meta.uid() == user.uid,
        Needs::Name => {
            let is_sticky = entry.parent.mode() & 0o1000 != 0;
            let owns = [entry.meta.uid(), entry.parent.uid()].contains(&user.uid);
            may(user, &entry.parent, 3) && (owns || !is_sticky)
        }
        Needs::Never => false,
    }
}

/// Returns whether the mode grants all of these bits (4 to read, 2 to write, 1 to search).
fn may(user: User, meta: &Metadata, bits: u32) -> bool {
    let shift = match () {
        () if meta.uid() == user.uid => 6,
        () if meta.gid() == user.gid => 3,
        () => 0,
    };
    meta.mode() >> shift & bits == bits
}
