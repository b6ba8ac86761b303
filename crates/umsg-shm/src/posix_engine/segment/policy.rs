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

impl OnFull {
    /// The number by which segments and snapshots name it.
    pub fn number(self) -> u32 {
        match self {
            OnFull::Block => 0,
            OnFull::Fail => 1,
            OnFull::DropOldest => 2,
        }
    }

    /// What a number names.
    pub fn of_number(number: u32) -> Option<OnFull> {
        match number {
            0 => Some(OnFull::Block),
            1 => Some(OnFull::Fail),
            2 => Some(OnFull::DropOldest),
            _ => None,
        }
    }
}

/// The policy as it lies in a segment. Written at creation, read once on attaching.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Rules {
    /// [`OnFull::number`].
    on_full: AtomicU32,
    max_deliveries: AtomicU32,
    /// Nanoseconds; 0 for ever.
    time_to_live: AtomicU64,
    /// The number of the label that names the dead-letter queue; 0: there is none. A name in the segment could be
    /// written by every process that may send or receive: see `namespace/dead_letters.rs`.
    label: AtomicU64,
    /// Whether the queue goes when no process has it open any more: 0, it does not; 1, it does, and no process has had it open yet;
    /// [`Rules::DUE`].
    pub(super) removal: AtomicU32,
}

/// [`Rules::removal`]: it goes, once a process has had it open.
const WAITS: u32 = 1;

impl Rules {
    /// [`Rules::removal`]: it goes, and a process has it open, or had.
    pub const DUE: u32 = 2;

    /// Where the number of the label is.
    pub const LABEL: usize = std::mem::offset_of!(Rules, label);

    /// Where it says whether the queue goes.
    pub const REMOVAL: usize = std::mem::offset_of!(Rules, removal);

    /// Whether that may be said there.
    pub fn is_removal(word: u32) -> bool {
        word <= Rules::DUE
    }

    /// A process has the queue open.
    #[cfg(not(loom))]
    pub(crate) fn note_use(&self) {
        // Relaxed: it only ever becomes due. A process that asks too early leaves the queue to those that have it open.
        if self.removal.load(Ordering::Relaxed) == WAITS {
            self.removal.store(Rules::DUE, Ordering::Relaxed);
        }
    }
}

/// The policy of a queue, as a process knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub on_full: OnFull,
    /// A message that is older is dropped, in nanoseconds; 0: none is.
    pub time_to_live: u64,
    /// A message that was leased and came back so often is set aside; 0: none is.
    pub max_deliveries: u32,
    /// The number of the label that names the queue for what is set aside; 0: nothing is.
    pub label: u64,
    /// The name of that queue, slash included, if the label is believed.
    pub dead_letter: Option<Vec<u8>>,
    /// Whether it is removed when no process has it open any more.
    pub remove_on_last_close: bool,
}

impl Policy {
    /// Whether messages that can't be kept or delivered are set aside for another queue.
    #[inline(always)]
    pub fn sets_aside(&self) -> bool {
        self.label != 0
    }

    /// The policy for another queue, which has a label of its own. A limit of deliveries needs a dead-letter queue.
    pub fn without_label(mut self) -> Policy {
        self.label = 0;
        if self.dead_letter.is_none() {
            self.max_deliveries = 0;
        }
        self
    }

    /// Writes the policy into a new segment.
    pub(crate) fn write(&self, rules: &Rules) {
        // Relaxed: no other process sees the segment yet.
        rules
            .on_full
            .store(self.on_full.number(), Ordering::Relaxed);
        let store = Ordering::Relaxed;
        rules.max_deliveries.store(self.max_deliveries, store);
        rules.time_to_live.store(self.time_to_live, store);
        rules.label.store(self.label, store);
        let removal = if self.remove_on_last_close { WAITS } else { 0 };
        rules.removal.store(removal, store);
    }

    /// Reads the policy of a segment, but for the name that a label bears. None if it makes no sense.
    pub fn read(rules: &Rules) -> Option<Policy> {
        // Relaxed: written once, before any process could attach.
        let load = Ordering::Relaxed;
        Some(Policy {
            on_full: OnFull::of_number(rules.on_full.load(load))?,
            time_to_live: rules.time_to_live.load(load),
            max_deliveries: rules.max_deliveries.load(load),
            label: rules.label.load(load),
            dead_letter: None,
            // Relaxed: a process that changes it changes nothing else.
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
        for label in [0, 1, u64::MAX] {
            let policy = Policy {
                on_full: OnFull::DropOldest,
                time_to_live: 5_000_000_000,
                max_deliveries: 3,
                label,
                dead_letter: None,
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
    }
}
