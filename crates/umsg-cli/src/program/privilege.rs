//! Privileges that a program gains at its start. For such a program the dynamic linker ignores LD_PRELOAD (ld.so(8), secure-execution mode).

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use rustix::process::{getgid, getuid};

/// The source of a privilege.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    User,
    Group,
    Capabilities,
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Privilege::User => "is set-user-ID",
            Privilege::Group => "is set-group-ID",
            Privilege::Capabilities => "has file capabilities",
        })
    }
}

/// Returns the privilege that the caller gains if it runs the program. Returns None if the mount or the process forbids the gain, or if the mode bit
/// gives only the caller's own user or group.
pub fn gained_by(program: &Path) -> Option<Privilege> {
    let metadata = program.metadata().ok()?;
    if is_forbidden(program) {
        return None;
    }
    from_mode(&metadata, getuid().as_raw(), getgid().as_raw())
        .or_else(|| from_capabilities(program))
}

fn is_forbidden(program: &Path) -> bool {
    rustix::thread::no_new_privs().unwrap_or(false)
        || rustix::fs::statvfs(program)
            .is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::NOSUID))
}

/// Returns the privilege that the mode of a program gives. Source: execve(2). A set-group-ID bit without the group's x bit means mandatory locking
/// (inode(7)), and gives no privilege.
fn from_mode(metadata: &Metadata, uid: u32, gid: u32) -> Option<Privilege> {
    let has = |bits| metadata.mode() & bits == bits;
    if has(0o4000) && metadata.uid() != uid {
        return Some(Privilege::User);
    }
    (has(0o2010) && metadata.gid() != gid).then_some(Privilege::Group)
}

/// Returns the privilege of a program with file capabilities. Root gains none, because root has all capabilities. Source: capabilities(7).
fn from_capabilities(program: &Path) -> Option<Privilege> {
    let mut value = [0; 64];
    let found = rustix::fs::getxattr(program, "security.capability", &mut value[..]).is_ok();
    (found && !getuid().is_root()).then_some(Privilege::Capabilities)
}
