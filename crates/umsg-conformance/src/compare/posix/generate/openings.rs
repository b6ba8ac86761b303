//! Random histories: opening, creating, closing and unlinking.

use super::{Attributes, Call, Generator, Operation, SET_ID};

impl Generator {
    /// Returns an operation that opens, closes or unlinks.
    pub(super) fn opening(&mut self) -> Operation {
        Operation::Call(match self.random.below(20) {
            0..11 => self.open(),
            11..14 => Call::Close { slot: self.slot() },
            14 if self.bounds.descriptors => Call::CloseDescriptor { slot: self.slot() },
            14..17 => Call::Unlink { name: self.name() },
            _ if self.character.open_to_all => Call::GetAttributes { slot: self.slot() },
            _ => {
                return Operation::Umask {
                    mask: self.random.pick(&[0, 0, 0o022, 0o077, 0o027, 0o777]),
                };
            }
        })
    }

    pub(super) fn name(&mut self) -> usize {
        if self.random.percent(90) {
            return self.random.below(self.character.names) as usize;
        }
        self.random.below(self.bounds.names as u64) as usize
    }

    pub(super) fn open(&mut self) -> Call {
        let mut access = self.random.weighted(&[
            (12, libc::O_RDWR),
            (4, libc::O_RDONLY),
            (4, libc::O_WRONLY),
            (1, 3),
        ]);
        if access == 3 && !self.bounds.descriptors {
            access = libc::O_RDWR;
        }
        let mut flags = access;
        for (percent, flag) in [(60, libc::O_CREAT), (12, libc::O_EXCL)] {
            if self.random.percent(percent) {
                flags |= flag;
            }
        }
        if !self.blocks() {
            flags |= libc::O_NONBLOCK;
        }
        let modes = [
            0o600, 0o600, 0o600, 0o666, 0o660, 0o644, 0o640, 0o620, 0o400, 0o200, 0o222, 0, 0o1711,
            0o1777,
        ];
        let mode = if self.character.open_to_all {
            0o666
        } else if self.random.percent(5) {
            self.random.below(1 << 16) as u32 & !SET_ID
        } else {
            self.random.pick(&modes)
        };
        let name = self.name();
        let attributes =
            self.attributes(flags & libc::O_CREAT != 0 && name < self.bounds.valid_names);
        Call::Open {
            slot: self.slot(),
            name,
            flags,
            mode,
            attributes,
        }
    }

    /// Returns attributes for a queue to create, within the kernel's limits.
    pub(super) fn attributes(&mut self, creates: bool) -> Option<Attributes> {
        if self.random.percent(6) {
            return Some(self.wrong_attributes());
        }
        let mut messages = match self.random.below(20) {
            0..14 => 1 + self.random.below(10) as i64,
            14..18 => 1 + self.random.below(200) as i64,
            _ => 1 + self.random.below(60_000) as i64,
        };
        let mut size = match self.random.below(20) {
            0..15 => 1 + self.random.below(64) as i64,
            15..18 => 1 + self.random.below(1024) as i64,
            18 => 1 + self.random.below(8192) as i64,
            _ => 1 + self.random.below(1 << 20) as i64,
        };
        if !creates {
            return self
                .random
                .percent(50)
                .then(|| Attributes::new(messages, size));
        }
        let default = self.random.percent(4);
        if default {
            (messages, size) = (10, 8192);
        }
        if messages > self.bounds.max_messages {
            self.unasked.depth += 1;
            messages = 1 + messages % self.bounds.max_messages;
        }
        if size > self.bounds.max_message_size {
            self.unasked.length += 1;
            size = 1 + size % self.bounds.max_message_size;
        }
        if self.cost(messages, size) > self.left {
            self.unasked.memory += 1;
            (messages, size) = (1 + messages % 4, 1 + size % 16);
        }
        self.left -= self.cost(messages, size);
        let flags = if self.random.percent(10) {
            i64::from(libc::O_NONBLOCK)
        } else {
            0
        };
        let default = default && (messages, size) == (10, 8192);
        (!default).then(|| Attributes {
            flags,
            ..Attributes::new(messages, size)
        })
    }

    /// Returns attributes with which the creation of a queue fails.
    fn wrong_attributes(&mut self) -> Attributes {
        let (most, longest) = (
            self.bounds.max_messages + 1,
            self.bounds.max_message_size + 1,
        );
        let (messages, size) = self.random.pick(&[
            (0, 8),
            (4, 0),
            (0, 0),
            (most, 8),
            (4, longest),
            (i64::from(i32::MAX), 8),
            (4, i64::from(i32::MAX)),
            (-1, 8),
            (4, -1),
            (i64::MIN, 8),
            (i64::MAX, i64::MAX),
        ]);
        if self.bounds.descriptors || messages.min(size) >= 0 && messages.max(size) < 1 << 32 {
            return Attributes::new(messages, size);
        }
        // The native API can't express the chosen attributes, so these attributes replace them.
        Attributes::new(0, 8)
    }

    /// Returns an upper bound of the memory that the kernel charges for a queue, in bytes.
    pub(super) fn cost(&self, messages: i64, size: i64) -> i64 {
        messages * (size + 128) + 1024
    }
}
