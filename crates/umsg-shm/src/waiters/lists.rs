//! The lists of nodes: threads that wait for messages, threads with an offered message, and threads that wait for room.
//!
//! A list is sorted by rank, then by ticket. A ticket is a number that grows each time a thread claims a node. Therefore a node that is removed and
//! inserted again gets its old place.

use super::{Links, NODES, Node, State, is_orphan, state};
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{Guarded32, Guarded64, Ordering};
use crate::sys::liveness::{self, Liveness};
use crate::sys::thread::Thread;

/// The list that a node is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum List {
    /// No list: the node is free, or it belongs to an admitted sender. Or it belongs to a receiver that did not accept an offer and has to try again.
    None = 0,
    /// The list of receivers that wait for a message.
    Receivers = 1,
    /// The list of receivers with an offered message.
    Offered = 2,
    /// The list of senders that wait for room.
    Senders = 3,
}

impl List {
    /// Returns the list that the node names.
    pub fn of(node: &Node) -> List {
        match node.list.get() {
            1 => List::Receivers,
            2 => List::Offered,
            3 => List::Senders,
            _ => List::None,
        }
    }
}

/// Access to the nodes of a queue and their lists.
pub trait WaiterStore: Liveness + Sized {
    /// Returns whether processes of several PID or time namespaces use the queue, which decides the form of the lock.
    fn is_shared(&self) -> bool;

    fn node(&self, index: u32) -> Result<&Node, Fault>;

    /// Returns the ends of a list. None for [`List::None`].
    fn links(&self, list: List) -> Option<&Links>;

    /// Returns the last ticket that was issued.
    fn ticket(&self) -> &Guarded64;

    /// Returns the number of nodes that have memory.
    fn nodes_in_use(&self) -> &Guarded32;

    /// Allocates the memory of `more` nodes after the first `usable` nodes.
    fn provide_nodes(&self, usable: u32, more: usize) -> Result<(), Fault>;
}

/// The lists of a segment's nodes.
pub struct Waiters<'a, S> {
    segment: &'a S,
}

/// The bound of a walk along a list: a longer list was corrupted into a cycle.
const BOUND: usize = NODES;

impl<'a, S: WaiterStore> Waiters<'a, S> {
    #[inline(always)]
    pub fn of(segment: &'a S) -> Self {
        Waiters { segment }
    }

    /// Returns the number of nodes in a list.
    #[inline(always)]
    pub fn len(&self, list: List) -> u32 {
        // Relaxed: the value is exact under the lock, otherwise a hint.
        self.links(list)
            .map_or(0, |links| links.len.load(Ordering::Relaxed))
    }

    /// Returns the number of living threads in a list. The node of a dead thread stays in its list until a process removes the node.
    pub fn living(&self, list: List) -> usize {
        let waits = |node: &Node| {
            List::of(node) == list && matches!(state(node), State::Waiting | State::Settled)
        };
        match self.len(list) {
            // A model needs no exact count.
            len if len == 0 || cfg!(loom) => len as usize,
            _ => self.all().filter(|(_, node)| waits(node)).count(),
        }
    }

    #[inline]
    fn links(&self, list: List) -> Option<&'a Links> {
        self.segment.links(list)
    }

    /// Returns the first node of a list.
    pub(crate) fn first(&self, list: List) -> Result<Option<(u32, &'a Node)>, Fault> {
        self.at(self.links(list).map_or(0, |links| links.head.get()))
    }

    /// Returns the next node in the list.
    pub(crate) fn next(&self, node: &Node) -> Result<Option<(u32, &'a Node)>, Fault> {
        self.at(node.next.get())
    }

    fn at(&self, link: u32) -> Result<Option<(u32, &'a Node)>, Fault> {
        let Some(index) = link.checked_sub(1) else {
            return Ok(None);
        };
        Ok(Some((index, self.segment.node(index)?)))
    }

    /// Inserts a node into a list, after the earlier nodes of the same or a better rank.
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
        // In the list of offered messages, rank no longer matters: a node goes to the end.
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

    /// Returns the last node of a list that comes before `node` in the order, as index + 1; 0 for none.
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

    /// Links a node into a list after the node `after` (index + 1), or at the head for 0.
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

    /// Removes a node from its list, if the node is in a list.
    pub(crate) fn remove(&self, receiving: ReceiverHeld<'_>, node: &Node) -> Result<(), Fault> {
        self.unlink(receiving, node)?;
        node.list.set(List::None as u32);
        Ok(())
    }

    /// Removes all nodes of one thread from the list of receivers, after an offer to this thread has expired. A thread that leaves a call with
    /// siglongjmp(3) abandons its node in the list. All abandoned nodes of a thread together delay a message by one slice only. A thread that still
    /// waits enlists its node again at the end of its slice.
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

    /// Moves a node to another list. A single store changes the list that the node names, and a repair relies on that.
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

    /// Claims a node for the calling thread. The node is in the state `Waiting` and in no list. Returns None if all nodes are in use. Nodes of the
    /// same rank are served in order of arrival. The rank [`UNRANKED`] means the thread's own rank.
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
        // A lock in shared form: processes of other namespaces can't use the thread's start time, so the liveness id of the thread's process replaces
        // it.
        let birth = match self.segment.is_shared() {
            true => liveness::birth(self.segment, || thread.birth()),
            false => thread.birth(),
        };
        node.birth.set(birth);
        node.ticket.set(ticket.get());
        #[cfg(not(loom))]
        node.since.set(crate::sys::clock::milliseconds());
        // Release: a process that finds the node after the death of this thread sees all fields of the node.
        node.word.store(thread.tid(), Ordering::Release);
        Ok(Some((index, node)))
    }

    /// Returns whether the node can be reused: it is in no list, and its thread neither waits nor has an outcome to read. The node of a dead thread
    /// that still names a slot is in a list.
    fn is_free(node: &Node) -> bool {
        List::of(node) == List::None && !matches!(state(node), State::Waiting | State::Settled)
    }

    /// Finds a node: first among the free nodes that have memory, then on a new page, and last among the nodes whose threads are proved dead. The
    /// search begins at a place derived from `whose`, so that a thread usually gets its previous node, whose cache lines are still near.
    fn find_free(&self, whose: u32) -> Result<Option<u32>, Fault> {
        let usable = self.usable();
        for step in 0..usable {
            let index = (whose.wrapping_add(step)) % usable;
            if Self::is_free(self.segment.node(index)?) {
                return Ok(Some(index));
            }
        }
        // Without memory for another page, the search continues with the existing nodes: a lack of memory must not end a wait.
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

    /// Returns the number of nodes that have memory. The nodes of all waiting threads are among them.
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

    /// Rebuilds the lists after the death of the lock's owner. Each node names the list to which it belongs.
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

    /// Iterates over all nodes that were ever used.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &'a Node)> + use<'a, S> {
        let (segment, usable) = (self.segment, self.usable());
        (0..usable).filter_map(move |index| Some((index, segment.node(index).ok()?)))
    }
}

/// The rank of a thread with the default scheduling policy and nice value.
const ORDINARY: u32 = 120;

/// The rank of a node until the kernel is asked for the rank of its thread. A node that is alone in its list needs no rank.
pub(crate) const UNRANKED: u32 = u32::MAX;

/// Returns the sort key of a node. Asks the kernel for the thread's rank once in each wait, and only if other threads wait, too.
fn key(node: &Node) -> (u32, u64) {
    if node.rank.get() == UNRANKED {
        // A thread of another PID namespace gets the default rank.
        let rank = match liveness::life_of(node.birth.get()) {
            None => crate::sys::thread::rank(node.tid.get()),
            Some(_) => ORDINARY,
        };
        node.rank.set(rank);
    }
    (node.rank.get(), node.ticket.get())
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

    /// Returns the nodes of the list from its head, and checks that the reverse list has the same nodes.
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
        fn a_waiter_that_comes_back_has_its_old_place(
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
