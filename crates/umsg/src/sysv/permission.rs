//! Permissions of a queue: the kernel's rules on the owner, creator and mode in its header.
//!
//! The library enforces the decisions of this module. The kernel can't enforce all of them, because a process that may only send or only receive
//! must map the queue's file for reading and writing: see [`super::file_rights`].

use rustix::fs::Stat;
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::CapabilitySet;
use umsg_shm::sync::{AtomicU32, AtomicU64, Ordering};
use umsg_shm::sysv_engine::segment::{CLOSED, Fixed, Permissions, Policy, Summary};

/// The permission that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// To receive or to inspect.
    Read = 4,
    /// To send.
    Write = 2,
    /// Write access to a queue that is not closed for sending.
    Send = 1,
}

/// The error for a permission that the queue's mode does not grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Denied;

/// The owner, the creator and the mode of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) cuid: u32,
    pub(crate) cgid: u32,
    pub(crate) mode: u32,
}

impl From<Permissions> for Rights {
    fn from(said: Permissions) -> Rights {
        Rights {
            uid: said.uid,
            gid: said.gid,
            cuid: said.cuid,
            cgid: said.cgid,
            mode: said.mode & 0o777,
        }
    }
}

impl From<Rights> for Permissions {
    fn from(rights: Rights) -> Permissions {
        Permissions {
            uid: rights.uid,
            gid: rights.gid,
            cuid: rights.cuid,
            cgid: rights.cgid,
            mode: rights.mode,
        }
    }
}

impl Rights {
    pub(super) fn of(fixed: &Fixed) -> Rights {
        Rights::from(fixed.rights.permissions())
    }

    /// Returns the rights of a queue that can't be read, as far as its file shows them.
    pub(super) fn of_file(stat: &Stat) -> Rights {
        Rights {
            uid: stat.st_uid,
            gid: stat.st_gid,
            cuid: stat.st_uid,
            cgid: stat.st_gid,
            mode: stat.st_mode & 0o777,
        }
    }

    pub(super) fn of_summary(summary: &Summary) -> Rights {
        Rights::from(summary.permissions)
    }

    /// Returns whether the caller has the permissions `asked`: bits of any class, as in the flags of msgget(2). Source:
    /// `ipcperms` in ipc/util.c of the kernel.
    pub(super) fn grant(&self, asked: u32) -> bool {
        let wanted = asked >> 6 | asked >> 3 | asked;
        wanted & 0o7 & !self.granted() == 0 || has(CapabilitySet::IPC_OWNER)
    }

    /// Returns the permission bits of the caller's class.
    fn granted(&self) -> u32 {
        let user = geteuid();
        if [self.uid, self.cuid].contains(&user.as_raw()) {
            self.mode >> 6
        } else if [self.cgid, self.gid].into_iter().any(is_in_group) {
            self.mode >> 3
        } else {
            self.mode
        }
    }

    /// Returns whether the caller may change and remove the queue. Source: `ipcctl_obtain_check` in ipc/util.c of the kernel.
    pub(super) fn are_the_callers(&self) -> bool {
        [self.uid, self.cuid].contains(&geteuid().as_raw()) || has(CapabilitySet::SYS_ADMIN)
    }
}

fn is_in_group(group: u32) -> bool {
    let is = |gid: &Gid| gid.as_raw() == group;
    is(&getegid()) || getgroups().is_ok_and(|groups| groups.iter().any(is))
}

/// Returns whether the caller may give a queue more bytes than the namespace's limit.
pub(super) fn may_exceed_limits() -> bool {
    has(CapabilitySet::SYS_RESOURCE)
}

fn has(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Returns the caller's effective user and group.
pub(super) fn caller() -> (Uid, Gid) {
    (geteuid(), getegid())
}

/// The number of calls of [`forget_caller`].
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// The identity of a process: cached permissions are valid only for the identity under which they were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// The effective user.
    user: Uid,
    /// The value of [`CHANGES`] when the user was read.
    changes: u32,
}

impl Caller {
    pub(super) fn now() -> Caller {
        Caller {
            user: geteuid(),
            changes: CHANGES.load(Ordering::Relaxed),
        }
    }
}

/// Makes every queue check the caller's user and groups again. IPC_INFO and MSG_INFO then check the caller's rights to the directory again. A program
/// calls this function after a change of its user or groups, if it continues to use open queues. The kernel checks at each call; in umsg, the check
/// would cost more than the call itself.
///
/// ```
/// // After a change of the process's user or groups that did not go through libc.
/// umsg::sysv::forget_caller();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn forget_caller() {
    // Relaxed: a call that runs at the same moment may use the old or the new identity.
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

/// The cached permissions of the caller, and the version of the queue's rights under which they were checked. Threads share the word.
///
/// | bits | |
/// |---|---|
/// | 0 to 2 | [`Access::Send`], [`Access::Write`], [`Access::Read`] are granted |
/// | 3 | the permissions are known |
/// | 4 to 31 | [`CHANGES`] at the check |
/// | 32 to 63 | `version` of the rights at the check |
#[derive(Debug, Default)]
pub(super) struct Judged(AtomicU64);

const KNOWN: u64 = 8;

impl Judged {
    /// Checks a permission. Returns the version of the queue's rights under which the caller has the permission.
    #[inline(always)]
    pub(super) fn may(&self, fixed: &Fixed, access: Access) -> Result<u32, Denied> {
        // Rule RIGHTS of docs/protocols.md: a call reads the version before the rights, and a change stores the version last.
        let version = fixed.rights.version_to_check();
        let stamp = stamp(version);
        // Relaxed: the word itself contains the versions to which it belongs.
        let word = self.0.load(Ordering::Relaxed);
        let word = match word & !0o7 == stamp {
            true => word,
            false => self.judge(fixed, stamp),
        };
        if word & access as u64 != 0 {
            Ok(version)
        } else {
            Err(Denied)
        }
    }

    #[cold]
    fn judge(&self, fixed: &Fixed, stamp: u64) -> u64 {
        let rights = Rights::of(fixed);
        let mut granted = [Access::Read, Access::Write]
            .into_iter()
            .filter(|access| rights.grant(*access as u32))
            .fold(0, |granted, access| granted | access as u64);
        let is_closed = (stamp >> 32) as u32 & CLOSED != 0;
        // If the death of a producer may close the queue, each send has to check the producers. So the permission to send is not cached.
        let has_producers = Policy::read(&fixed.delivery).close_with_producers;
        if granted & Access::Write as u64 != 0 && !is_closed && !has_producers {
            granted |= Access::Send as u64;
        }
        self.0.store(stamp | granted, Ordering::Relaxed);
        stamp | granted
    }
}

#[inline(always)]
fn stamp(version: u32) -> u64 {
    let changes = CHANGES.load(Ordering::Relaxed);
    u64::from(version) << 32 | u64::from(changes << 4) | KNOWN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(mode: u32) -> Fixed {
        let fixed = Fixed::default();
        let (user, group) = caller();
        fixed
            .rights
            .begin(&of(user.as_raw(), group.as_raw(), mode), 0);
        fixed
    }

    fn of(user: u32, group: u32, mode: u32) -> Permissions {
        Permissions {
            uid: user,
            gid: group,
            cuid: user,
            cgid: group,
            mode,
        }
    }

    /// Runs a test in a thread without privilege. In the kernel, each thread has its own user.
    fn without_privilege(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if geteuid().is_root() {
                    let user = Uid::from_raw(4242);
                    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                }
                test();
            });
        });
    }

    #[test]
    fn the_owner_is_judged_by_the_owners_bits() {
        without_privilege(|| {
            for mode in [0o000_u32, 0o077, 0o200, 0o400, 0o600] {
                let (judged, fixed) = (Judged::default(), fixed(mode));
                for access in [Access::Read, Access::Write, Access::Read] {
                    let expected = match mode >> 6 & access as u32 {
                        0 => Err(Denied),
                        _ => Ok(1),
                    };
                    let judgement = judged.may(&fixed, access);
                    assert_eq!(judgement, expected, "{mode:o} {access:?}");
                }
            }
        });
    }

    #[test]
    fn a_judgement_holds_until_the_rights_or_the_caller_change() {
        without_privilege(|| {
            let (judged, fixed) = (Judged::default(), fixed(0o600));
            let give_to = |user: u32, version: u32| {
                let group = caller().1.as_raw();
                fixed.rights.begin(&of(user, group, 0o600), 0);
                fixed.words().version.store(version, Ordering::Release);
            };
            let own = caller().0.as_raw();
            assert_eq!(judged.may(&fixed, Access::Write), Ok(1));
            give_to(own + 1, 1);
            // The version of the rights has not changed: the permission is not checked again.
            assert_eq!(judged.may(&fixed, Access::Write), Ok(1));
            fixed.words().version.store(2, Ordering::Release);
            assert_eq!(judged.may(&fixed, Access::Write), Err(Denied));
            give_to(own, 2);
            assert_eq!(judged.may(&fixed, Access::Write), Err(Denied));
            forget_caller();
            assert_eq!(judged.may(&fixed, Access::Write), Ok(2));
        });
    }
}
