//! The rights of a queue's file: the part of a queue's rights that the kernel enforces.
//!
//! | user | may map the file |
//! |---|---|
//! | owner and creator of the queue | always, because they may change its mode at any time |
//! | members of its group and of its creator's group | if the mode gives the group read or write permission |
//! | all other users | if the mode gives others read or write permission |
//!
//! A file has one owner and one group. If the queue's owner and group and its creator's user and group are those of the file, the file's mode is
//! enough. Otherwise an access control list (acl(5)), which tmpfs supports, names the users and groups. The queue's owner comes first, then its
//! creator: this order shows which of them is the owner.
//!
//! **Authority.** Every process that may use the queue can overwrite the rights in the queue's header. Only the file's owner and
//! root can change the file. So a change (IPC_SET) begins with the rights that the file confirms, see [`confirm`]. A forged
//! header gives no user access to the file.

use super::permission::Rights;
use crate::namespace::Files;
use rustix::fd::BorrowedFd;
use rustix::fs::{self, Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::{self, Errno};

const READ_WRITE: u16 = 6;
const ATTRIBUTE: &str = "system.posix_acl_access";
/// The version of the attribute. Source of the version and of the tags: linux/posix_acl_xattr.h.
const VERSION: u32 = 2;
/// The tag of the entry for a named user.
const USER: u16 = 2;
/// The tag of the entry for the file's group.
const FILES_GROUP: u16 = 4;
/// The tag of the entry for a named group.
const GROUP: u16 = 8;
/// Bytes of an entry: u16 tag, u16 permissions, u32 id.
const ENTRY: usize = 8;
/// Bytes of a list for two rights, the longest list that a file gets.
const LONGEST: usize = 4 + (4 + 8) * ENTRY;

/// Returns the part of a header's rights that the queue's file confirms. The file confirms the owners and groups that it names, and the permissions
/// of the classes to which it gives access.
pub(super) fn confirm(file: BorrowedFd<'_>, said: Rights) -> io::Result<Rights> {
    let stat = fs::fstat(file)?;
    Ok(Recorded::read(file, &stat)?.confirm(said))
}

/// Gives a file access rights for all of `rights`. During a change, these are the rights before and after.
///
/// # Errors
/// EPERM if a change is needed, and the caller is neither the owner of the file nor root. EOPNOTSUPP if a list is needed and the file system has no
/// access control lists.
pub(super) fn give(file: BorrowedFd<'_>, rights: &[Rights]) -> io::Result<()> {
    let stat = fs::fstat(file)?;
    let list = List::of(rights, &stat);
    if list.is_a_mode() {
        return give_mode(file, &stat, &list);
    }
    match give_list(file, &list) {
        // The file system has no access control lists, and a mode grants the same access. Without a list, the next change takes the file's owner and
        // group for those of the queue.
        Err(Errno::OPNOTSUPP) if list.grants_what_its_mode_grants(&stat) => {
            give_mode(file, &stat, &list)
        }
        given => given,
    }
}

/// Gives a queue's file and key symlink to the queue's new owner and group, with the rights of the old and the new owner. A process
/// that can't give files away names the new owner in a list.
///
/// # Errors
/// The errors of [`give`].
pub(super) fn hand_over(
    files: &Files,
    file: BorrowedFd<'_>,
    link: &str,
    [before, after]: [Rights; 2],
) -> io::Result<()> {
    let both = [before, after];
    if before.uid != after.uid {
        // The list is written first, so that the old owner still has access if the process dies after fchown(2). A file system without access control
        // lists refuses the list, so an error is ignored.
        let stat = fs::fstat(file)?;
        let _ = give_list(file, &List::naming_all(&both, &stat));
        let user = Uid::from_raw(after.uid);
        if fs::fchown(file, Some(user), None).is_ok() {
            files.give_key_symlink(link, user);
        }
    }
    if before.gid != after.gid {
        let _ = fs::fchown(file, None, Some(Gid::from_raw(after.gid)));
    }
    give(file, &both).or_else(|_| give(file, &[after]))
}

fn give_mode(file: BorrowedFd<'_>, stat: &Stat, list: &List) -> io::Result<()> {
    // If the file has a list, the new list replaces it in one step. The kernel turns a list that is equivalent to a mode into that mode.
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

/// The users that may open the file for reading and writing.
#[derive(Debug, PartialEq, Eq)]
struct List {
    owner: bool,
    /// The owner and the creator of each of the rights.
    users: Vec<u32>,
    group: bool,
    /// The group and the creator's group of each of the rights, and whether the group has access.
    groups: Vec<(u32, bool)>,
    others: bool,
}

impl List {
    fn of(rights: &[Rights], stat: &Stat) -> List {
        let mut list = List::naming_all(rights, stat);
        let is_own = |(group, _): &(u32, bool)| *group == stat.st_gid;
        if list.users.iter().all(|user| *user == stat.st_uid) && list.groups.iter().all(is_own) {
            list.users.clear();
            list.groups.clear();
        }
        list
    }

    /// Makes a list that also names the file's own owner and group.
    fn naming_all(rights: &[Rights], stat: &Stat) -> List {
        let class = |rights: &Rights, shift: u32| rights.mode >> shift & 0o6 != 0;
        let others = rights.iter().any(|rights| class(rights, 0));
        let users: Vec<u32> = rights.iter().flat_map(|r| [r.uid, r.cuid]).collect();
        let groups: Vec<(u32, bool)> = rights
            .iter()
            .flat_map(|r| [r.gid, r.cgid].map(|group| (group, class(r, 3))))
            .collect();
        // The file's owner may have given the queue away, and may be a member of a group with access. For the file's owner, the kernel checks only
        // the owner's entry. So that entry grants the access that any of the groups has.
        let a_group = groups.iter().any(|(_, may)| *may);
        let owner = users.contains(&stat.st_uid) || others || a_group;
        let mut of_file = groups.iter().filter(|(group, _)| *group == stat.st_gid);
        let group = match of_file.clone().next() {
            Some(_) => of_file.any(|(_, may)| *may),
            None => others,
        };
        List {
            owner,
            users,
            group,
            groups,
            others,
        }
    }

    /// Returns whether the mode of a file can express the rights of the list.
    fn is_a_mode(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Returns whether the file's mode gives access to the same users as the list, although the mode names no users.
    fn grants_what_its_mode_grants(&self, stat: &Stat) -> bool {
        let is_served = |(group, may): &(u32, bool)| *group == stat.st_gid || *may == self.others;
        self.users.iter().all(|user| *user == stat.st_uid) && self.groups.iter().all(is_served)
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

    /// Returns the extended attribute. Source: linux/posix_acl_xattr.h.
    fn bytes(&self) -> Vec<u8> {
        const NOBODY: u32 = u32::MAX;
        let may = |may: bool| if may { READ_WRITE } else { 0 };
        let mut entries = vec![(1_u16, may(self.owner), NOBODY)];
        entries.extend(self.users.iter().map(|user| (USER, READ_WRITE, *user)));
        entries.push((FILES_GROUP, may(self.group), NOBODY));
        entries.extend(
            self.groups
                .iter()
                .map(|(group, is)| (GROUP, may(*is), *group)),
        );
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

/// The owners and groups that a file names; at least one of each. During a change, and after the death of a process that made
/// a change, there are two owners and two groups: the old and the new.
struct Recorded {
    users: Vec<[u32; 2]>,
    groups: Vec<[u32; 2]>,
    /// True if the groups have access.
    group: bool,
    /// True if all other users have access.
    others: bool,
}

impl Recorded {
    fn read(file: BorrowedFd<'_>, stat: &Stat) -> io::Result<Recorded> {
        let mut bytes = [0; LONGEST];
        let len = match fs::fgetxattr(file, ATTRIBUTE, &mut bytes[..]) {
            // The file has no list, or a longer list, which umsg did not write.
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => 0,
            len => len?,
        };
        let is_list = len >= 4 && bytes[..4] == VERSION.to_le_bytes();
        let entries = if is_list { &bytes[4..len] } else { &[] };
        let named = |tag: u16| -> Vec<(u32, bool)> {
            let (entries, _) = entries.as_chunks::<ENTRY>();
            let of_tag = entries.iter().filter(|e| e[..2] == tag.to_le_bytes());
            of_tag
                .map(|e| (u32::from_le_bytes([e[4], e[5], e[6], e[7]]), e[2] & 6 != 0))
                .collect()
        };
        let groups = named(GROUP);
        let of_file = named(FILES_GROUP);
        let group = match [&groups[..], &of_file[..]] {
            [[], []] => stat.st_mode & 0o060 != 0,
            [[], of_file] => of_file[0].1,
            [groups, _] => groups.iter().any(|(_, may)| *may),
        };
        Ok(Recorded {
            users: pairs(&named(USER), stat.st_uid),
            groups: pairs(&groups, stat.st_gid),
            group,
            others: stat.st_mode & 0o006 != 0,
        })
    }

    fn confirm(&self, said: Rights) -> Rights {
        let known = |pairs: &[[u32; 2]], said: [u32; 2]| match pairs.contains(&said) {
            true => said,
            false => pairs[0],
        };
        let [uid, cuid] = known(&self.users, [said.uid, said.cuid]);
        let [gid, cgid] = known(&self.groups, [said.gid, said.cgid]);
        let denied = |may: bool, bits: u32| if may { 0 } else { bits };
        let mode = said.mode & !denied(self.group, 0o060) & !denied(self.others, 0o006);
        Rights {
            uid,
            gid,
            cuid,
            cgid,
            mode,
        }
    }
}

/// Returns the pairs of owner and creator from a list that umsg wrote; for any other list, the file's own owner or group.
fn pairs(named: &[(u32, bool)], own: u32) -> Vec<[u32; 2]> {
    match named.as_chunks::<2>() {
        (pairs, []) if !pairs.is_empty() => {
            pairs.iter().map(|pair| pair.map(|(id, _)| id)).collect()
        }
        _ => vec![[own; 2]],
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

    /// Returns the list for a file of user 10 and group 20.
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
    fn a_list_names_the_owner_and_then_the_creator() {
        let given = list(&[rights([11, 10], [21, 20], 0o640)]);
        let expected = List {
            owner: true,
            users: vec![11, 10],
            group: true,
            groups: vec![(21, true), (20, true)],
            others: false,
        };
        assert_eq!(given, expected);
        // 4 bytes of version, eight entries of 8.
        assert_eq!(given.bytes().len(), 4 + 8 * ENTRY);
    }

    #[test]
    fn a_group_that_may_not_is_named_where_others_may() {
        let given = list(&[rights([11, 10], [21, 20], 0o602)]);
        assert_eq!(
            (given.group, given.groups),
            (false, vec![(21, false), (20, false)])
        );
        // Members of the file's former group belong to the class of others.
        let left = list(&[rights([10, 10], [21, 21], 0o602)]);
        assert_eq!(
            (left.group, left.groups),
            (true, vec![(21, false), (21, false)])
        );
    }

    #[test]
    fn a_header_is_believed_as_far_as_the_file_confirms_it() {
        let stat = fstat(memfd_create("umsg-test", MemfdFlags::CLOEXEC).unwrap()).unwrap();
        let of_a_mode = Recorded {
            users: pairs(&[], 10),
            groups: pairs(&[], 20),
            group: false,
            others: stat.st_mode & 0o006 != 0,
        };
        let forged = rights([66, 66], [66, 20], 0o660);
        let confirmed = of_a_mode.confirm(forged);
        assert_eq!(confirmed, rights([10, 10], [20, 20], 0o600));
        // The named owner must not become the creator.
        let given_away = Recorded {
            users: vec![[11, 10]],
            groups: vec![[20, 20]],
            group: true,
            others: false,
        };
        let swapped = given_away.confirm(rights([10, 11], [20, 20], 0o646));
        assert_eq!(swapped, rights([11, 10], [20, 20], 0o640));
        // A process died while it changed the owner.
        let halfway = Recorded {
            users: vec![[10, 10], [11, 10]],
            ..given_away
        };
        for uid in [10, 11] {
            let said = rights([uid, 10], [20, 20], 0o640);
            assert_eq!(halfway.confirm(said), said);
        }
    }

    #[test]
    fn a_former_owner_that_kept_the_file_has_the_rights_of_its_groups() {
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
            (vec![10, 10, 11, 10], true, true)
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
