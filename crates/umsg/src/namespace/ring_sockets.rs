//! The sockets in the directory of rings: removing those of dead receivers.
//!
//! A socket usually goes together with its ring's file. But if a process removes only the name of a ring, because the receiver lives, the socket
//! stays for the ring's senders. If the receiver is then killed, no name leads to the socket any more. [`Namespace::remove_left_sockets`] removes it.
//!
//! A socket is removed only if it belongs to the user in question. Another user can't replace such a socket before the unlink: the directory belongs
//! to the socket's owner, or is sticky.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fd::AsFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::directory::{Directory, proc_link};
use super::entries::{for_each_entry, for_each_file};
use super::queues::RINGS;
use super::{Namespace, caller};

/// The name of a socket is this prefix, the inode number of the ring's file, `-`, and a random number.
const PREFIX: &str = ".bell-";

/// Returns the first part of the names of the sockets of a ring, by the inode number of the ring's file.
pub(crate) fn socket_prefix(inode: u64) -> String {
    format!("{PREFIX}{inode}-")
}

impl Namespace {
    /// Removes a user's sockets whose names begin with `prefix` from the directory of rings, if the caller has the permission.
    ///
    /// Other entries stay: unlink(2) waits for the lock of a file, which the file's owner may hold without limit.
    pub(crate) fn remove_sockets_of_rings(&self, prefix: &str, owner: u32) {
        let Ok(rings) = self.queues_of(RINGS) else {
            return;
        };
        let _ = for_each_entry(&rings, |entry, _| {
            let name = entry.file_name().to_bytes();
            if name.starts_with(prefix.as_bytes()) {
                let (at, path) = rings.locate(OsStr::from_bytes(name));
                let found = fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW);
                if found.is_ok_and(|stat| is_socket_of(&stat, owner)) {
                    let _ = fs::unlinkat(at, &path, AtFlags::empty());
                }
            }
            Ok(())
        });
    }

    /// Returns the number of sockets that [`remove_left_sockets`](Self::remove_left_sockets) would remove.
    pub(crate) fn left_sockets(&self) -> usize {
        self.left_sockets_where(|_, _| true)
    }

    /// Removes the sockets of which the ring's file and the receiver are both gone. Returns the number of removed sockets. Only root removes the
    /// sockets of other users.
    pub(crate) fn remove_left_sockets(&self) -> usize {
        self.left_sockets_where(|rings, name| {
            let (at, path) = rings.locate(name);
            fs::unlinkat(at, &path, AtFlags::empty()).is_ok()
        })
    }

    /// Returns the number of stale sockets for which `counts` returns true.
    fn left_sockets_where(&self, counts: impl Fn(&Directory, &OsStr) -> bool) -> usize {
        let Ok(rings) = self.queues_of(RINGS) else {
            return 0;
        };
        let mut sockets = Vec::new();
        let listed = for_each_entry(&rings, |entry, is_file| {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if let (false, Some(inode)) = (is_file, ring_of(name)) {
                sockets.push((name.to_owned(), inode));
            }
            Ok(())
        });
        if listed.is_err() || sockets.is_empty() {
            return 0;
        }
        // A ring has its file before its socket. So the second listing has the file of each socket that the first one has found.
        let mut files = HashSet::new();
        let listed = for_each_file(&rings, |entry| {
            files.insert(entry.ino());
            Ok(())
        });
        // An incomplete listing may lack the file of a socket's ring.
        if listed.is_err() {
            return 0;
        }
        let is_left = |name: &OsStr, inode: &u64| {
            !files.contains(inode) && has_no_receiver(&rings, name).is_ok_and(|is_dead| is_dead)
        };
        let left = sockets.iter().filter(|(name, inode)| is_left(name, inode));
        left.filter(|(name, _)| counts(&rings, name)).count()
    }
}

/// Returns the inode number of the ring's file that the name of a socket contains. None for other names.
fn ring_of(name: &OsStr) -> Option<u64> {
    let (inode, random) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    let is_random = random.len() == 16 && random.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_random.then(|| inode.parse().ok())?
}

fn is_socket_of(stat: &Stat, owner: u32) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Socket && stat.st_uid == owner
}

/// Returns whether the entry is a socket that the caller may remove and that no process has open. The kernel refuses a connection to such a socket.
/// The connection reaches the socket that was checked, through its link in /proc. It sends nothing.
fn has_no_receiver(rings: &Directory, name: &OsStr) -> io::Result<bool> {
    let (at, path) = rings.locate(name);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = fs::openat(at, &path, flags, Mode::empty())?;
    let stat = fs::fstat(&found)?;
    let owner = match caller() {
        0 => stat.st_uid,
        caller => caller,
    };
    if !is_socket_of(&stat, owner) {
        return Ok(false);
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    let address = SocketAddrUnix::new(proc_link(found.as_fd()).path())?;
    Ok(connect(&socket, &address) == Err(Errno::CONNREFUSED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{TestDir, without_forks};
    use std::os::unix::net::{UnixDatagram, UnixListener};

    #[test]
    fn a_dead_rings_sockets_are_removed_and_what_others_put_beside_them_stays() {
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        let at = |name: &str| dir.path().join(RINGS).join(name);
        let bind = |name: &str| drop(UnixDatagram::bind(at(name)).unwrap());
        bind(".bell-5-a");
        bind(".bell-55-a");
        std::fs::write(at(".bell-5-file"), b"").unwrap();
        fs::mkfifoat(fs::CWD, at(".bell-5-fifo"), Mode::RWXU).unwrap();
        namespace.remove_sockets_of_rings(&socket_prefix(5), caller() + 1);
        assert!(at(".bell-5-a").exists());
        namespace.remove_sockets_of_rings(&socket_prefix(5), caller());
        assert!(!at(".bell-5-a").exists());
        for stays in [".bell-55-a", ".bell-5-file", ".bell-5-fifo"] {
            assert!(at(stays).exists(), "{stays}");
        }
    }

    #[test]
    fn only_sockets_without_a_receiver_and_without_a_ring_are_stale() {
        use std::os::unix::fs::MetadataExt;
        let _without_forks = without_forks();
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        let at = |name: &str| dir.path().join(RINGS).join(name);
        let of = |inode: u64| format!("{}0123456789abcdef", socket_prefix(inode));
        std::fs::write(at("ring"), b"").unwrap();
        let ring = std::fs::metadata(at("ring")).unwrap().ino();
        let (dead, living, other_kind) = (of(ring + 1), of(ring + 2), of(ring + 3));
        let with_ring = of(ring);
        for name in [&dead, &with_ring, ".bell-7-short", "bell"] {
            drop(UnixDatagram::bind(at(name)).unwrap());
        }
        let _receiver = UnixDatagram::bind(at(&living)).unwrap();
        let _listener = UnixListener::bind(at(&other_kind)).unwrap();
        fs::mkfifoat(fs::CWD, at(&of(ring + 4)), Mode::RWXU).unwrap();
        std::os::unix::fs::symlink(at(&dead), at(&of(ring + 5))).unwrap();
        let count = || std::fs::read_dir(dir.path().join(RINGS)).unwrap().count();
        let before = count();
        assert_eq!(namespace.left_sockets(), 1);
        assert_eq!(count(), before);
        assert_eq!(namespace.remove_left_sockets(), 1);
        assert!(!at(&dead).exists());
        assert_eq!((count(), namespace.left_sockets()), (before - 1, 0));
    }

    #[test]
    fn a_stale_socket_of_another_user_is_removed_by_root_only() {
        if caller() != 0 {
            return;
        }
        let _without_forks = without_forks();
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        let name = format!("{}0123456789abcdef", socket_prefix(7));
        let path = dir.path().join(RINGS).join(name);
        drop(UnixDatagram::bind(&path).unwrap());
        std::os::unix::fs::lchown(&path, Some(65_534), None).unwrap();
        assert_eq!(namespace.remove_left_sockets(), 1);
        assert!(!path.exists());
    }
}
