//! The names of the files and key symlinks of System V queues.

use std::ffi::CStr;

/// All indices are below this limit. An identifier is `sequence * INDICES + index`. Source: ipc/util.h of the kernel, IPCMNI.
pub(crate) const INDICES: u32 = 32_768;

/// Returns the name of the file of the queue with an index.
pub(super) fn of_index(index: u32) -> String {
    index.to_string()
}

/// Returns the index in a name. None for the names of other files.
pub(super) fn index_of(name: &CStr) -> Option<u32> {
    let name = name.to_str().ok()?;
    let index = name.parse::<u32>().ok().filter(|index| *index < INDICES)?;
    (name == of_index(index)).then_some(index)
}

/// Returns the name of a queue's key symlink: `k-00001234` for a key, or `p-4` for the index of a queue without a key (0).
///
/// A key has only this one name. With a second possible name, the queues of two users could both have key symlinks of one key. No rule for the order
/// of the two symlinks would be safe, because a user can remove its symlink and create it again.
pub(crate) fn key_symlink_name(key: i32, index: u32) -> String {
    match key {
        0 => format!("p-{index}"),
        _ => format!("k-{key:08x}"),
    }
}

/// Returns the key in the name of a key symlink, or 0 for a queue without a key. None for the names of other files.
pub(super) fn key_of(link: &CStr) -> Option<i32> {
    let name = link.to_str().ok()?;
    let (kind, text) = name.split_once('-')?;
    let (key, index) = match kind {
        "k" => (u32::from_str_radix(text, 16).ok()? as i32, 0),
        "p" => (0, text.parse().ok()?),
        _ => return None,
    };
    (key_symlink_name(key, index) == name).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn only_the_names_that_indices_have_are_indices() {
        for (name, index) in [(c"0", Some(0)), (c"32767", Some(32_767))] {
            assert_eq!(index_of(name), index);
        }
        for other in [
            c"", c"32768", c"00", c"+1", c"-1", c"1 ", c".next", c"k-1", c"\xff",
        ] {
            assert_eq!(index_of(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_names_of_key_symlinks_are_read_back() {
        for key in [1, 0x1234, -1, i32::MIN, i32::MAX, 0] {
            let name = CString::new(key_symlink_name(key, 7)).unwrap();
            assert_eq!(key_of(&name), Some(key));
        }
        assert_eq!(key_symlink_name(-2, 0), "k-fffffffe");
        assert_eq!(key_symlink_name(0, 7), "p-7");
    }

    #[test]
    fn other_names_are_no_key_symlinks() {
        for other in [
            c"k-1",
            c"k-0000123G",
            c"k-0000123A",
            c"k-00000000",
            c"k-00001234-0",
            c"k-00001234-1",
            c"p-",
            c"p-01",
            c"p-1-",
            c"p-1-1",
            c"q-1",
            c"1",
            c".next",
            c"\xff-1",
        ] {
            assert_eq!(key_of(other), None, "{other:?}");
        }
    }
}
