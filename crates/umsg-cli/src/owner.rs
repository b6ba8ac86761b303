//! Root in the namespace of another user: the command takes the identity of that user.
//!
//! The owner of a directory can replace every file in the directory at any time, so it is unsafe to work there as root. With the owner's identity,
//! the command can do only what the owner can do. After the change of identity, the library checks the namespace as one that belongs to the caller.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::process::{Gid, Uid, geteuid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use uzers::{Users as _, UsersCache};

use crate::cli::{Cli, Command};
use crate::failure::{Code, Failure, Result};

/// The group for a user that has no entry in the user database.
const NO_GROUP: u32 = 65_534;

/// Takes the identity of the namespace's owner, for --as-owner and for commands that only read. The caller makes this call while the process has only
/// one thread.
pub fn act_as(cli: &Cli) -> Result {
    if cli.as_owner && matches!(cli.command, Command::Run(_) | Command::Setup(_)) {
        let line = "--as-owner is for commands that work with queues; use runuser(1) for this one";
        return Err(Failure::new(Code::Usage, line));
    }
    let wanted = cli.as_owner || cli.command.only_reads();
    match chosen(cli).and_then(|path| owner_of(&path)) {
        Some(owner) if wanted && geteuid().is_root() && owner != 0 => {
            let taken = become_user(owner);
            // If the change of identity fails, a command that only reads continues as root. The library then refuses the directory of another user,
            // and its error gives advice.
            if cli.as_owner {
                taken
            } else {
                taken.or(Ok(()))
            }
        }
        _ => Ok(()),
    }
}

/// Returns the directory that the user has named. The default directories belong to root or to the user, so they need no change of identity.
fn chosen(cli: &Cli) -> Option<PathBuf> {
    let variable = || std::env::var_os("UMSG_DIR").filter(|path: &OsString| !path.is_empty());
    cli.dir.clone().or_else(|| variable().map(PathBuf::from))
}

/// Returns the owner of a directory. Returns None if the directory is missing: the command reports the missing directory when it opens the namespace.
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
