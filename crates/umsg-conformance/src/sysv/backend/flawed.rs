//! A backend of the kernel with one deliberate mistake. The comparison with the kernel must find the mistake.

use super::{Answer, Backend, Called, Change, Functions, Id, Info, MSG_COPY, Status};
use crate::backend::{self, Basics, Failure};
use crate::errno::Errno;

/// A deliberate mistake of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The identifier is checked before the type.
    TypeCheckedLate,
    /// `IPC_EXCL` is ignored.
    ExclusiveIgnored,
    /// `MSG_EXCEPT` is ignored.
    ExceptIgnored,
    /// A receive with a negative type takes the first message whose type is low enough, instead of a message of the lowest type.
    LowestIsFirst,
    /// A message that is too long for the buffer is lost, and the receive fails with E2BIG.
    TooLongIsLost,
    /// `MSG_COPY` removes the message from the queue.
    CopyTakes,
    /// The last bit of each received message of more than 4 bytes is inverted.
    BitTurned,
    /// A blocked receive gives up with `ENOMSG`.
    NeverBlocks,
    /// A receive overwrites the byte of the buffer that follows the message.
    BufferScribbledOn,
    /// If a queue has more than two messages, the reported number of its bytes is too high by one.
    CountTooHigh,
    /// `msg_lrpid` is `msg_lspid`.
    WrongReceiver,
    /// The time of the last change is the time of the last send.
    WrongTime,
    /// `IPC_SET` forgets the group.
    GroupForgotten,
    /// `MSG_STAT` checks no permission.
    IndexReadableByAll,
    /// The reported number of messages in all queues is too low by one.
    TotalTooLow,
    /// A call with the stale identifier of a removed queue fails with `EIDRM`.
    StaleIsRemoved,
}

impl Flaw {
    /// All mistakes.
    pub const ALL: &[Flaw] = &[
        Flaw::TypeCheckedLate,
        Flaw::ExclusiveIgnored,
        Flaw::ExceptIgnored,
        Flaw::LowestIsFirst,
        Flaw::TooLongIsLost,
        Flaw::CopyTakes,
        Flaw::BitTurned,
        Flaw::NeverBlocks,
        Flaw::BufferScribbledOn,
        Flaw::CountTooHigh,
        Flaw::WrongReceiver,
        Flaw::WrongTime,
        Flaw::GroupForgotten,
        Flaw::IndexReadableByAll,
        Flaw::TotalTooLow,
        Flaw::StaleIsRemoved,
    ];

    /// Returns whether the mistake has an effect only in histories with several users or with a private namespace, for which the process must be
    /// root.
    pub fn needs_root(self) -> bool {
        matches!(
            self,
            Flaw::GroupForgotten | Flaw::IndexReadableByAll | Flaw::TotalTooLow
        )
    }
}

/// A backend of the kernel with a mistake.
pub type Flawed = backend::Flawed<Called, Flaw>;

impl Flawed {
    /// Returns the type of the queue's first message whose type is at most `most`.
    fn first_up_to(&self, id: Id, most: i64) -> Option<i64> {
        let flags = MSG_COPY | libc::IPC_NOWAIT | libc::MSG_NOERROR;
        let mut text = vec![0; 8192];
        (0..)
            .map_while(|at| self.kernel.receive(id, &mut text, at, flags).ok())
            .map(|(_, mtype)| mtype)
            .find(|&mtype| mtype <= most)
    }

    /// Returns the type and the flags that the kernel's receive gets, changed by the mistake.
    fn wanted(&self, id: Id, mtype: i64, flags: i32) -> (i64, i32) {
        let mut flags = flags;
        if self.has(Flaw::ExceptIgnored) && flags & MSG_COPY == 0 {
            flags &= !libc::MSG_EXCEPT;
        }
        if self.has(Flaw::NeverBlocks) {
            flags |= libc::IPC_NOWAIT;
        }
        let copies = flags & MSG_COPY != 0;
        if self.has(Flaw::LowestIsFirst) && mtype < 0 && mtype != i64::MIN && !copies {
            return (self.first_up_to(id, -mtype).unwrap_or(mtype), flags);
        }
        (mtype, flags)
    }

    /// Returns the result of inspecting a queue, changed by the mistake.
    fn seen(&self, (returned, mut status): (i32, Status)) -> (i32, Status) {
        if self.has(Flaw::CountTooHigh) && status.messages > 2 {
            status.bytes += 1;
        }
        if self.has(Flaw::WrongReceiver) && status.last_receiver != 0 {
            status.last_receiver = status.last_sender;
        }
        if self.has(Flaw::WrongTime) {
            status.changed = status.sent;
        }
        (returned, status)
    }

    /// If the mistake is `StaleIsRemoved`, changes EINVAL to EIDRM, the error of waiters whose queue is removed.
    fn stale<T>(&self, answer: Answer<T>) -> Answer<T> {
        match answer {
            Err(Failure::Errno(Errno::EINVAL)) if self.has(Flaw::StaleIsRemoved) => {
                Err(Errno::EIDRM.into())
            }
            answer => answer,
        }
    }
}

impl Basics for Flawed {
    fn label(&self) -> &'static str {
        "flawed kernel"
    }
}

impl Backend for Flawed {
    fn get(&self, key: i32, flags: i32) -> Answer<Id> {
        let flags = if self.has(Flaw::ExclusiveIgnored) {
            flags & !libc::IPC_EXCL
        } else {
            flags
        };
        self.kernel.get(key, flags)
    }

    fn send(&self, id: Id, mtype: i64, text: &[u8], flags: i32) -> Answer<()> {
        if self.has(Flaw::TypeCheckedLate) && mtype < 1 {
            self.kernel.send(id, 1, text, flags)?;
        }
        self.kernel.send(id, mtype, text, flags)
    }

    fn receive(&self, id: Id, text: &mut [u8], mtype: i64, flags: i32) -> Answer<(usize, i64)> {
        let (mtype, flags) = self.wanted(id, mtype, flags);
        let answer = self.kernel.receive(id, text, mtype, flags);
        if self.has(Flaw::TooLongIsLost) && answer == Err(Errno::E2BIG.into()) {
            let flags = flags | libc::MSG_NOERROR | libc::IPC_NOWAIT;
            let _ = self.kernel.receive(id, &mut [], mtype, flags);
        }
        let (length, mtype) = answer?;
        if self.has(Flaw::CopyTakes) && flags & MSG_COPY != 0 {
            let _ = self
                .kernel
                .receive(id, &mut vec![0; 8192], mtype, libc::IPC_NOWAIT);
        }
        if self.has(Flaw::BitTurned) && length > 4 {
            text[length - 1] ^= 1;
        }
        if self.has(Flaw::BufferScribbledOn) && length < text.len() {
            text[length] = 0;
        }
        Ok((length, mtype))
    }

    fn stat(&self, id: Id, command: i32) -> Answer<(i32, Status)> {
        let command = if self.has(Flaw::IndexReadableByAll) && command == libc::MSG_STAT {
            super::MSG_STAT_ANY
        } else {
            command
        };
        let answer = self.stale(self.kernel.stat(id, command))?;
        Ok(self.seen(answer))
    }

    fn set(&self, id: Id, change: &Change) -> Answer<()> {
        let mut change = *change;
        if self.has(Flaw::GroupForgotten)
            && let Ok((_, status)) = self.kernel.stat(id, libc::IPC_STAT)
        {
            change.gid = status.gid;
        }
        self.kernel.set(id, &change)
    }

    fn remove(&self, id: Id) -> Answer<()> {
        self.kernel.remove(id)
    }

    fn info(&self, command: i32) -> Answer<(i32, Info)> {
        let (returned, mut info) = self.kernel.info(command)?;
        if self.has(Flaw::TotalTooLow) && command == libc::MSG_INFO && info.map > 3 {
            info.map -= 1;
        }
        Ok((returned, info))
    }

    fn functions(&self) -> Answer<&Functions> {
        self.kernel.functions()
    }
}
