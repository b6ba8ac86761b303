//! The overflow policy of a queue, which is set when the queue is created.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The behaviour of a send to a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFull {
    /// The send waits for room, as in the kernel. A non-blocking send fails.
    #[default]
    Block,
    /// The send fails at once, like a non-blocking send.
    Fail,
    /// The send drops the oldest message of the lowest priority. If all queued messages have a higher priority, the new message is dropped instead.
    DropOldest,
}

impl OnFull {
    /// Returns the code of this policy, as stored in segments and snapshots.
    pub fn number(self) -> u32 {
        match self {
            OnFull::Block => 0,
            OnFull::Fail => 1,
            OnFull::DropOldest => 2,
        }
    }

    /// Returns the policy with this code. Returns `None` if the code is unknown.
    pub fn of_number(number: u32) -> Option<OnFull> {
        match number {
            0 => Some(OnFull::Block),
            1 => Some(OnFull::Fail),
            2 => Some(OnFull::DropOldest),
            _ => None,
        }
    }
}

/// The policy, in the form that a segment contains. The creator writes it, and each process reads it once, when it attaches.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Rules {
    /// The code of the policy for a full queue: [`OnFull::number`].
    on_full: AtomicU32,
    max_deliveries: AtomicU32,
    /// The time to live, in nanoseconds; 0 for no limit.
    time_to_live: AtomicU64,
    /// The id of the label that contains the name of the dead-letter queue; 0 for none. The segment does not contain the name, because every process
    /// that may send or receive could overwrite it: see `namespace/dead_letters.rs`.
    label: AtomicU64,
    /// The removal of the queue after its last close. 0: the queue stays. 1: the queue will be removed, but no process has opened it yet. 2
    /// ([`Rules::DUE`]): the queue will be removed, and a process has opened it.
    pub(super) removal: AtomicU32,
    /// 1 if the end of the last producer closes the queue for sending, otherwise 0.
    close_with_producers: AtomicU32,
    /// The delays before a returned message is delivered again, in nanoseconds: first the delay after its first return, then the longest delay. Both
    /// values are 0 for no delay.
    retry_delay: [AtomicU64; 2],
    /// The number of deliveries of the highest priority, while lower priorities have messages, before a lower priority gets a turn; 0 for strict
    /// order.
    fair_priorities: AtomicU32,
    /// 1 if the queue notes each message's deliveries, returns and moves in the message's trace, otherwise 0.
    trace_messages: AtomicU32,
}

/// A value of [`Rules::removal`]: the queue is removed after its last close, and no process has opened it yet.
const WAITS: u32 = 1;

impl Rules {
    /// A value of [`Rules::removal`]: the queue is removed after its last close, and a process has opened it.
    pub const DUE: u32 = 2;

    /// The offset of the label's id.
    pub const LABEL: usize = std::mem::offset_of!(Rules, label);

    /// The offset of the number of deliveries between turns, for the layout hash.
    #[cfg(not(loom))]
    pub(super) const FAIR_PRIORITIES: usize = std::mem::offset_of!(Rules, fair_priorities);

    /// The offset of the word `trace_messages`, for the layout hash.
    #[cfg(not(loom))]
    pub(super) const TRACE_MESSAGES: usize = std::mem::offset_of!(Rules, trace_messages);

    /// The offset of the word `removal`.
    pub const REMOVAL: usize = std::mem::offset_of!(Rules, removal);

    /// Returns whether this value of the word `removal` is valid.
    pub fn is_removal(word: u32) -> bool {
        word <= Rules::DUE
    }

    /// Notes that a process has opened the queue.
    #[cfg(not(loom))]
    pub(crate) fn note_use(&self) {
        // Relaxed: the word changes only once, to [`Rules::DUE`]. A process that still reads the earlier value leaves the removal of the queue to
        // another process.
        if self.removal.load(Ordering::Relaxed) == WAITS {
            self.removal.store(Rules::DUE, Ordering::Relaxed);
        }
    }
}

/// The overflow policy of a queue in the memory of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub on_full: OnFull,
    /// The age at which a message expires, in nanoseconds; 0 for never.
    pub time_to_live: u64,
    /// The number of returned leases after which a message is set aside; 0 for never.
    pub max_deliveries: u32,
    /// The id of the label that contains the name of the dead-letter queue; 0 for none.
    pub label: u64,
    /// The name of the dead-letter queue, with its slash, if the label is trusted.
    pub dead_letter: Option<Vec<u8>>,
    /// True if the queue is removed after its last close.
    pub remove_on_last_close: bool,
    /// True if the end of the last producer closes the queue for sending.
    pub close_with_producers: bool,
    /// The delays before a returned message is delivered again, in nanoseconds. The first value is the delay after the first return, which doubles
    /// with each further return. The second value is the longest delay. Both values are 0 for no delay.
    pub retry_delay: [u64; 2],
    /// The number of deliveries of the highest priority, while lower priorities have messages, before a lower priority gets a turn, at most
    /// [`MOST_PASSED`]; 0 for strict order.
    pub fair_priorities: u32,
    /// True if the queue notes each message's deliveries, returns and moves in the message's trace.
    pub trace_messages: bool,
}

/// The greatest number of deliveries between turns of lower priorities.
pub const MOST_PASSED: u32 = 65_535;

impl Policy {
    /// Returns whether messages that can't be kept or delivered are set aside for the dead-letter queue.
    #[inline(always)]
    pub fn sets_aside(&self) -> bool {
        self.label != 0
    }

    /// Returns this policy for another queue, which will have its own label. Without a dead-letter queue, a limit of deliveries has no effect, so the
    /// limit is removed, too.
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
        let closes = self.close_with_producers.into();
        rules.close_with_producers.store(closes, store);
        for (word, delay) in rules.retry_delay.iter().zip(self.retry_delay) {
            word.store(delay, store);
        }
        rules.fair_priorities.store(self.fair_priorities, store);
        let traces = self.trace_messages.into();
        rules.trace_messages.store(traces, store);
    }

    /// Reads the policy of a segment, without the name of the dead-letter queue. Returns `None` if the policy is invalid.
    pub fn read(rules: &Rules) -> Option<Policy> {
        // Relaxed: the words were written once, before any process could attach.
        let load = Ordering::Relaxed;
        Some(Policy {
            on_full: OnFull::of_number(rules.on_full.load(load))?,
            time_to_live: rules.time_to_live.load(load),
            max_deliveries: rules.max_deliveries.load(load),
            label: rules.label.load(load),
            dead_letter: None,
            // Relaxed: a process that changes this word changes no other words together with it.
            remove_on_last_close: match rules.removal.load(load) {
                0 => false,
                word if Rules::is_removal(word) => true,
                _ => return None,
            },
            close_with_producers: match rules.close_with_producers.load(load) {
                0 => false,
                1 => true,
                _ => return None,
            },
            retry_delay: rules.retry_delay.each_ref().map(|word| word.load(load)),
            fair_priorities: match rules.fair_priorities.load(load) {
                after if after <= MOST_PASSED => after,
                _ => return None,
            },
            trace_messages: match rules.trace_messages.load(load) {
                0 => false,
                1 => true,
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
                close_with_producers: true,
                retry_delay: [1, 2],
                fair_priorities: MOST_PASSED,
                trace_messages: true,
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
        rules.close_with_producers.store(2, Ordering::Relaxed);
        assert_eq!(Policy::read(&rules), None);
        rules.close_with_producers.store(0, Ordering::Relaxed);
        rules.fair_priorities.store(65_536, Ordering::Relaxed);
        assert_eq!(Policy::read(&rules), None);
        rules.fair_priorities.store(0, Ordering::Relaxed);
        rules.trace_messages.store(2, Ordering::Relaxed);
        assert_eq!(Policy::read(&rules), None);
    }
}
