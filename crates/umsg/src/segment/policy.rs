//! What a queue does with messages that it can't take, can't keep or can't deliver: laid down when it is created.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// What a send does that finds the queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFull {
    /// It waits for room, unless it must not block: what the kernel's queues do.
    #[default]
    Block,
    /// It fails, as if it must not block.
    Fail,
    /// It drops the oldest message of the lowest priority, which may be the new one: if all that are queued have a higher
    /// priority.
    DropOldest,
}

/// Bytes of the longest name of a queue, its slash included.
const NAME: usize = 256;

/// The policy as it lies in a segment. Written at creation, read once on attaching.
#[repr(C, align(128))]
pub(crate) struct Rules {
    /// 0 block, 1 fail, 2 drop the oldest.
    on_full: AtomicU32,
    max_deliveries: AtomicU32,
    /// Nanoseconds; 0 for ever.
    time_to_live: AtomicU64,
    /// The name of the dead-letter queue, slash included, filled up with zeros; all zeros for none.
    dead_letter: [AtomicU64; NAME / 8],
    /// Whether the queue goes when nobody has it open any more: 0, it does not; 1, it does, and nobody has had it open yet;
    /// [`Rules::DUE`].
    pub(super) removal: AtomicU32,
}

/// [`Rules::removal`]: it goes, once somebody has had it open.
const WAITS: u32 = 1;

impl Rules {
    /// [`Rules::removal`]: it goes, and somebody has it open, or had.
    pub(crate) const DUE: u32 = 2;

    /// Where it says whether the queue goes.
    pub(crate) const REMOVAL: usize = std::mem::offset_of!(Rules, removal);

    /// Whether that may be said there.
    pub(crate) fn is_removal(word: u32) -> bool {
        word <= Rules::DUE
    }

    /// Somebody has the queue open.
    #[cfg(not(loom))]
    pub(crate) fn note_use(&self) {
        // Relaxed: it only ever becomes due. Who asks too early leaves the queue to those who have it open.
        if self.removal.load(Ordering::Relaxed) == WAITS {
            self.removal.store(Rules::DUE, Ordering::Relaxed);
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            on_full: AtomicU32::default(),
            max_deliveries: AtomicU32::default(),
            time_to_live: AtomicU64::default(),
            dead_letter: std::array::from_fn(|_| AtomicU64::default()),
            removal: AtomicU32::default(),
        }
    }
}

/// The policy of a queue, as a process knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) on_full: OnFull,
    /// A message that is older is dropped, in nanoseconds; 0: none is.
    pub(crate) time_to_live: u64,
    /// A message that was leased and came back so often is set aside; 0: none is.
    pub(crate) max_deliveries: u32,
    /// The name of the queue that gets what is set aside, slash included.
    pub(crate) dead_letter: Option<Vec<u8>>,
    /// Whether it is removed when nobody has it open any more.
    pub(crate) remove_on_last_close: bool,
}

impl Policy {
    /// Writes the policy into a new segment.
    pub(crate) fn write(&self, rules: &Rules) {
        // Relaxed: nobody else sees the segment yet.
        let on_full = match self.on_full {
            OnFull::Block => 0,
            OnFull::Fail => 1,
            OnFull::DropOldest => 2,
        };
        rules.on_full.store(on_full, Ordering::Relaxed);
        let store = Ordering::Relaxed;
        rules.max_deliveries.store(self.max_deliveries, store);
        rules.time_to_live.store(self.time_to_live, store);
        let mut name = [0_u8; NAME];
        if let Some(dead_letter) = &self.dead_letter {
            name[..dead_letter.len()].copy_from_slice(dead_letter);
        }
        for (word, bytes) in rules.dead_letter.iter().zip(name.chunks_exact(8)) {
            let bytes = bytes.try_into().expect("chunks of 8 bytes");
            word.store(u64::from_le_bytes(bytes), store);
        }
        let removal = if self.remove_on_last_close { WAITS } else { 0 };
        rules.removal.store(removal, store);
    }

    /// Reads the policy of a segment. None if it makes no sense.
    pub(crate) fn read(rules: &Rules) -> Option<Policy> {
        // Relaxed: written once, before anybody could attach.
        let load = Ordering::Relaxed;
        let mut name = Vec::with_capacity(NAME);
        for word in &rules.dead_letter {
            name.extend_from_slice(&word.load(load).to_le_bytes());
        }
        let len = name
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        name.truncate(len);
        if len != 0 && (name[0] != b'/' || name.contains(&0)) {
            return None;
        }
        Some(Policy {
            on_full: match rules.on_full.load(load) {
                0 => OnFull::Block,
                1 => OnFull::Fail,
                2 => OnFull::DropOldest,
                _ => return None,
            },
            time_to_live: rules.time_to_live.load(load),
            max_deliveries: rules.max_deliveries.load(load),
            dead_letter: (len != 0).then_some(name),
            // Relaxed: whoever changes it changes nothing else.
            remove_on_last_close: match rules.removal.load(load) {
                0 => false,
                word if Rules::is_removal(word) => true,
                _ => return None,
            },
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_as_it_was_written() {
        let long = [&b"/"[..], &[b'x'; 255]].concat();
        for dead_letter in [None, Some(b"/dead".to_vec()), Some(long)] {
            let policy = Policy {
                on_full: OnFull::DropOldest,
                time_to_live: 5_000_000_000,
                max_deliveries: 3,
                dead_letter,
                remove_on_last_close: true,
            };
            let rules = Rules::default();
            policy.write(&rules);
            assert_eq!(Policy::read(&rules).as_ref(), Some(&policy));
            rules.note_use();
            assert_eq!(Policy::read(&rules), Some(policy));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let rules = Rules::default();
        assert_eq!(Policy::read(&rules), Some(Policy::default()));
        rules.on_full.store(3, Ordering::Relaxed);
        assert_eq!(Policy::read(&rules), None);
        rules.on_full.store(0, Ordering::Relaxed);
        rules.removal.store(3, Ordering::Relaxed);
        assert_eq!(Policy::read(&rules), None);
        rules.removal.store(0, Ordering::Relaxed);
        rules.dead_letter[0].store(u64::from_le_bytes(*b"/a\0b\0\0\0\0"), Ordering::Relaxed);
        assert_eq!(Policy::read(&rules), None);
    }
}
