//! Salvage: what is left of a queue whose bytes make no sense any more, made into one that does. For `umsg doctor --repair` only.
//!
//! A repair after a death ([`crate::recover`]) believes cursors, stamps and lists. Here nothing is believed but what each cell says of its own
//! message, as far as that can be so; everything else is made anew:
//!
//! | a slot's message is | if its cell makes sense, and | then |
//! |---|---|---|
//! | held | a record names the slot, and no other does | stays the holder's |
//! | a blocked thread's | a node in a list names it | stays the sender's; one that was offered goes back into the store |
//! | sent by a reservation or by a blocked sender | its record or node says so, and that is still there | goes into the store, where it is not |
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
use crate::lock::{Held, Left, Lock};
use crate::mended::{self, Damage, Real, Salvaged};
use crate::order::Priorities;
use crate::segment::{Cell, NO_SLOT, NODES, Node, PRIORITIES};
use crate::slots::{Ring, arena};
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use crate::waiters::{self, List, State, Waiters};
use crate::wakes::Wakes;
use std::collections::BTreeSet;

/// Both locks, and how their last owners left them.
struct Both<'a> {
    held: Held<'a>,
    receivers: Left,
    sender: &'a Lock,
    senders: Left,
}

impl<'a> Both<'a> {
    fn take(engine: &'a Engine, me: &'a Thread, deadline: Deadline) -> Result<Self, Trouble> {
        let fixed = engine.segment().fixed();
        let held = fixed.receiver.lock.lock(me, deadline);
        let (held, receivers) = held.map_err(|_| Trouble::Busy)?;
        let sender = &fixed.sender.lock;
        let Ok(senders) = sender.borrow(me, deadline) else {
            leave(held, receivers);
            return Err(Trouble::Busy);
        };
        Ok(Both {
            held,
            receivers,
            sender,
            senders,
        })
    }

    /// Nothing was changed: what a dead owner has left is still to be repaired, by whoever takes its lock next.
    fn leave_as_found(self) {
        match self.senders {
            Left::InOrder => self.sender.give_back(),
            // Also a loan: who lent it has left the other lock so.
            Left::ByTheDead => self.sender.give_back_broken(),
        }
        leave(self.held, self.receivers);
    }

    /// As the dead leave them: the queue is half made, and it is to be tried again.
    fn leave_broken(self) {
        self.sender.give_back_broken();
        drop(self.held);
    }

    /// All is in order.
    fn unlock(self) {
        self.sender.give_back();
        self.held.unlock();
    }
}

/// Lets go of a lock as it was found.
fn leave(held: Held<'_>, left: Left) {
    match left {
        Left::InOrder => held.unlock(),
        Left::ByTheDead => drop(held),
    }
}

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
        give_back: impl Fn(usize),
    ) -> Result<Salvaged, Trouble> {
        let fixed = self.segment().fixed();
        let locks = Both::take(self, me, deadline)?;
        let real = real();
        let slots = match self.provide(real) {
            Ok(slots) => slots,
            Err(trouble) => {
                locks.leave_as_found();
                return Err(trouble);
            }
        };
        fixed.header.damage.begin_to_mend();
        // From here on it is us that a death is to be told of.
        fixed.receiver.lock.note_owner(me);
        fixed.sender.lock.note_owner(me);
        crash_point!(SALVAGE_BEGUN);
        give_back(slots);
        let mut wakes = Wakes::default();
        let salvaged = self.make_anew(real, slots).and_then(|salvaged| {
            self.serve(&mut wakes)?;
            Ok(salvaged)
        });
        let salvaged = match salvaged {
            Ok(salvaged) => salvaged,
            Err(trouble) => {
                locks.leave_broken();
                return Err(trouble);
            }
        };
        self.update_board();
        self.mend_doorbell();
        wakes.add_everybody(Waiters::of(self.segment()).usable());
        crash_point!(SALVAGE_DONE);
        fixed.header.damage.end_mending();
        locks.unlock();
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
    fn make_anew(&self, real: Real, slots: usize) -> Result<Salvaged, Trouble> {
        self.cut_to(real, slots);
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

    /// Sees to it that there is memory for all slots that have a cell, before anything is changed. Answers how many slots there are.
    fn provide(&self, real: Real) -> Result<usize, Trouble> {
        let slots = real.slots.clamp(1, self.segment().layout().slots);
        let Err(trouble) = self.provide_for(real, slots) else {
            return Ok(slots);
        };
        // A queue that grows gets cells first, then links and entries: where these were refused, the last cells were never used.
        let fewer = slots.min(real.links).min(floor_power_of_two(real.entries));
        let is_unused = |slot| self.segment().cell(slot).is_ok_and(Cell::is_unused);
        match fewer != 0 && (fewer as u32..slots as u32).all(is_unused) {
            true => self.provide_for(real, fewer).map(|()| fewer),
            false => Err(trouble),
        }
    }

    /// Makes real memory of what so many slots lack. The rest needs no room: it counts already.
    fn provide_for(&self, real: Real, slots: usize) -> Result<(), Trouble> {
        let (segment, layout) = (self.segment(), self.segment().layout());
        let (entries, cell) = (self.entries(slots), layout.cell_len);
        for (region, has, wants) in [
            (layout.ring, real.entries * 4, entries * 4),
            (layout.links, real.links * 4, slots * 4),
            (layout.cells, real.slots * cell, slots * cell),
        ] {
            segment.populate(region + has, wants.saturating_sub(has))?;
        }
        Ok(())
    }

    /// How many entries the ring has for so many slots.
    fn entries(&self, slots: usize) -> usize {
        let most = self.segment().layout().ring_len;
        slots.next_power_of_two().max(1024).min(most)
    }

    /// Makes the lengths of regions what they can be.
    fn cut_to(&self, real: Real, slots: usize) {
        let (fixed, layout) = (self.segment().fixed(), self.segment().layout());
        // Relaxed throughout: both locks are held; who looks without one finds a queue that is being changed.
        fixed.geometry.slots.store(slots as u32, Ordering::Relaxed);
        fixed
            .geometry
            .ring_mask
            .store(self.entries(slots) as u32 - 1, Ordering::Release);
        fixed.receiver.nodes.set(real.nodes.min(NODES) as u32);
        let usable = real.holds.min(layout.slots) as u32;
        fixed.holding.usable.set(usable);
        fixed.holding.used.set(fixed.holding.used.get().min(usable));
        fixed.holding.returned.set(0);
        fixed.holding.look_after.store(0, Ordering::Relaxed);
        fixed.holding.due.store(0, Ordering::Relaxed);
        fixed.sender.fifo_pages.set(real.fifos);
    }
}

/// The greatest power of two that is not above `number`; 0 for 0.
fn floor_power_of_two(number: usize) -> usize {
    number.checked_ilog2().map_or(0, |power| 1 << power)
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
            let state = HoldState::of(hold);
            // COMMIT_MARKED: the message is sent, and the store has it.
            let is_sent = state == HoldState::Reserved && self.is_stored(slot);
            let is_held = state != HoldState::Free && !is_sent && seen.insert(slot);
            let order = (false, self.sequence(slot));
            if hold.state.get() != HoldState::Free as u32
                && !(is_held && self.keep(slot, order, Home::Held))
            {
                holds::set(hold, HoldState::Free);
            }
        }
    }

    fn is_stored(&self, slot: u32) -> bool {
        let cell = self.engine.segment().cell(slot);
        cell.is_ok_and(Cell::is_stored)
    }

    fn sequence(&self, slot: u32) -> u64 {
        let cell = self.engine.segment().cell(slot);
        cell.map_or(0, |cell| cell.sequence.get())
    }

    fn survey_nodes(&mut self) {
        for (_, node) in Waiters::of(self.engine.segment()).all() {
            if !self.goes_on_waiting(node) {
                node.list.set(List::None as u32);
            }
        }
    }

    /// Whether a node stays in its list. What it says of a message is done first.
    fn goes_on_waiting(&mut self, node: &Node) -> bool {
        let slot = node.slot.get();
        match (List::of(node), waiters::state(node)) {
            (List::None, _) => false,
            // It is queued again, at its place, though its thread may be dead; one that lives looks by itself.
            (List::Offered, _) => {
                self.store(slot, self.sequence(slot));
                let _ = waiters::unsettle(node);
                false
            }
            // SERVE_OFFERED: the message is still in the queue, and stays there.
            (List::Receivers, State::Settled) => {
                let _ = waiters::unsettle(node);
                false
            }
            // ADMIT_ACCEPTED: the message is sent, whether or not it was stored. The ring was drained before.
            (List::Senders, State::Settled | State::DiedSettled) if slot != NO_SLOT => {
                self.store(slot, self.greatest().saturating_add(1));
                false
            }
            (_, State::Waiting) if waiters::is_orphan(node) => false,
            (List::Senders, State::Waiting) if slot != NO_SLOT => {
                let is_kept = self.keep(slot, (false, 0), Home::Held);
                if !is_kept {
                    // What it was to send is lost: it need not wait.
                    let _ = waiters::settle(node);
                }
                is_kept
            }
            (_, state) => state == State::Waiting,
        }
    }

    /// Has a message that is nowhere in the store, under a number. It is marked at once: who dies here has forgotten whose it was.
    fn store(&mut self, slot: u32, number: u64) {
        if self.keep(slot, (false, number), Home::Queued)
            && let Ok(cell) = self.engine.segment().cell(slot)
        {
            cell.sequence.set(number);
            cell.set_stored(true);
        }
    }

    /// The greatest number of a message that is kept and was not in the ring.
    fn greatest(&self) -> u64 {
        let kept = self.homes.iter().flatten();
        let numbers = kept.filter(|(is_in_ring, ..)| !is_in_ring);
        numbers.map(|(_, number, _)| *number).max().unwrap_or(0)
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
        // What was in the ring comes behind all others, also for who finds it numbered and the others not.
        let mut last = self.greatest();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::OWNER_DIED;
    use crate::mended::Salvage as _;
    use crate::segment::testing;
    use crate::sys::thread;

    /// A thread that lives as long as anybody.
    const SOMEBODY: u32 = 1;

    /// Salvages a queue whose locks say this, and for which there are no cells.
    fn salvage(receivers: u32, senders: u32) -> (Engine, Result<Salvaged, Trouble>) {
        let engine = Engine::new(testing::segment(4, 64));
        let fixed = engine.segment().fixed();
        fixed.receiver.lock.forge(receivers);
        fixed.sender.lock.forge(senders);
        let salvaged = engine.salvage(thread::current(), Deadline::Passed, Real::default, |_| {
            panic!("nothing is to be changed")
        });
        (engine, salvaged)
    }

    #[test]
    fn who_does_not_get_the_senders_lock_leaves_that_of_dead_receivers_to_be_repaired() {
        for (found, is_dead) in [(OWNER_DIED, true), (0, false)] {
            let (engine, salvaged) = salvage(found, SOMEBODY);
            assert_eq!(salvaged, Err(Trouble::Busy));
            let lock = &engine.segment().fixed().receiver.lock;
            assert_eq!((lock.is_orphaned(), lock.word()), (is_dead, found));
            assert!(!engine.damage().is_noted());
        }
    }
}
