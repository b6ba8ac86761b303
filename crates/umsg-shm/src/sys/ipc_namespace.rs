//! The kernel's IPC namespaces: ipc_namespaces(7).

use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::io;
use rustix::ioctl::{self, Getter, opcode};

/// The number of the request NS_GET_ID. Source: linux/nsfs.h.
const GET_ID: ioctl::Opcode = opcode::read::<u64>(0xb7, 13);

/// The link in /proc to the namespace of the calling thread.
pub const OWN: &str = "/proc/thread-self/ns/ipc";

/// An IPC namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpcNamespace {
    /// The inode number. After the end of the namespace, another namespace may get the same number.
    pub inode: u64,
    /// A number that no other namespace gets until the next boot. Only since Linux 6.18.
    pub id: Option<u64>,
}

/// Returns the inode number of the namespace to which a link of /proc leads.
///
/// # Errors
/// The errors of stat(2).
pub fn inode(link: &str) -> io::Result<u64> {
    Ok(rustix::fs::stat(link)?.st_ino)
}

/// Returns the namespace to which a link of /proc, or the file of a mount, leads.
///
/// # Errors
/// The errors of open(2) and stat(2).
pub fn of(link: &str) -> io::Result<IpcNamespace> {
    let file = rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(IpcNamespace {
        inode: rustix::fs::fstat(&file)?.st_ino,
        id: id(&file),
    })
}

fn id(namespace: impl AsFd) -> Option<u64> {
    // SAFETY: the request writes a u64, as its number says.
    unsafe { ioctl::ioctl(namespace, Getter::<GET_ID, u64>::new()) }.ok()
}
