//! Permissions. The file system enforces the mode of a queue's file, and the library enforces the queue's own mode, which is in the header.

use rustix::fs::Stat;
use rustix::thread::CapabilitySet;

/// Receiving and sending, as the bits of one class of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) read: bool,
    pub(super) write: bool,
}

impl Access {
    /// Returns the access as the bits of one class of a mode.
    fn bits(self) -> u32 {
        u32::from(self.read) << 2 | u32::from(self.write) << 1
    }
}

/// Returns the mode of a queue's file for a queue of this mode. A process that may use the queue must be able to map the file for writing.
pub(super) fn file_mode(mode: u32) -> u32 {
    [6, 3, 0]
        .iter()
        .filter(|&&class| mode >> class & 0o6 != 0)
        .map(|&class| 0o6 << class)
        .sum()
}

/// Returns whether the caller may open a queue of this mode. `stat` gives the user and group of the queue's file. Source:
/// mq_open(3) and path_resolution(7).
pub(super) fn is_granted(access: Access, mode: u32, stat: &Stat) -> bool {
    let wanted = access.bits();
    let granted = mode >> class_of_caller(stat) & 0o7;
    wanted & !granted == 0 || is_privileged(access)
}

/// Returns whether the open of the file already proves the access that [`is_granted`] would check, so that no system call is needed. The caller has
/// opened the file with this access; `stat` is the status of the file.
///
/// | mode of the queue | why the access is granted |
/// |---|---|
/// | allows the access to all users | the caller is one of them |
/// | allows the access to the owner, and the file's mode allows nothing to other users | the file system let the owner or a privileged caller open the file |
pub(super) fn is_decided(access: Access, mode: u32, stat: &Stat) -> bool {
    let wanted = access.bits();
    let is_for = |class: u32| wanted & !(mode >> class) == 0;
    is_for(6) && (stat.st_mode & 0o077 == 0 || is_for(3) && is_for(0))
}

/// Returns the shift of the bits of the caller's class: owner 6, group 3, others 0.
fn class_of_caller(stat: &Stat) -> u32 {
    if rustix::process::geteuid().as_raw() == stat.st_uid {
        return 6;
    }
    let in_group = rustix::process::getegid().as_raw() == stat.st_gid
        || rustix::process::getgroups()
            .is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == stat.st_gid));
    if in_group { 3 } else { 0 }
}

/// Returns whether a capability grants the access. CAP_DAC_OVERRIDE overrides every mode. CAP_DAC_READ_SEARCH overrides only the permission to
/// receive.
fn is_privileged(access: Access) -> bool {
    let Ok(sets) = rustix::thread::capabilities(None) else {
        return false;
    };
    sets.effective.contains(CapabilitySet::DAC_OVERRIDE)
        || !access.write && sets.effective.contains(CapabilitySet::DAC_READ_SEARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_that_may_send_or_receive_may_map_the_file_and_no_others() {
        assert_eq!(file_mode(0o600), 0o600);
        assert_eq!(file_mode(0o420), 0o660);
        assert_eq!(file_mode(0o204), 0o606);
        assert_eq!(file_mode(0o111), 0);
    }

    #[test]
    fn access_that_the_file_system_has_decided_about_would_be_granted() {
        let mut stat = rustix::fs::stat("/").unwrap();
        let mut decided = 0;
        for (read, write) in [(true, false), (false, true), (true, true)] {
            let access = Access { read, write };
            let grants = |mode: u32, class: u32| access.bits() & !(mode >> class) == 0;
            for mode in 0..=0o777 {
                stat.st_mode = file_mode(mode);
                // The classes of users that can open the file: the owner, members of the group, and other users.
                let openers = [6, 3, 0].map(|class| grants(stat.st_mode, class).then_some(class));
                for class in openers.into_iter().flatten() {
                    if is_decided(access, mode, &stat) {
                        decided += 1;
                        assert!(grants(mode, class), "{access:?} {mode:o} {class}");
                    }
                }
            }
        }
        assert!(decided > 100, "{decided}");
    }
}
