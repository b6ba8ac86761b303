//! The place of a named ring's doorbell. Another user can't take the place first, and senders don't mistake another user's socket for the doorbell.
//!
//! The directory `ring/` may be open to all users. The name of a doorbell has a random part, so no other user can take the name before the receiver
//! does. The directory is sticky: while the socket has its name, only the receiver's user and root can remove the socket. After the removal, another
//! user may create any file with that name. So a sender identifies the socket each time, and sends to the identified object:
//!
//! 1. open(2) with `O_PATH` identifies the file and does not open it.
//! 2. fstat(2) on that descriptor says whether the file is a socket of the user that owns the ring's file.
//! 3. The descriptor's link in /proc is the address, because the link leads to the identified socket.
//!
//! The random part is a number in the segment, which senders may overwrite. The name begins with the inode number of the ring's file, which does
//! not come from the segment. So a forged number can't lead to the doorbell of another ring.

use crate::namespace::{Namespace, RINGS, proc_link, socket_prefix};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::{self, Errno};
use rustix::net::SocketAddrUnix;
use std::path::{Path, PathBuf};
use umsg_shm::posix_engine::segment::Segment;

/// The path of a doorbell's socket, and the user that must own the socket.
#[derive(Debug)]
pub(super) struct DoorbellPath {
    path: PathBuf,
    /// The user that owns the ring's file.
    owner: u32,
}

impl DoorbellPath {
    /// Returns the place of the doorbell of the ring in a file.
    pub(super) fn of(
        namespace: &Namespace,
        file: BorrowedFd<'_>,
        segment: &Segment,
    ) -> io::Result<DoorbellPath> {
        let stat = fs::fstat(file)?;
        let number = segment.fixed().ownership.fifo_number();
        let name = format!("{}{number:016x}", socket_prefix(stat.st_ino));
        Ok(DoorbellPath {
            path: namespace.path().join(RINGS).join(name),
            owner: stat.st_uid,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Sends to the socket at this place, if the socket belongs to the ring.
    ///
    /// # Errors
    /// ENOENT if the ring's owner has no socket at this place.
    pub(super) fn reach<T>(
        &self,
        send: impl Fn(&SocketAddrUnix) -> io::Result<T>,
    ) -> io::Result<T> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let seen = match fs::open(&self.path, flags, Mode::empty()) {
            Err(Errno::MFILE) => {
                self.check(&fs::lstat(&self.path)?)?;
                return self.reach_by_name(Errno::MFILE, send);
            }
            seen => seen?,
        };
        self.check(&fs::fstat(&seen)?)?;
        match send(&SocketAddrUnix::new(proc_link(seen.as_fd()).path())?) {
            // The socket exists, so the error means that /proc is missing.
            Err(Errno::NOENT) => self.reach_by_name(Errno::NOENT, send),
            outcome => outcome,
        }
    }

    fn check(&self, stat: &Stat) -> io::Result<()> {
        let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
        match is_socket && stat.st_uid == self.owner {
            true => Ok(()),
            false => Err(Errno::NOENT),
        }
    }

    /// Sends by the path, if /proc or a further descriptor is missing. Another user could put a socket at the path after the check, so the ring must
    /// belong to the caller or to root.
    fn reach_by_name<T>(
        &self,
        error: Errno,
        send: impl Fn(&SocketAddrUnix) -> io::Result<T>,
    ) -> io::Result<T> {
        if ![0, crate::namespace::caller()].contains(&self.owner) {
            return Err(error);
        }
        send(Address::of(&self.path)?.socket())
    }
}

/// The address of a path. The path may be longer than the 107 bytes of an address.
pub(super) struct Address {
    socket: SocketAddrUnix,
    /// The descriptor of the socket's directory. The address of a long path begins at this descriptor's link in /proc.
    _directory: Option<OwnedFd>,
}

impl Address {
    pub(super) fn of(path: &Path) -> io::Result<Address> {
        match SocketAddrUnix::new(path) {
            Err(Errno::NAMETOOLONG) => Address::of_long(path),
            socket => Ok(Address {
                socket: socket?,
                _directory: None,
            }),
        }
    }

    #[cold]
    fn of_long(path: &Path) -> io::Result<Address> {
        let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::INVAL)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = fs::open(parent, flags, Mode::empty())?;
        Ok(Address {
            socket: SocketAddrUnix::new(proc_link(directory.as_fd()).path().join(name))?,
            _directory: Some(directory),
        })
    }

    pub(super) fn socket(&self) -> &SocketAddrUnix {
        &self.socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{Options, Post, Ring, SendError, Sender, Until};
    use std::os::unix::net::UnixDatagram;
    use tempfile::TempDir;

    const STRANGER: u32 = 65534;

    fn named() -> (TempDir, Namespace, Ring, Sender, PathBuf) {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(home.path()).unwrap();
        let ring = Options::new().create_in(&namespace, "/r").unwrap();
        let sender = Sender::open_in(&namespace, "/r").unwrap();
        let doorbell = doorbells(&namespace).remove(0);
        (home, namespace, ring, sender, doorbell)
    }

    fn doorbells(namespace: &Namespace) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(namespace.path().join(RINGS)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.to_string_lossy().contains(".bell-"))
            .collect()
    }

    fn pass(sender: &Sender) -> Result<(), SendError> {
        let file = std::fs::File::open("/dev/null").unwrap();
        sender.send_fd(&Post::new(1), file.as_fd(), Until::Now)
    }

    fn bind(path: &Path) -> UnixDatagram {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    #[test]
    fn the_name_of_a_doorbell_cannot_be_guessed_before_it_is_made() {
        let (_home, namespace, _ring, _sender, doorbell) = named();
        let file = fs::stat(namespace.path().join(RINGS).join("r")).unwrap();
        let name = doorbell.file_name().unwrap().to_str().unwrap();
        let number = name.strip_prefix(&socket_prefix(file.st_ino)).unwrap();
        assert_eq!(number.len(), 16);
        assert_ne!(number, "0000000000000000");
    }

    #[test]
    fn no_socket_of_another_user_is_sent_a_descriptor() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (_home, _namespace, _ring, sender, doorbell) = named();
        std::fs::remove_file(&doorbell).unwrap();
        let strangers = bind(&doorbell);
        std::os::unix::fs::lchown(&doorbell, Some(STRANGER), None).unwrap();
        assert!(matches!(pass(&sender), Err(SendError::OwnerDead)));
        let got = strangers.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(got.kind(), std::io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_is_no_socket_in_place_of_a_doorbell_is_neither_followed_nor_opened() {
        let (home, _namespace, _ring, sender, doorbell) = named();
        let elsewhere = home.path().join("elsewhere");
        let led_to = bind(&elsewhere);
        type Plant = fn(&Path, &Path);
        let plants: [Plant; 4] = [
            |doorbell, to| std::os::unix::fs::symlink(to, doorbell).unwrap(),
            |doorbell, _| fs::mkfifoat(fs::CWD, doorbell, Mode::RWXU).unwrap(),
            |doorbell, _| std::fs::create_dir(doorbell).unwrap(),
            |doorbell, _| std::fs::write(doorbell, b"").unwrap(),
        ];
        for plant in plants {
            let _ = std::fs::remove_file(&doorbell).or_else(|_| std::fs::remove_dir(&doorbell));
            plant(&doorbell, &elsewhere);
            assert!(matches!(pass(&sender), Err(SendError::OwnerDead)));
            let got = led_to.recv(&mut [0; 8]).unwrap_err();
            assert_eq!(got.kind(), std::io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn a_forged_number_leads_to_no_doorbell_of_another_ring() {
        let (_home, namespace, ring, _sender, doorbell) = named();
        let mut other = Options::new().create_in(&namespace, "/other").unwrap();
        other.pollable();
        let doorbells = doorbells(&namespace);
        let of_other = doorbells.iter().find(|path| **path != doorbell).unwrap();
        let name = of_other.to_str().unwrap();
        let number = u64::from_str_radix(&name[name.len() - 16..], 16).unwrap();
        ring.shared.ownership().set_fifo_number(number);
        let sender = Sender::open_in(&namespace, "/r").unwrap();
        assert!(matches!(pass(&sender), Err(SendError::OwnerDead)));
    }
}
