//! Root in the namespace of another user: the command takes the identity of that user.
//!
//! The owner of a directory can replace every file in it at any time, so root must not work there as root. With the owner's identity, the
//! command can do what the owner can do, and nothing else. After that, the library checks the namespace as one that belongs to the caller.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::process::{Gid, Uid, geteuid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use uzers::{Users as _, UsersCache};

use crate::cli::{Cli, Command};
use crate::failure::{Code, Failure, Result};

/// The group of users that have no entry in the user database.
const NO_GROUP: u32 = 65_534;

/// Takes the identity of the namespace's owner for --as-owner, and for commands that only read. The caller makes this call while the process has one
/// thread.
pub fn act_as(cli: &Cli) -> Result {
    if cli.as_owner && matches!(cli.command, Command::Run(_) | Command::Setup(_)) {
        let line = "--as-owner is for commands that work with queues; use runuser(1) for this one";
        return Err(Failure::new(Code::Usage, line));
    }
    let wanted = cli.as_owner || cli.command.only_reads();
    match chosen(cli).and_then(|path| owner_of(&path)) {
        Some(owner) if wanted && geteuid().is_root() && owner != 0 => {
            let taken = become_user(owner);
            // A command that only reads continues as root. The library then refuses the directory of another user, and explains why the owner has
            // no identity here.
            if cli.as_owner {
                taken
            } else {
                taken.or(Ok(()))
            }
        }
        _ => Ok(()),
    }
}

/// Returns the directory that the caller names. The default directories belong to root or to the caller.
fn chosen(cli: &Cli) -> Option<PathBuf> {
    let variable = || std::env::var_os("UMSG_DIR").filter(|path: &OsString| !path.is_empty());
    cli.dir.clone().or_else(|| variable().map(PathBuf::from))
}

/// Returns the owner of a directory. None if there is no such directory: the command reports the missing directory when it opens the namespace.
fn owner_of(path: &Path) -> Option<u32> {
    let stat = rustix::fs::lstat(path).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::Directory).then_some(stat.st_uid)
}

fn become_user(owner: u32) -> Result {
    let group = UsersCache::new()
        .get_user_by_uid(owner)
        .map_or(NO_GROUP, |user| user.primary_group_id());
    let (user, group) = (Uid::from_raw(owner), Gid::from_raw(group));
    set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(group, group, group))
        .and_then(|()| set_thread_res_uid(user, user, user))
        .map_err(|error| not_taken(owner, error))?;
    match getuid() == user && geteuid() == user {
        true => Ok(()),
        false => Err(not_taken(owner, "the system did not change the user")),
    }
}

fn not_taken(owner: u32, why: impl Display) -> Failure {
    Failure::new(
        Code::Failed,
        format_args!(
            "can't switch to user {owner}, the directory's owner: {why}; run the command as that user"
        ),
    )
}
