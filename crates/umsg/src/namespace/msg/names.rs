//! How the files of System V queues are called.

use std::ffi::CStr;

/// Indices are below this, and an identifier is `sequence * INDICES + index`. Source: ipc/util.h of the kernel, IPCMNI.
pub(crate) const INDICES: u32 = 32_768;

/// The name of the queue with an index.
pub(super) fn of_index(index: u32) -> String {
    index.to_string()
}

/// The index in a name; None for the names of other files.
pub(super) fn index_of(name: &CStr) -> Option<u32> {
    let name = name.to_str().ok()?;
    let index = name.parse::<u32>().ok().filter(|index| *index < INDICES)?;
    (name == of_index(index)).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
