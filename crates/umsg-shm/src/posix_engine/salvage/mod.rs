//! Salvage: rebuilds a corrupt queue from its intact messages. For `umsg doctor --repair` only.
//!
//! A repair after a death ([`crate::posix_engine::recover`]) trusts cursors, stamps and lists. As far as possible, a salvage trusts only the words of
//! each cell about its own message. A salvage rebuilds everything else:
//!
//! | the message of a slot was | if its cell is valid, and | result |
//! |---|---|---|
//! | held | one record names the slot | the holder keeps it |
//! | offered to a blocked receiver, or parked by a blocked sender | a node in a list names it | the sender keeps it, and sends it again if it is corrupt; an offered message goes back into the store |
//! | sent by a reservation or by a blocked sender | its record or node still says so | goes into the store, if it is not there |
//! | in the store | its mark says so | stays, in the order of its number |
//! | in the ring | its stamp is one of those from `drained` on, without a gap before `sent` | goes into the store, behind the others |
//! | in no place | none of these holds | the slot is free |
//!
//! New messages continue at the position of the senders' cursor, and all stamps are removed, so no old stamp can be mistaken for a new stamp. The
//! sequence numbers start at 1 again. The salvage holds both locks.
//!
//! If the process dies during a salvage, the queue has the mark of an unfinished salvage ([`crate::repair::log::Damage`]). Calls fail with EBADMSG
//! until another salvage, which must find each message again. Two rules make another salvage possible:
//!
//! - A message is marked as stored before its stamp or the list of its node is removed.
//! - Sequence numbers only become smaller, and the smallest changes first: two sent messages never have the same sequence number. Unsent messages (of
//!   reservations and blocked senders) get no sequence number.

mod dead;
mod locks;
mod rebuild;
mod room;
mod survey;

use super::{Engine, Refused};
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::leases::Leases;
use crate::lock::Lock;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::BothHeld;
use crate::posix_engine::segment::{Cell, PRIORITIES};
use crate::repair::log::Damage;
use crate::repair::salvage::{self, Real, Salvaged};
use crate::sys::clock::Deadline;
use crate::sys::liveness::Liveness;
use crate::sys::thread::Thread;
use crate::waiters::Waiters;
use locks::Both;
use std::collections::BTreeSet;

/// The owner of a message that is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// A receiver holds the message. The message may be returned to its place in the order.
    Held,
    /// A sender holds the message. The message has no place in the order yet.
    Unsent,
    Queued,
}

/// The last place in the order, for a message that has no other place yet.
const LAST: (bool, u64) = (true, u64::MAX);

/// A message that is kept: its place in the order, its slot and its owner. Messages of the ring follow messages of the store.
type Kept = ((bool, u64), u32, Owner);

impl salvage::Salvage for Engine {
    fn salvage(
        &self,
        me: &Thread,
        deadline: Deadline,
        real: impl Fn() -> Real,
        give_back: impl Fn(usize),
    ) -> Result<Salvaged, Fault> {
        let fixed = self.segment().fixed();
        let locks = Both::take(self, me, deadline)?;
        let receiving = locks.token().receiver();
        let real = real();
        let (real, slots) = match self.provide(real) {
            Ok(provided) => provided,
            Err(fault) => {
                locks.leave_as_found();
                return Err(fault);
            }
        };
        fixed.header.damage.begin_to_mend();
        // The lock words now name this thread, so if it dies, the kernel marks the locks.
        fixed.receiver.lock.take_over();
        fixed.sender.lock.take_over();
        crash_point!(SALVAGE_BEGUN);
        give_back(slots);
        let mut wakes = DeferredWakes::default();
        let salvaged = self
            .rebuild(locks.token(), real, slots)
            .and_then(|salvaged| {
                self.serve(receiving, &mut wakes)?;
                Ok(salvaged)
            });
        let salvaged = match salvaged {
            Ok(salvaged) => salvaged,
            Err(fault) => {
                locks.leave_broken();
                return Err(fault);
            }
        };
        self.update_wait_flags(receiving);
        self.repair_poll_fifo(receiving);
        wakes.add_everybody(Waiters::of(self.segment()).usable());
        crash_point!(SALVAGE_DONE);
        fixed.header.damage.end_mending();
        // A helper that has found the queue corrupt sleeps until a process calls the helper. When this call wakes it, the helper checks the queue
        // again.
        self.ringer().call_timekeepers(receiving);
        locks.unlock();
        self.wake(&wakes);
        self.segment().check()?;
        Ok(salvaged)
    }

    fn take_up(&self, me: &Thread, deadline: Deadline, knows_threads: bool) -> Result<(), Fault> {
        let taken = self.with_receiver_lock(me, deadline, |receiving, wakes| {
            self.borrow_sender_lock(receiving, me, deadline)?;
            self.segment().fixed().sender.lock.give_back();
            self.remove_dead(receiving, knows_threads)?;
            self.reclaim_and_serve(receiving, wakes)
                .map_err(Refused::from)
        });
        taken.map_err(Refused::fault)
    }

    fn lives(&self) -> &dyn Liveness {
        self.segment()
    }

    fn locks(&self) -> Vec<&Lock> {
        let fixed = self.segment().fixed();
        vec![&fixed.sender.lock, &fixed.receiver.lock]
    }

    fn damage(&self) -> &Damage {
        &self.segment().fixed().header.damage
    }
}

impl Engine {
    fn rebuild(&self, both: BothHeld<'_>, real: Real, slots: usize) -> Result<Salvaged, Fault> {
        let receiving = both.receiver();
        self.cut_to(both, real, slots);
        let mut salvage = Salvage::of(self, slots);
        salvage.survey_ring();
        salvage.survey_store();
        salvage.survey_holds();
        salvage.survey_nodes();
        crash_point!(SALVAGE_SURVEYED);
        salvage.rebuild_arena(both, real)?;
        salvage.number(both)?;
        crash_point!(SALVAGE_NUMBERED);
        let keeps_position = salvage.rebuild_ring(both)?;
        crash_point!(SALVAGE_EMPTIED);
        salvage.rebuild_store(receiving)?;
        Waiters::of(self.segment()).rebuild(receiving)?;
        Leases::of(self.segment()).rebuild(receiving)?;
        self.note_delayed(receiving);
        self.find_registration(receiving);
        self.publish_counts(receiving);
        self.restart_totals(receiving, keeps_position);
        // The rebuilt queue may contain more messages than its capacity, so senders must not use the room that they have read before.
        self.segment().fixed().forget_room(both);
        Ok(salvage.outcome)
    }
}

struct Salvage<'a> {
    engine: &'a Engine,
    slots: usize,
    /// For each slot, the message in it, if the message is kept.
    messages: Vec<Option<(bool, u64, Owner)>>,
    /// The slots whose message is corrupt.
    corrupt: BTreeSet<u32>,
    outcome: Salvaged,
}

impl<'a> Salvage<'a> {
    fn of(engine: &'a Engine, slots: usize) -> Salvage<'a> {
        Salvage {
            engine,
            slots,
            messages: vec![None; slots],
            corrupt: BTreeSet::new(),
            outcome: Salvaged::default(),
        }
    }

    fn cells(&self) -> impl Iterator<Item = (u32, &'a Cell)> + use<'a> {
        let (segment, slots) = (self.engine.segment(), self.slots as u32);
        (0..slots).filter_map(|slot| Some((slot, segment.cell(slot).ok()?)))
    }

    fn is_whole(&self, slot: u32) -> bool {
        let layout = self.engine.segment().layout();
        let Ok(cell) = self.engine.segment().cell(slot) else {
            return false;
        };
        let len = cell.len();
        let is_placed = len <= layout.inline() || self.engine.segment().payload(cell, len).is_ok();
        len <= layout.message_size && (cell.key() & 0xffff) < PRIORITIES as u64 && is_placed
    }

    /// Keeps a message if its cell is intact and no other owner has claimed the message. Returns whether the message is kept.
    fn keep(&mut self, slot: u32, order: (bool, u64), owner: Owner) -> bool {
        if !self.is_whole(slot) {
            self.corrupt.insert(slot);
            return false;
        }
        match self.messages.get_mut(slot as usize) {
            Some(free @ None) => *free = Some((order.0, order.1, owner)),
            // The holder of a message takes precedence over the queue.
            Some(Some(taken)) if owner != Owner::Queued && taken.2 == Owner::Queued => {
                *taken = (order.0, order.1, owner);
            }
            _ => return false,
        }
        true
    }
}
