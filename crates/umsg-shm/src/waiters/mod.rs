//! Blocked threads: the node that each leaves, and the lists of them.
//!
//! A node's word is a futex in the kernel's robust form, and the thread names it to the kernel while it sleeps:
//!
//! | word | state | may leave it | if the thread dies |
//! |---|---|---|---|
//! | 0 | free, or given up by its owner | the holder of the lock reuses it | - |
//! | tid | waiting | holder: to offered. Owner: to 0 | the kernel stores OWNER_DIED |
//! | tid \| WAITERS | settled: a message is offered to a receiver, a sender's message is admitted | owner: to 0, or to accepted. Holder: an offer that is not taken up goes back to waiting | the kernel stores OWNER_DIED \| WAITERS |
//! | WAITERS | accepted: the owner has copied its message, or knows that its own is sent, and is gone. Typed queues only | the holder frees a receiver's slot, then reuses the node | - |
//! | OWNER_DIED [\| WAITERS] | its thread is dead | the holder reuses it; an offered message goes back to the head | - |
//!
//! Each change of the word is one compare-and-swap, and the loser obeys. Lists and all other fields belong to the
//! holder of the lock, which need not be the node's owner. The lock is that under which messages are received; where the
//! nodes lie, and the heads of the lists, a [`WaiterStore`] knows.
//!
//! What has been settled may be more than a message: what the holder writes beside the node before it settles, the owner
//! reads once it sees the word. It is the owner's to read as long as the word says so; a process that takes an offer back may find
//! that the owner is still reading. So an owner that copies without the lock believes its copy only once [`accept`] has
//! succeeded, and a node whose offer was taken back is offered nothing before its owner has enlisted again: a copy of
//! one message never passes for another.
//!
//! A list is sorted by rank and by ticket, which grows with each claim. A node that was taken off a list and is
//! inserted again gets its old place among the others.

mod node;
pub mod pacing;
pub mod wait;

pub use node::{Links, NO_SLOT, NODES, Node};

use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::lock::{OWNER_DIED, TID, WAITERS};
use crate::sync::{AtomicU32, Guarded32, Guarded64, Ordering};
use crate::sys::clock::Deadline;
use crate::sys::futex::{self, Slept};
use crate::sys::liveness::{self, Liveness};
use crate::sys::thread::{Calm, Thread};

/// Which list a node is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum List {
    /// In none: free; an accepted sender; a receiver that did not take up an offer and has to look by itself.
    None = 0,
    /// Wants a message.
    Receivers = 1,
    /// Has been offered one.
    Offered = 2,
    /// Wants to send.
    Senders = 3,
}

impl List {
    /// The list that a node says it is in.
    pub fn of(node: &Node) -> List {
        match node.list.get() {
            1 => List::Receivers,
            2 => List::Offered,
            3 => List::Senders,
            _ => List::None,
        }
    }
}

/// What a node's word says.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Free, or given up.
    Free,
    /// Its thread waits.
    Waiting,
    /// A message is offered to it, or its message is admitted.
    Settled,
    /// Its thread has copied the message that was offered: the message is received, and the slot is nobody's. Or it knows
    /// that the message that it left is sent.
    Accepted,
    /// Its thread died while waiting.
    DiedWaiting,
    /// Its thread died after the outcome was settled and before it took note.
    DiedSettled,
}

/// Reads a node's state.
pub fn state(node: &Node) -> State {
    // Acquire: HANDOVER. Pairs with the release in `settle`: the slot and what is in it are seen.
    // ACCEPT. Pairs with the release in `accept`: the owner has read the slot.
    let word = node.word.load(Ordering::Acquire);
    match (word & TID != 0, word & OWNER_DIED != 0, word & WAITERS != 0) {
        (true, _, false) => State::Waiting,
        (true, _, true) => State::Settled,
        (false, true, false) => State::DiedWaiting,
        (false, true, true) => State::DiedSettled,
        (false, false, true) => State::Accepted,
        (false, false, false) => State::Free,
    }
}

/// Offers the message in the node's slot, or admits it. False if the thread has given up or died.
#[must_use]
pub(crate) fn settle(node: &Node) -> bool {
    let word = node.word.load(Ordering::Relaxed);
    // Release: HANDOVER. The thread may be gone after this: its futex address stays mapped, nothing else is touched.
    word & TID != 0
        && word & WAITERS == 0
        && node
            .word
            .compare_exchange(word, word | WAITERS, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// Takes an offer back. False if the thread has given up or died meanwhile.
#[must_use]
pub(crate) fn unsettle(node: &Node) -> bool {
    let word = node.word.load(Ordering::Relaxed);
    word & TID != 0
        && word & WAITERS != 0
        && node
            .word
            .compare_exchange(word, word & !WAITERS, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// The owner takes up its offer, without the lock: the one change that makes a receive of a copied message take effect.
/// False if the offer was taken back, and what was copied is void. A sender that takes note of its admission does the
/// same: its node has to say that the message is sent until it is off its list.
#[must_use]
pub(crate) fn accept(node: &Node) -> bool {
    let word = node.word.load(Ordering::Relaxed);
    // Release: ACCEPT. The slot is used again by the process that sees this.
    word & TID != 0
        && word & WAITERS != 0
        && node
            .word
            .compare_exchange(word, WAITERS, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// The owner lets go of its node, in whatever state it is. Without the lock: the next holder sees to the rest.
pub(crate) fn give_up(node: &Node) {
    // Release: a process that reuses the node comes after everything that its owner did with it. A swap, so that it has a place
    // among the other changes of the word, which all are read-modify-writes.
    node.word.swap(0, Ordering::Release);
}

/// The owner gives up a node that is still waiting, without the lock. False if the outcome was settled first.
#[must_use]
pub(crate) fn give_up_waiting(node: &Node) -> bool {
    let word = node.word.load(Ordering::Relaxed);
    // Release: as in `give_up`.
    word & WAITERS == 0
        && node
            .word
            .compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// How far the time of an offer may lie ahead: processes read the machine's clock one after the other.
const AHEAD: u64 = 1_000_000_000;

/// Whether an offer, or a look, has been over for so long at a time. All are readings of the machine's clock in nanoseconds; one that lies
/// far ahead was written by a peer that scribbles.
pub(crate) fn is_over(since: u64, time: u64, now: u64) -> bool {
    match now.checked_sub(since) {
        Some(passed) => passed >= time,
        None => since - now > AHEAD,
    }
}

/// Where the nodes of a queue lie, and the lists of them.
pub trait WaiterStore: Liveness + Sized {
    /// Whether processes of several PID or time namespaces use the queue: the form of the lock.
    fn is_shared(&self) -> bool;

    fn node(&self, index: u32) -> Result<&Node, Fault>;

    /// None for [`List::None`].
    fn links(&self, list: List) -> Option<&Links>;

    /// The ticket that was given last.
    fn ticket(&self) -> &Guarded64;

    /// Nodes that are real memory.
    fn nodes_in_use(&self) -> &Guarded32;

    /// Makes `more` nodes behind the `usable` first ones real memory.
    fn provide_nodes(&self, usable: u32, more: usize) -> Result<(), Fault>;
}

/// The lists of a segment's nodes. Everything here is called under the lock.
pub struct Waiters<'a, S> {
    segment: &'a S,
}

/// Longest list that a walk follows: a longer one was scribbled into a circle.
const BOUND: usize = NODES;

/// How long a thread that can't sleep on its word waits until it looks again, in nanoseconds.
const NAP: u64 = 1_000_000;

impl<'a, S: WaiterStore> Waiters<'a, S> {
    #[inline(always)]
    pub fn of(segment: &'a S) -> Self {
        Waiters { segment }
    }

    /// How many nodes a list has.
    #[inline(always)]
    pub fn len(&self, list: List) -> u32 {
        // Relaxed: under the lock exact, otherwise a hint.
        self.links(list)
            .map_or(0, |links| links.len.load(Ordering::Relaxed))
    }

    /// How many threads wait in a list: the dead, whom the system has marked, are in it until a process comes to their nodes.
    pub fn living(&self, list: List) -> usize {
        let waits = |node: &Node| {
            List::of(node) == list && matches!(state(node), State::Waiting | State::Settled)
        };
        match self.len(list) {
            // The threads of a model need no figures.
            len if len == 0 || cfg!(loom) => len as usize,
            _ => self.all().filter(|(_, node)| waits(node)).count(),
        }
    }

    #[inline]
    fn links(&self, list: List) -> Option<&'a Links> {
        self.segment.links(list)
    }

    /// The first node of a list.
    pub(crate) fn first(&self, list: List) -> Result<Option<(u32, &'a Node)>, Fault> {
        self.at(self.links(list).map_or(0, |links| links.head.get()))
    }

    /// The node behind another in its list.
    pub(crate) fn next(&self, node: &Node) -> Result<Option<(u32, &'a Node)>, Fault> {
        self.at(node.next.get())
    }

    fn at(&self, link: u32) -> Result<Option<(u32, &'a Node)>, Fault> {
        let Some(index) = link.checked_sub(1) else {
            return Ok(None);
        };
        Ok(Some((index, self.segment.node(index)?)))
    }

    /// Puts a node into a list, behind those of the same or a better rank that came before it.
    pub(crate) fn insert(
        &self,
        receiving: ReceiverHeld<'_>,
        list: List,
        index: u32,
    ) -> Result<(), Fault> {
        let Some(links) = self.links(list) else {
            return Ok(());
        };
        let node = self.segment.node(index)?;
        // A waiter that has been offered a message is not served by rank any more.
        let after = match list {
            List::Offered => links.tail.get(),
            _ => self.place(links, node)?,
        };
        self.link(receiving, links, node, index, after)?;
        node.list.set(list as u32);
        links.len.store(
            links.len.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
        Ok(())
    }

    /// The last node of a list that comes before `node`, as index + 1; 0 if none does.
    fn place(&self, links: &Links, node: &Node) -> Result<u32, Fault> {
        let (mut after, mut steps) = (links.tail.get(), 0);
        while let Some((_, before)) = self.at(after)? {
            steps += 1;
            if steps > BOUND {
                return Err(Fault::Damaged);
            }
            if key(before) <= key(node) {
                break;
            }
            after = before.previous.get();
        }
        Ok(after)
    }

    /// Links a node behind the one that `after` names, or at the head.
    fn link(
        &self,
        _: ReceiverHeld<'_>,
        links: &Links,
        node: &Node,
        index: u32,
        after: u32,
    ) -> Result<(), Fault> {
        let next = match self.at(after)? {
            Some((_, before)) => before.next.get(),
            None => links.head.get(),
        };
        node.previous.set(after);
        node.next.set(next);
        match self.at(after)? {
            Some((_, before)) => before.next.set(index + 1),
            None => links.head.set(index + 1),
        }
        match self.at(next)? {
            Some((_, behind)) => behind.previous.set(index + 1),
            None => links.tail.set(index + 1),
        }
        Ok(())
    }

    /// Takes a node off the list that it is in, if it is in one.
    pub(crate) fn remove(&self, receiving: ReceiverHeld<'_>, node: &Node) -> Result<(), Fault> {
        self.unlink(receiving, node)?;
        node.list.set(List::None as u32);
        Ok(())
    }

    /// Takes all receivers of a node's thread off their list, whose offer has expired. A thread that jumps out of a handler (siglongjmp)
    /// leaves the node of the call that it was in: however many there are, they hold up one message for one slice. A node whose thread
    /// still waits is listed again at the end of its slice.
    pub(crate) fn pass_over(
        &self,
        receiving: ReceiverHeld<'_>,
        expired: &Node,
    ) -> Result<(), Fault> {
        let owner = |node: &Node| (node.pid.get(), node.tid.get(), node.birth.get());
        let whose = owner(expired);
        let mut next = self.first(List::Receivers)?;
        for _ in 0..BOUND {
            let Some((_, node)) = next else {
                return Ok(());
            };
            next = self.next(node)?;
            if owner(node) == whose {
                self.remove(receiving, node)?;
            }
        }
        Err(Fault::Damaged)
    }

    /// Moves a node to another list. What the node says of its list changes with one store: a repair goes by that.
    pub(crate) fn relocate(
        &self,
        receiving: ReceiverHeld<'_>,
        node: &Node,
        index: u32,
        list: List,
    ) -> Result<(), Fault> {
        self.unlink(receiving, node)?;
        self.insert(receiving, list, index)
    }

    fn unlink(&self, _: ReceiverHeld<'_>, node: &Node) -> Result<(), Fault> {
        let Some(links) = self.links(List::of(node)) else {
            return Ok(());
        };
        let (previous, next) = (node.previous.get(), node.next.get());
        match self.at(previous)? {
            Some((_, before)) => before.next.set(next),
            None => links.head.set(next),
        }
        match self.at(next)? {
            Some((_, behind)) => behind.previous.set(previous),
            None => links.tail.set(previous),
        }
        links.len.store(
            links.len.load(Ordering::Relaxed).saturating_sub(1),
            Ordering::Relaxed,
        );
        Ok(())
    }

    /// A node for the calling thread, in no list and waiting. None if all are taken. Nodes of the same rank are served in
    /// order of arrival; [`UNRANKED`] stands for that of the thread.
    pub(crate) fn claim(
        &self,
        _: ReceiverHeld<'_>,
        thread: &Thread,
        slot: u32,
        rank: u32,
    ) -> Result<Option<(u32, &'a Node)>, Fault> {
        let Some(index) = self.find_free(thread.tid())? else {
            return Ok(None);
        };
        let node = self.segment.node(index)?;
        let ticket = self.segment.ticket();
        ticket.set(ticket.get().wrapping_add(1));
        node.list.set(List::None as u32);
        node.slot.set(slot);
        node.rank.set(rank);
        node.tid.set(thread.tid());
        node.pid.set(thread.pid());
        // In shared form the thread's start time means nothing to others: its process's life stands for it.
        let birth = match self.segment.is_shared() {
            true => liveness::birth(self.segment, || thread.birth()),
            false => thread.birth(),
        };
        node.birth.set(birth);
        node.ticket.set(ticket.get());
        #[cfg(not(loom))]
        node.since.set(crate::sys::clock::milliseconds());
        // Release: a process that finds the node by a scan after our death sees it whole.
        node.word.store(thread.tid(), Ordering::Release);
        Ok(Some((index, node)))
    }

    /// Whether no process needs the node: in no list, and free or its thread marked dead. (A dead thread's node whose slot
    /// still counts is in a list.)
    fn is_free(node: &Node) -> bool {
        List::of(node) == List::None && !matches!(state(node), State::Waiting | State::Settled)
    }

    /// Finds a node, first among those in use, then by bringing a page more into use, at last among those whose
    /// threads are proved dead. The search begins where `whose` number points to, so that a thread mostly gets the node that it
    /// had before: its lines are still near.
    fn find_free(&self, whose: u32) -> Result<Option<u32>, Fault> {
        let usable = self.usable();
        for step in 0..usable {
            let index = (whose.wrapping_add(step)) % usable;
            if Self::is_free(self.segment.node(index)?) {
                return Ok(Some(index));
            }
        }
        // Without memory for more it goes on with those that there are: to wait is no reason for an error.
        if (usable as usize) < NODES && self.grow(usable).is_ok() {
            return Ok(Some(usable));
        }
        self.find_orphan(usable)
    }

    fn grow(&self, usable: u32) -> Result<(), Fault> {
        let page = (4096 / size_of::<Node>()).min(NODES - usable as usize);
        self.segment.provide_nodes(usable, page)?;
        self.segment.nodes_in_use().set(usable + page as u32);
        Ok(())
    }

    /// Nodes that are real memory: those of every process that waits are among them.
    pub(crate) fn usable(&self) -> u32 {
        self.segment.nodes_in_use().get().min(NODES as u32)
    }

    fn find_orphan(&self, usable: u32) -> Result<Option<u32>, Fault> {
        for index in 0..usable {
            let node = self.segment.node(index)?;
            if List::of(node) == List::None && is_orphan(self.segment, node) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Rebuilds the lists from the nodes: after the death of a holder of the lock.
    pub(crate) fn rebuild(&self, receiving: ReceiverHeld<'_>) -> Result<(), Fault> {
        for list in [List::Receivers, List::Offered, List::Senders] {
            if let Some(links) = self.links(list) {
                links.head.set(0);
                links.tail.set(0);
                links.len.store(0, Ordering::Relaxed);
            }
        }
        for index in 0..self.usable() {
            let node = self.segment.node(index)?;
            let list = List::of(node);
            if list != List::None {
                self.insert(receiving, list, index)?;
            }
        }
        Ok(())
    }

    /// Every node that has ever been used.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &'a Node)> + use<'a, S> {
        let (segment, usable) = (self.segment, self.usable());
        (0..usable).filter_map(move |index| Some((index, segment.node(index).ok()?)))
    }
}

/// The rank of a thread that is neither a real-time nor a nice one.
const ORDINARY: u32 = 120;

/// The rank of a node whose thread was not asked for its own yet: alone in a list it needs none.
pub(crate) const UNRANKED: u32 = u32::MAX;

/// What a list is sorted by. Asks the kernel for the thread's rank, once for each wait in company.
fn key(node: &Node) -> (u32, u64) {
    if node.rank.get() == UNRANKED {
        // A thread of another PID namespace is ranked as an ordinary one.
        let rank = match liveness::life_of(node.birth.get()) {
            None => crate::sys::thread::rank(node.tid.get()),
            Some(_) => ORDINARY,
        };
        node.rank.set(rank);
    }
    (node.rank.get(), node.ticket.get())
}

/// Whether no thread waits at a node that may be in a list. The node of a thread that is dead though the system did not mark it is given up
/// if `knows_threads`, one that names no thread in any case.
#[cfg(not(loom))]
pub(crate) fn is_deserted(lives: &dyn Liveness, node: &Node, knows_threads: bool) -> bool {
    match state(node) {
        State::Free | State::DiedWaiting => true,
        State::Waiting => {
            // A thread names itself twice; a peer that scribbles, mostly not.
            let is_forged = node.word.load(Ordering::Relaxed) & TID != node.tid.get();
            (is_forged || knows_threads && is_orphan(lives, node)) && give_up_waiting(node)
        }
        // A batch whose turn it was. What else was settled is a process's, and in another list.
        State::DiedSettled => List::of(node) == List::Senders && node.slot.get() == NO_SLOT,
        State::Settled | State::Accepted => false,
    }
}

/// Whether the node's thread is proved dead though the kernel did not mark the word.
pub(crate) fn is_orphan(lives: &dyn Liveness, node: &Node) -> bool {
    let (pid, tid, birth) = (node.pid.get(), node.tid.get(), node.birth.get());
    liveness::is_dead(lives, birth, |birth| {
        crate::sys::thread::is_dead(pid, tid, birth)
    })
}

/// Sleeps while the node of the calling thread waits, until woken or until `slice`. No process can sleep on a word that a peer has
/// forged to name another thread: then it looks again in a moment, and not at once.
pub(crate) fn sleep(node: &Node, me: &Thread, calm: Calm<'_>, slice: Deadline) -> Slept {
    let slept = futex::wait_in_calm(&node.word, me.tid(), calm, slice);
    let is_forged = || {
        let word = node.word.load(Ordering::Relaxed);
        word & TID != me.tid() && word & TID != 0
    };
    // In a model nobody forges.
    if cfg!(loom) || slept != Slept::Awake || !is_forged() {
        return slept;
    }
    let moment = AtomicU32::new(0);
    match futex::wait_in_calm(&moment, 0, calm, slice.or_slice(NAP)) {
        Slept::TimedOut if !slice.has_passed() => Slept::Awake,
        slept => slept,
    }
}

/// The futex that a node's thread sleeps on.
pub(crate) fn futex(node: &Node) -> &AtomicU32 {
    &node.word
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::posix_engine::segment::{Segment, testing};
    use proptest::prelude::*;

    fn claimed(receiving: ReceiverHeld<'_>, segment: &Segment, rank: u32) -> u32 {
        let waiters = Waiters::of(segment);
        let (index, _) = waiters
            .claim(receiving, crate::sys::thread::current(), 0, rank)
            .unwrap()
            .unwrap();
        waiters.insert(receiving, List::Receivers, index).unwrap();
        index
    }

    /// The list from its head, checked to be the same from its tail.
    fn listed(segment: &Segment) -> Vec<u32> {
        let waiters = Waiters::of(segment);
        let links = waiters.links(List::Receivers).unwrap();
        let (mut found, mut last) = (Vec::new(), 0);
        let mut next = waiters.first(List::Receivers).unwrap();
        while let Some((index, node)) = next {
            assert_eq!(node.previous.get(), last);
            last = index + 1;
            found.push(index);
            next = waiters.next(node).unwrap();
        }
        assert_eq!(
            (links.tail.get(), links.len.load(Ordering::Relaxed)),
            (last, found.len() as u32)
        );
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]

        #[test]
        fn who_comes_back_has_its_old_place(
            ranks in prop::collection::vec(0..3_u32, 1..20),
            leaving in prop::collection::vec(any::<prop::sample::Index>(), 1..20),
        ) {
            let segment = testing::segment(1, 8);
            let waiters = Waiters::of(&segment);
            let nodes: Vec<_> = ranks.iter().map(|&rank| claimed(ReceiverHeld::in_test(), &segment, rank)).collect();
            let mut sorted: Vec<_> = ranks.iter().zip(nodes.iter().copied()).enumerate().collect();
            sorted.sort_by_key(|&(arrival, (&rank, _))| (rank, arrival));
            let sorted: Vec<_> = sorted.into_iter().map(|(_, (_, node))| node).collect();
            prop_assert_eq!(&listed(&segment), &sorted);
            let leaving: std::collections::BTreeSet<_> =
                leaving.iter().map(|index| nodes[index.index(nodes.len())]).collect();
            for &index in &leaving {
                waiters.remove(ReceiverHeld::in_test(), segment.node(index).unwrap()).unwrap();
            }
            let staying: Vec<_> =
                sorted.iter().copied().filter(|index| !leaving.contains(index)).collect();
            prop_assert_eq!(&listed(&segment), &staying);
            for &index in leaving.iter().rev() {
                waiters.insert(ReceiverHeld::in_test(), List::Receivers, index).unwrap();
            }
            prop_assert_eq!(&listed(&segment), &sorted);
        }
    }
}
