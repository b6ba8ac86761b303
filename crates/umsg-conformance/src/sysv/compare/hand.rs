//! The part of a worker that makes the calls of System V queues.

use std::sync::atomic::{AtomicU32, Ordering};

use super::call::{Call, SLOTS, Size, Target, Whose};
use super::{Names, SystemV};
use crate::compare::lists::{add, find};
use crate::compare::{self, Outcome, Reply, Shared, UNTOUCHED, payload, plain, returned};
use crate::sys::{self, Pid};
use crate::sysv::backend::{Backend, Change, INDICES, Id, Info, Place, Status};

/// The maximum number of identifiers, and of processes, in a history.
const MOST: usize = 1000;

/// The number of memory words that the workers of a side share. The first words are the identifiers in the slots, each plus one. Then follow lists of
/// all identifiers and process ids of the history, and three users for each identifier (see [`Person`]).
pub const WORDS: usize = SLOTS + 2 * (1 + MOST) + 3 * (1 + MOST);

/// The role of a user for a queue.
#[derive(Clone, Copy)]
enum Person {
    /// The user that created the queue.
    Maker = 0,
    /// The owner that `IPC_SET` has set.
    Owner = 1,
    /// The owner of the queue's file, for backends with files. At first, it is the creator, until root names another owner.
    OfFile = 2,
}

/// Returns the identifier or index that a target means.
pub fn identifier(target: Target, words: &[AtomicU32]) -> Id {
    let in_slot = |slot: usize| words[slot].load(Ordering::Acquire) as i32 - 1;
    match target {
        Target::Slot(slot) => in_slot(slot),
        Target::IndexOf(slot) => in_slot(slot).max(0) % INDICES,
        Target::NextSequence(slot) => in_slot(slot).max(0).wrapping_add(INDICES),
        Target::Number(number) => number,
    }
}

/// Returns every identifier of the history.
pub fn identifiers(words: &[AtomicU32]) -> impl Iterator<Item = Id> {
    let list = &words[SLOTS..];
    let count = list[0].load(Ordering::Acquire) as usize;
    let entries = &list[1..=count];
    entries
        .iter()
        .map(|entry| entry.load(Ordering::Relaxed) as Id)
}

/// The part of a worker's state that the calls on System V queues need.
pub struct Hand<'a> {
    backend: &'a dyn Backend,
    names: &'a Names,
    words: &'static [AtomicU32],
}

impl compare::Hand<Call> for Hand<'_> {
    fn begin(&mut self) {
        add(self.processes(), sys::pid() as u32);
    }

    fn call(&mut self, number: u32, call: Call) -> Reply {
        match call {
            Call::Get { slot, key, flags } => self.get(slot, key, flags),
            Call::Send {
                target,
                mtype,
                size,
                flags,
            } => self.send(self.id(target), mtype, size, flags, number),
            Call::Receive {
                target,
                size,
                mtype,
                flags,
            } => self.receive(self.id(target), size, mtype, flags),
            Call::Stat { whose, .. } | Call::Info { whose, .. }
                if whose == Whose::Roots && !sys::is_root() =>
            {
                returned(0)
            }
            Call::Stat {
                target, command, ..
            } => self.stat(self.id(target), command),
            Call::Set { target, change } => self.set(self.id(target), &change),
            Call::Remove { target } if self.needs_the_file(self.id(target)) => returned(0),
            Call::Remove { target } => plain(self.backend.remove(self.id(target))),
            Call::Info { command, .. } => Reply::of(self.backend.info(command), told),
            Call::Control { target, command } => self.control(self.id(target), command),
        }
    }
}

impl<'a> Hand<'a> {
    /// Creates the hand of the first worker.
    pub fn new(shared: &Shared<'a, SystemV>) -> Hand<'a> {
        Hand {
            backend: shared.backend,
            names: shared.names,
            words: shared.own_words(),
        }
    }

    fn id(&self, target: Target) -> Id {
        identifier(target, self.words)
    }

    fn known(&self) -> &'static [AtomicU32] {
        &self.words[SLOTS..][..1 + MOST]
    }

    fn processes(&self) -> &'static [AtomicU32] {
        &self.words[SLOTS + 1 + MOST..][..1 + MOST]
    }

    /// Returns the answer with an identifier, and with its position in the order in which identifiers first occurred.
    fn identified(&self, id: Id) -> Reply {
        let at = find(self.known(), id as u32).unwrap_or_else(|| {
            let at = add(self.known(), id as u32);
            for person in [Person::Maker, Person::Owner, Person::OfFile] {
                self.person(at, person)
                    .store(sys::user().uid, Ordering::Relaxed);
            }
            at
        });
        Reply::new(Outcome::Identifier(id)).with([at as i64])
    }

    fn get(&self, slot: usize, key: Option<usize>, flags: i32) -> Reply {
        let key = key.map_or(libc::IPC_PRIVATE, |key| self.names.keys[key]);
        Reply::of(self.backend.get(key, flags), |id| {
            self.words[slot].store((id + 1) as u32, Ordering::Release);
            self.identified(id)
        })
    }

    /// Returns the word with the user that has this role for a queue. `at` is the position of the queue in the list of identifiers.
    fn person(&self, at: usize, person: Person) -> &'static AtomicU32 {
        let persons = &self.words[SLOTS + 2 * (1 + MOST)..];
        &persons[person as usize * (1 + MOST) + at]
    }

    /// Returns whether only the kernel would let the caller change the queue. The caller is the creator or the owner, but in umsg, the queue's file
    /// belongs to another user.
    fn needs_the_file(&self, id: Id) -> bool {
        let Some(at) = find(self.known(), id as u32).filter(|_| !sys::is_root()) else {
            return false;
        };
        let is_me = |person| self.person(at, person).load(Ordering::Relaxed) == sys::user().uid;
        !is_me(Person::OfFile) && (is_me(Person::Maker) || is_me(Person::Owner))
    }

    fn set(&self, id: Id, change: &Change) -> Reply {
        if self.needs_the_file(id) {
            return returned(0);
        }
        let answer = self.backend.set(id, change);
        if let (Ok(()), Some(at)) = (answer, find(self.known(), id as u32)) {
            self.person(at, Person::Owner)
                .store(change.uid, Ordering::Relaxed);
            if sys::is_root() {
                self.person(at, Person::OfFile)
                    .store(change.uid, Ordering::Relaxed);
            }
        }
        plain(answer)
    }

    fn send(&self, id: Id, mtype: i64, size: Size, flags: i32, number: u32) -> Reply {
        match size {
            Size::Of(bytes) => plain(self.backend.send(id, mtype, &payload(number, bytes), flags)),
            Size::Wrong(size) => {
                let functions = self.backend.functions();
                plain(
                    functions.and_then(|functions| {
                        functions.send_at(id, Place::Good, size as usize, flags)
                    }),
                )
            }
        }
    }

    fn receive(&self, id: Id, size: Size, mtype: i64, flags: i32) -> Reply {
        let bytes = match size {
            Size::Of(bytes) => bytes,
            Size::Wrong(size) => {
                let functions = self.backend.functions();
                let received = functions.and_then(|functions| {
                    functions.receive_at(id, Place::Good, size as usize, mtype, flags)
                });
                return Reply::of(received, |length| returned(length as i64));
            }
        };
        let mut text = vec![UNTOUCHED; bytes];
        let received = self.backend.receive(id, &mut text, mtype, flags);
        let untouched = |rest: &[u8]| i64::from(rest.iter().all(|&byte| byte == UNTOUCHED));
        if received.is_err() {
            return Reply::of(received, |_| unreachable!()).with([untouched(&text)]);
        }
        Reply::of(received, |(length, mtype)| {
            let length = length.min(text.len());
            let reply = returned(length as i64).with([mtype, untouched(&text[length..])]);
            Reply {
                data: text[..length].to_vec(),
                ..reply
            }
        })
    }

    fn stat(&self, id: Id, command: i32) -> Reply {
        Reply::of(self.backend.stat(id, command), |(value, status)| {
            let reply = if command == libc::IPC_STAT {
                returned(value.into())
            } else {
                self.identified(value)
            };
            Reply {
                times: vec![status.sent, status.received, status.changed],
                ..reply.with(self.fields(&status))
            }
        })
    }

    /// Returns the fields of a queue's status without the times. Numbers that are equal on both sides replace the key and the process ids.
    fn fields(&self, status: &Status) -> [i64; 12] {
        let key = self.names.keys.iter().position(|&key| key == status.key);
        let key = match (key, status.key) {
            (Some(at), _) => at as i64,
            (None, 0) => -1,
            (None, key) => i64::from(key),
        };
        let sequence = if self.names.alone { status.sequence } else { 0 };
        let [bytes, messages, max_bytes] =
            [status.bytes, status.messages, status.max_bytes].map(|count| count as i64);
        [
            key,
            status.uid.into(),
            status.gid.into(),
            status.creator_uid.into(),
            status.creator_gid.into(),
            status.mode.into(),
            sequence.into(),
            bytes,
            messages,
            max_bytes,
            self.process(status.last_sender),
            self.process(status.last_receiver),
        ]
    }

    /// Returns the number of a process in the history, counted from 1. The process id 0 gives 0, and the id of a process outside the history gives
    /// -1.
    fn process(&self, pid: Pid) -> i64 {
        match pid {
            0 => 0,
            pid => find(self.processes(), pid as u32).map_or(-1, |at| at as i64),
        }
    }

    fn control(&self, id: Id, command: i32) -> Reply {
        let functions = self.backend.functions();
        let answer = functions.and_then(|functions| functions.control_at(id, command, Place::Good));
        Reply::of(answer, |value| returned(value.into()))
    }
}

fn told((value, info): (i32, Info)) -> Reply {
    let Info {
        pool,
        map,
        max,
        mnb,
        mni,
        ssz,
        tql,
        seg,
    } = info;
    returned(value.into()).with([pool, map, max, mnb, mni, ssz, tql, seg].map(i64::from))
}
