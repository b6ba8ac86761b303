//! The rights of a queue's file: what of a queue's rights the system enforces.
//!
//! | who | may map the file |
//! |---|---|
//! | owner and creator of the queue | always: they may change its mode at any time |
//! | members of its group and of its creator's group | if the mode gives the group read or write permission |
//! | everybody else | if the mode gives others read or write permission |
//!
//! A file has one owner and one group. While those are the queue's and its creator's, its mode says it all. When the queue is
//! given away (IPC_SET), root gives the file away with it; what is left, and all if the giver is not root, is said by an access control
//! list (acl(5)), of which tmpfs is capable.

use super::permission::Rights;
use crate::namespace::Files;
use rustix::fd::BorrowedFd;
use rustix::fs::{self, Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io;

const READ_WRITE: u16 = 6;
const ATTRIBUTE: &str = "system.posix_acl_access";

/// Gives a file the rights that belong to all of `rights`: while they change, to those before and after.
///
/// # Errors
/// EPERM unless the caller owns the file, or is root, or nothing has to change; EOPNOTSUPP if it takes a list and the file system has none.
pub(super) fn give(file: BorrowedFd<'_>, rights: &[Rights]) -> io::Result<()> {
    let stat = fs::fstat(file)?;
    let list = List::of(rights, &stat);
    if list.is_a_mode() {
        give_mode(file, &stat, &list)
    } else {
        give_list(file, &list)
    }
}

/// Gives a queue's file and label to the owner and group that the queue is to have, and rights that belong to those before and
/// after. Who can't give files away names the new owner in a list.
///
/// # Errors
/// As [`give`].
pub(super) fn hand_over(
    files: &Files,
    file: BorrowedFd<'_>,
    label: &str,
    [before, after]: [Rights; 2],
) -> io::Result<()> {
    let both = [before, after];
    if before.uid != after.uid {
        // Who dies between the two leaves the old owner his rights. Without lists there is no such help.
        let stat = fs::fstat(file)?;
        let _ = give_list(file, &List::naming_all(&both, &stat));
        let user = Uid::from_raw(after.uid);
        if fs::fchown(file, Some(user), None).is_ok() {
            files.give_label(label, user);
        }
    }
    if before.gid != after.gid {
        let _ = fs::fchown(file, None, Some(Gid::from_raw(after.gid)));
    }
    give(file, &both).or_else(|_| give(file, &[after]))
}

fn give_mode(file: BorrowedFd<'_>, stat: &Stat, list: &List) -> io::Result<()> {
    // A list that says no more than a mode becomes one, in one step.
    match fs::fgetxattr_query(file, ATTRIBUTE) {
        Ok(_) => fs::fsetxattr(file, ATTRIBUTE, &list.bytes(), XattrFlags::empty()),
        Err(_) if stat.st_mode & 0o7777 == list.mode() => Ok(()),
        Err(_) => fs::fchmod(file, Mode::from_raw_mode(list.mode())),
    }
}

fn give_list(file: BorrowedFd<'_>, list: &List) -> io::Result<()> {
    let bytes = list.bytes();
    let mut found = vec![0; bytes.len()];
    match fs::fgetxattr(file, ATTRIBUTE, &mut found[..]) {
        Ok(len) if len == bytes.len() && found == bytes => Ok(()),
        _ => fs::fsetxattr(file, ATTRIBUTE, &bytes, XattrFlags::empty()),
    }
}

/// Who may open the file for reading and writing.
#[derive(Debug, PartialEq, Eq)]
struct List {
    owner: bool,
    users: Vec<u32>,
    group: bool,
    /// Those that differ from others.
    groups: Vec<(u32, bool)>,
    others: bool,
}

impl List {
    fn of(rights: &[Rights], stat: &Stat) -> List {
        let mut list = List::naming_all(rights, stat);
        list.users.retain(|user| *user != stat.st_uid);
        list.groups
            .retain(|(group, may)| *group != stat.st_gid && *may != list.others);
        list
    }

    /// The file's own owner and group too.
    fn naming_all(rights: &[Rights], stat: &Stat) -> List {
        let class = |rights: &Rights, shift: u32| rights.mode >> shift & 0o6 != 0;
        let others = rights.iter().any(|rights| class(rights, 0));
        let mut users: Vec<u32> = rights.iter().flat_map(|r| [r.uid, r.cuid]).collect();
        let mut groups: Vec<(u32, bool)> = rights
            .iter()
            .flat_map(|r| [r.gid, r.cgid].map(|group| (group, class(r, 3))))
            .collect();
        // What a group may once it may: that comes first, and stays.
        groups.sort_unstable_by_key(|(group, may)| (*group, !may));
        groups.dedup_by_key(|(group, _)| *group);
        users.sort_unstable();
        users.dedup();
        // Who has given the queue away and kept its file may be of a group that may; lists ask for the file's owner first.
        let a_group = groups.iter().any(|(_, may)| *may);
        let owner = users.contains(&stat.st_uid) || others || a_group;
        let of_file = groups.iter().find(|(group, _)| *group == stat.st_gid);
        let group = of_file.map_or(others, |(_, may)| *may);
        List {
            owner,
            users,
            group,
            groups,
            others,
        }
    }

    /// The mode of a file says as much.
    fn is_a_mode(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    fn mode(&self) -> u32 {
        let classes = [
            (self.owner, 0o600),
            (self.group, 0o060),
            (self.others, 0o006),
        ];
        classes
            .iter()
            .filter(|(may, _)| *may)
            .map(|(_, bits)| bits)
            .sum()
    }

    /// The extended attribute. Source: linux/posix_acl_xattr.h.
    fn bytes(&self) -> Vec<u8> {
        const VERSION: u32 = 2;
        const NOBODY: u32 = u32::MAX;
        let may = |may: bool| if may { READ_WRITE } else { 0 };
        let mut entries = vec![(1_u16, may(self.owner), NOBODY)];
        entries.extend(self.users.iter().map(|user| (2, READ_WRITE, *user)));
        entries.push((4, may(self.group), NOBODY));
        entries.extend(self.groups.iter().map(|(group, is)| (8, may(*is), *group)));
        if !self.is_a_mode() {
            entries.push((0x10, READ_WRITE, NOBODY));
        }
        entries.push((0x20, may(self.others), NOBODY));
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fstat, memfd_create};
    use std::os::fd::AsFd;

    fn rights(owner: [u32; 2], group: [u32; 2], mode: u32) -> Rights {
        Rights {
            uid: owner[0],
            cuid: owner[1],
            gid: group[0],
            cgid: group[1],
            mode,
        }
    }

    /// The list for a file of user 10 and group 20.
    fn list(rights: &[Rights]) -> List {
        let file = memfd_create("umsg-test", MemfdFlags::CLOEXEC).unwrap();
        let mut stat = fstat(&file).unwrap();
        (stat.st_uid, stat.st_gid) = (10, 20);
        List::of(rights, &stat)
    }

    #[test]
    fn a_mode_says_it_all_while_the_file_is_the_owners_and_the_creators() {
        for (mode, file) in [
            (0o000, 0o600),
            (0o040, 0o660),
            (0o002, 0o606),
            (0o111, 0o600),
            (0o777, 0o666),
        ] {
            let list = list(&[rights([10, 10], [20, 20], mode)]);
            assert!(list.is_a_mode(), "{mode:o}");
            assert_eq!(list.mode(), file, "{mode:o}");
        }
    }

    #[test]
    fn whoever_the_file_does_not_belong_to_is_named() {
        let given = list(&[rights([11, 10], [21, 20], 0o640)]);
        let expected = List {
            owner: true,
            users: vec![11],
            group: true,
            groups: vec![(21, true)],
            others: false,
        };
        assert_eq!(given, expected);
        // 4 bytes of version, six entries of 8.
        assert_eq!(given.bytes().len(), 4 + 6 * 8);
    }

    #[test]
    fn a_group_that_may_not_is_named_where_others_may() {
        let given = list(&[rights([11, 10], [21, 20], 0o602)]);
        assert_eq!((given.group, given.groups), (false, vec![(21, false)]));
        // To the file's former group they are others.
        let left = list(&[rights([10, 10], [21, 21], 0o602)]);
        assert_eq!((left.group, left.groups), (true, vec![(21, false)]));
    }

    #[test]
    fn who_has_kept_the_file_only_may_what_one_of_the_groups_may() {
        let owner = |mode| list(&[rights([11, 12], [21, 22], mode)]).owner;
        assert_eq!([0o600, 0o640, 0o604].map(owner), [false, true, true]);
    }

    #[test]
    fn while_rights_change_both_have_theirs() {
        let (before, after) = (
            rights([10, 10], [20, 20], 0o060),
            rights([11, 10], [21, 20], 0o004),
        );
        let both = list(&[before, after]);
        assert_eq!(
            (both.users, both.group, both.others),
            (vec![11], true, true)
        );
    }

    #[test]
    fn a_list_becomes_a_mode_again_in_one_step() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        let stat = fstat(&file).unwrap();
        let mode = || fstat(&file).unwrap().st_mode & 0o7777;
        let own = rights([stat.st_uid; 2], [stat.st_gid; 2], 0o600);
        give(file.as_fd(), &[own]).unwrap();
        assert_eq!(mode(), 0o600);
        let given = Rights { uid: 4242, ..own };
        if let Err(error) = give(file.as_fd(), &[given]) {
            assert_eq!(error, io::Errno::OPNOTSUPP);
            return eprintln!("left out: /dev/shm has no access control lists");
        }
        assert_eq!(mode(), 0o660, "the list's mask");
        give(file.as_fd(), &[own]).unwrap();
        assert_eq!(mode(), 0o600);
        assert_eq!(
            fs::fgetxattr_query(&file, ATTRIBUTE),
            Err(io::Errno::NODATA)
        );
    }
}
