//! Salvage: what is left of a queue whose bytes make no sense any more, made into one that does. For `umsg doctor --repair` only.
//!
//! A repair after a death ([`crate::recover`]) believes cursors, stamps and lists. Here nothing is believed but what each cell says of its own
//! message, as far as that can be so; everything else is made anew:
//!
//! | a slot's message is | if its cell makes sense, and | then |
//! |---|---|---|
//! | held | a record names the slot, and no other does | stays the holder's |
//! | a blocked thread's | a node in a list names it | stays the thread's |
//! | in the store | it is marked so | stays, in the order of its number |
//! | in the ring | its stamp is one of those from `drained` on, without a gap before `sent` | goes into the store, behind the others |
//! | nowhere | none of these | the slot is free |
//!
//! All numbers and positions begin anew: no old stamp can be mistaken for a new one. Both locks are held. Who dies here leaves a queue that
//! says that it is being made anew ([`crate::mended::Damage`]): calls fail with EBADMSG until another salvage, which finds each message
//! where the dead one left it. For that a message is marked as stored before its stamp or its node's list is forgotten, and numbers only
//! become smaller, from the smallest on.

use super::{Engine, Refused};
use crate::crash::crash_point;
use crate::error::Trouble;
use crate::holds::{self, Holds, State as HoldState};
use crate::lock::Lock;
use crate::mended::{self, Damage, Real, Salvaged};
use crate::order::Priorities;
use crate::segment::{Cell, NO_SLOT, NODES, PRIORITIES};
use crate::slots::{Ring, arena};
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use crate::waiters::{self, List, State, Waiters};
use crate::wakes::Wakes;
use std::collections::BTreeSet;

/// Where a message that is kept belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    /// In the hands of somebody.
    Held,
    Queued,
}

/// A message that is kept: its place in the order (those of the ring behind those of the store), its slot.
type Kept = ((bool, u64), u32, Home);

impl mended::Salvage for Engine {
    fn salvage(
        &self,
        me: &Thread,
        deadline: Deadline,
        real: impl Fn() -> Real,
    ) -> Result<Salvaged, Trouble> {
        let fixed = self.segment().fixed();
        let held = fixed.receiver.lock.lock(me, deadline);
        let (held, _) = held.map_err(|_| Trouble::Busy)?;
        let borrowed = fixed.sender.lock.borrow(me, deadline);
        if borrowed.is_err() {
            held.unlock();
            return Err(Trouble::Busy);
        }
        fixed.receiver.lock.note_owner(me);
        let mut wakes = Wakes::default();
        let salvaged = self.make_anew(real()).and_then(|salvaged| {
            self.serve(&mut wakes)?;
            Ok(salvaged)
        });
        let salvaged = match salvaged {
            Ok(salvaged) => salvaged,
            Err(trouble) if fixed.header.damage.check_mended().is_ok() => {
                // Nothing was changed.
                fixed.sender.lock.give_back();
                held.unlock();
                return Err(trouble);
            }
            Err(trouble) => {
                // Both locks are left as the dead leave them: it is to be tried again.
                fixed.sender.lock.give_back_broken();
                return Err(trouble);
            }
        };
        self.update_board();
        self.mend_doorbell();
        wakes.add_everybody(Waiters::of(self.segment()).usable());
        crash_point!(SALVAGE_DONE);
        fixed.header.damage.end_mending();
        fixed.sender.lock.give_back();
        held.unlock();
        self.wake(&wakes);
        self.segment().check()?;
        Ok(salvaged)
    }

    fn take_up(&self, me: &Thread, deadline: Deadline) -> Result<(), Trouble> {
        let taken = self.with_receiver_lock(me, deadline, |wakes| {
            self.borrow_sender_lock(me, deadline)?;
            self.segment().fixed().sender.lock.give_back();
            self.reclaim_and_serve(wakes).map_err(Refused::from)
        });
        taken.map_err(Refused::trouble)
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
    fn make_anew(&self, real: Real) -> Result<Salvaged, Trouble> {
        let slots = self.provide(real)?;
        let mut salvage = Salvage::of(self, slots);
        salvage.survey_ring();
        salvage.survey_store();
        salvage.survey_holds();
        salvage.survey_nodes();
        crash_point!(SALVAGE_SURVEYED);
        salvage.lay_arena(real)?;
        salvage.number()?;
        crash_point!(SALVAGE_NUMBERED);
        salvage.lay_ring()?;
        crash_point!(SALVAGE_EMPTIED);
        salvage.lay_store()?;
        Waiters::of(self.segment()).rebuild()?;
        Holds::of(self.segment()).rebuild()?;
        self.find_registration();
        self.publish_counts();
        self.forget_room();
        Ok(salvage.outcome)
    }

    /// The next sender looks for itself whether there is room: there may be more messages than the queue is for.
    fn forget_room(&self) {
        let fixed = self.segment().fixed();
        let removed = fixed.published.removed.load(Ordering::Relaxed);
        let seen = &fixed.sender.removed_seen;
        if seen.get().wrapping_sub(removed) as i64 > 0 {
            seen.set(removed);
        }
    }

    /// Makes lengths of regions what they can be. Answers how many slots there are.
    fn provide(&self, real: Real) -> Result<usize, Trouble> {
        let (segment, fixed) = (self.segment(), self.segment().fixed());
        let layout = segment.layout();
        let slots = real.slots.clamp(1, layout.slots);
        let entries = slots.next_power_of_two().max(1024).min(layout.ring_len);
        segment.populate(layout.ring, entries * 4)?;
        segment.populate(layout.links, slots * 4)?;
        segment.populate(layout.cells, slots * layout.cell_len)?;
        fixed.header.damage.begin_to_mend();
        crash_point!(SALVAGE_BEGUN);
        // Relaxed throughout: both locks are held; who looks without one finds a queue that is being changed.
        fixed.geometry.slots.store(slots as u32, Ordering::Relaxed);
        fixed
            .geometry
            .ring_mask
            .store(entries as u32 - 1, Ordering::Release);
        fixed.receiver.nodes.set(real.nodes.min(NODES) as u32);
        let usable = real.holds.min(layout.slots) as u32;
        fixed.holding.usable.set(usable);
        fixed.holding.used.set(fixed.holding.used.get().min(usable));
        fixed.holding.returned.set(0);
        fixed.holding.look_after.store(0, Ordering::Relaxed);
        fixed.holding.due.store(0, Ordering::Relaxed);
        fixed.sender.fifo_pages.set(1);
        Ok(slots)
    }
}

struct Salvage<'a> {
    engine: &'a Engine,
    slots: usize,
    /// What each slot holds, if it holds a message that is kept.
    homes: Vec<Option<(bool, u64, Home)>>,
    /// Slots whose message makes no sense.
    nonsense: BTreeSet<u32>,
    outcome: Salvaged,
}

impl<'a> Salvage<'a> {
    fn of(engine: &'a Engine, slots: usize) -> Salvage<'a> {
        Salvage {
            engine,
            slots,
            homes: vec![None; slots],
            nonsense: BTreeSet::new(),
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
        let len = cell.len.get() as usize;
        let is_placed = len <= layout.inline() || self.engine.segment().payload(cell, len).is_ok();
        len <= layout.message_size && (cell.key.get() & 0xffff) < PRIORITIES as u64 && is_placed
    }

    /// Keeps a message, unless its cell makes no sense or somebody else has it. True if it is kept.
    fn keep(&mut self, slot: u32, order: (bool, u64), home: Home) -> bool {
        if !self.is_whole(slot) {
            self.nonsense.insert(slot);
            return false;
        }
        match self.homes.get_mut(slot as usize) {
            Some(free @ None) => *free = Some((order.0, order.1, home)),
            // Who holds it comes before the queue.
            Some(Some(taken)) if home == Home::Held && taken.2 == Home::Queued => {
                taken.2 = Home::Held;
            }
            _ => return false,
        }
        true
    }

    /// Messages in the ring, by their own stamps: entries are not needed to find them.
    fn survey_ring(&mut self) {
        let fixed = self.engine.segment().fixed();
        let drained = fixed.receiver.drained.load(Ordering::Relaxed);
        let sent = fixed.sender.sent.load(Ordering::Relaxed);
        let stamps: BTreeSet<(u64, u32)> = self
            .cells()
            .filter(|(_, cell)| !cell.is_stored())
            .map(|(slot, cell)| (cell.stamp.load(Ordering::Relaxed).wrapping_sub(1), slot))
            .map(|(position, slot)| (position.wrapping_sub(drained), slot))
            .filter(|(ahead, _)| *ahead < self.slots as u64)
            .collect();
        let counted = sent.wrapping_sub(drained);
        let counted = if counted <= self.slots as u64 {
            counted
        } else {
            0
        };
        let mut next = 0;
        for (ahead, slot) in stamps {
            // Behind a gap at the end of what was sent are stamps of a batch that was not.
            if ahead >= counted && ahead != next {
                break;
            }
            next = ahead + 1;
            self.keep(slot, (true, ahead), Home::Queued);
        }
    }

    fn survey_store(&mut self) {
        for (slot, cell) in self.cells() {
            if cell.is_stored() {
                self.keep(slot, (false, cell.sequence.get()), Home::Queued);
            }
        }
    }

    fn survey_holds(&mut self) {
        let mut seen = BTreeSet::new();
        for (_, hold) in Holds::of(self.engine.segment()).all() {
            let slot = hold.slot.get();
            let is_first = HoldState::of(hold) != HoldState::Free && seen.insert(slot);
            let order = (false, self.sequence(slot));
            if hold.state.get() != HoldState::Free as u32
                && !(is_first && self.keep(slot, order, Home::Held))
            {
                holds::set(hold, HoldState::Free);
            }
        }
    }

    fn sequence(&self, slot: u32) -> u64 {
        let cell = self.engine.segment().cell(slot);
        cell.map_or(0, |cell| cell.sequence.get())
    }

    fn survey_nodes(&mut self) {
        for (_, node) in Waiters::of(self.engine.segment()).all() {
            let (list, slot) = (List::of(node), node.slot.get());
            let is_waiting = waiters::state(node) == State::Waiting;
            let stays = match list {
                List::None => false,
                _ if waiters::is_orphan(node) => false,
                List::Receivers => is_waiting,
                List::Senders if slot == NO_SLOT => is_waiting,
                List::Senders => is_waiting && self.keep(slot, (false, 0), Home::Held),
                // It is queued again, at its place; its thread looks by itself.
                List::Offered => {
                    if self.keep(slot, (false, self.sequence(slot)), Home::Queued)
                        && let Ok(cell) = self.engine.segment().cell(slot)
                    {
                        cell.set_stored(true);
                    }
                    let _ = waiters::unsettle(node);
                    false
                }
            };
            if stays {
                continue;
            }
            if list == List::Senders && is_waiting {
                // What it was to send is lost: it need not wait.
                let _ = waiters::settle(node);
            }
            node.list.set(List::None as u32);
        }
    }

    /// Makes the arena anew: the blocks of messages that are kept, and what lies between them. One that overlaps another is lost.
    fn lay_arena(&mut self, real: Real) -> Result<(), Trouble> {
        let segment = self.engine.segment();
        let inline = segment.layout().inline();
        let mut blocks = Vec::new();
        for (slot, cell) in self.cells() {
            let len = cell.len.get() as usize;
            let is_kept = self.homes[slot as usize].is_some();
            match is_kept && len > inline {
                true => blocks.push(arena::Block::new(slot, cell.block.get(), len)),
                false => cell.block.set(0),
            }
        }
        for slot in arena::lay(segment, &mut blocks, real.arena)? {
            self.homes[slot as usize] = None;
            self.nonsense.insert(slot);
            segment.cell(slot)?.block.set(0);
        }
        // Whose message was lost with its block holds nothing any more.
        for (_, hold) in Holds::of(segment).all() {
            let is_kept = |slot: u32| matches!(self.homes.get(slot as usize), Some(Some(_)));
            if HoldState::of(hold) != HoldState::Free && !is_kept(hold.slot.get()) {
                holds::set(hold, HoldState::Free);
            }
        }
        Ok(())
    }

    /// The messages that are kept, in their order.
    fn kept(&self) -> Vec<Kept> {
        let slots = (0_u32..).zip(&self.homes);
        let mut kept: Vec<Kept> = slots
            .filter_map(|(slot, home)| {
                home.map(|(ring, number, home)| ((ring, number), slot, home))
            })
            .collect();
        kept.sort_unstable();
        kept
    }

    /// Numbers what is kept from 1 on, and marks what is queued as stored. From here on nothing needs to be known of the ring.
    fn number(&mut self) -> Result<(), Trouble> {
        let segment = self.engine.segment();
        let kept = self.kept();
        let greatest = kept
            .iter()
            .filter(|((is_in_ring, _), ..)| !is_in_ring)
            .map(|((_, number), ..)| *number)
            .max();
        // What was in the ring comes behind all others, also for who finds it numbered and the others not.
        let mut last = greatest.unwrap_or(0);
        for ((is_in_ring, _), slot, home) in &kept {
            if *is_in_ring && *home == Home::Queued {
                let cell = segment.cell(*slot)?;
                last = last.wrapping_add(1);
                cell.sequence.set(last);
                cell.set_stored(true);
            }
        }
        for (number, (_, slot, home)) in (1..).zip(&kept) {
            let cell = segment.cell(*slot)?;
            cell.sequence.set(number);
            cell.set_stored(*home == Home::Queued);
        }
        segment.fixed().receiver.sequence.set(kept.len() as u64);
        Ok(())
    }

    /// Makes an empty ring of the free slots, from the position on that the senders had reached.
    fn lay_ring(&mut self) -> Result<(), Trouble> {
        let fixed = self.engine.segment().fixed();
        let sent = fixed.sender.sent.load(Ordering::Relaxed);
        // 48 bits of it have to go into the one-priority word.
        let first = if sent >> 47 == 0 { sent } else { 0 };
        let mut free = 0;
        for (slot, cell) in self.cells() {
            cell.stamp.store(0, Ordering::Release);
            if self.homes[slot as usize].is_none() {
                cell.forget();
                Ring::of(self.engine.segment()).write(first.wrapping_add(free), slot);
                free += 1;
            }
        }
        let (sender, receiver) = (&fixed.sender, &fixed.receiver);
        fixed.run.word.store(first << 16, Ordering::Release);
        sender.batch_end.store(first, Ordering::Release);
        sender
            .bytes
            .iter()
            .for_each(|bytes| bytes.store(0, Ordering::Release));
        receiver
            .bytes
            .iter()
            .for_each(|bytes| bytes.store(0, Ordering::Release));
        receiver.sent_seen.set(first);
        receiver.drained.store(first, Ordering::Release);
        sender.sent.store(first, Ordering::Release);
        sender.freed_seen.set(first.wrapping_add(free));
        // The next sender looks for itself whether there is room.
        sender
            .removed_seen
            .set(first.wrapping_sub(self.engine.segment().layout().max_messages as u64));
        fixed
            .published
            .freed
            .store(first.wrapping_add(free), Ordering::Release);
        Ok(())
    }

    /// Makes the store anew.
    fn lay_store(&mut self) -> Result<(), Trouble> {
        let segment = self.engine.segment();
        let receiver = &segment.fixed().receiver;
        let kept = self.kept();
        Priorities::of(segment).clear()?;
        receiver.stored.store(0, Ordering::Relaxed);
        receiver.stored_bytes.store(0, Ordering::Relaxed);
        for (_, slot, home) in &kept {
            if *home == Home::Held {
                continue;
            }
            let found = self.engine.in_hand(*slot)?;
            self.engine.provide_fifo(found.key)?;
            Priorities::of(segment).push_back(found.key, *slot)?;
            self.engine.count_stored(found.len as u64, 1);
        }
        self.outcome.kept = kept.len() as u64;
        self.outcome.lost = self.nonsense.len() as u64;
        Ok(())
    }
}
