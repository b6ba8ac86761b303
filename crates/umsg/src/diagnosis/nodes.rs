//! Blocked threads, and whether the lists of waiters are consistent, for both kinds of queues.

use super::findings::Findings;
use super::process::{Life, Process};
use super::slots::{SlotPlace, Survey};
use std::time::Duration;
use umsg_shm::sys::clock;
use umsg_shm::sys::liveness::{self, Liveness};
use umsg_shm::waiters::{List, State, WaiterStore, state};
use umsg_shm::waiters::{NO_SLOT, NODES, Node};

/// A thread that waits in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocked {
    /// The process of the thread.
    pub who: Process,
    /// The event for which the thread waits.
    pub wait: Wait,
    /// The time that the thread has waited, accurate to some milliseconds. An offer that the thread did not accept does not end this time.
    pub time: Duration,
    /// True if the thread got its message or room, and has not run since.
    pub served: bool,
}

/// The event for which a thread waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// A message. In a System V queue, the message must match in type and length.
    Message {
        /// The wanted types; in a POSIX queue any message.
        want: umsg_shm::sysv_engine::order::Want,
        /// The maximum length of the message, in bytes. None where any message fits.
        longest: Option<u64>,
    },
    /// Room for the thread's message.
    Room {
        /// The number of messages that the thread sends: more than 1 for a batch.
        messages: u32,
        /// The number of bytes in the thread's messages. None if the queue does not record that number.
        bytes: Option<u64>,
    },
}

/// The lists, in the order in which they are served.
const LISTS: [List; 3] = [List::Receivers, List::Offered, List::Senders];

/// Checks that the number of nodes in the segment is possible, and that each list consists of exactly the nodes that name that list. Notes the slots
/// of the nodes.
pub(super) fn check(segment: &impl WaiterStore, survey: &mut Survey, findings: &mut Findings) {
    check_lists(segment, findings);
    for (_, node) in all(segment) {
        let has_slot = match List::of(node) {
            List::Senders => node.slot.get() != NO_SLOT,
            List::Offered => true,
            List::Receivers | List::None => false,
        };
        if has_slot {
            survey.note(findings, &node.slot, node.slot.get(), SlotPlace::Waiter);
        }
    }
}

/// Checks that no message of a blocked sender is longer than the longest possible message. `len_of` returns the offset and the value of the length
/// in a slot's cell.
pub(super) fn check_messages<'a, S: WaiterStore, W: 'a>(
    segment: &'a S,
    len_of: impl Fn(u32) -> Option<(&'a W, u32)>,
    longest: u32,
    findings: &mut Findings,
) {
    let senders = all(segment).filter(|(_, node)| List::of(node) == List::Senders);
    for (word, len) in senders.filter_map(|(_, node)| len_of(node.slot.get())) {
        if len > longest {
            findings.add(
                "a blocked sender's message is no longer than the queue allows",
                word,
                format_args!("at most {longest}"),
                len,
            );
        }
    }
}

fn check_lists(segment: &impl WaiterStore, findings: &mut Findings) {
    let usable = usable(segment, findings);
    let mut listed = vec![false; usable as usize];
    for list in LISTS {
        check_list(segment, list, &mut listed, findings);
    }
    for (index, listed) in (0..usable).zip(listed) {
        let Ok(node) = segment.node(index) else {
            continue;
        };
        if node.list.get() > List::Senders as u32 {
            findings.add(
                "a node is in one of three lists or in none",
                &node.list,
                "0 to 3",
                node.list.get(),
            );
        } else if List::of(node) != List::None && !listed {
            findings.add(
                "a node that names a list is in that list",
                &node.list,
                0,
                node.list.get(),
            );
        }
    }
}

fn usable(segment: &impl WaiterStore, findings: &mut Findings) -> u32 {
    let nodes = segment.nodes_in_use();
    if nodes.get() as usize > NODES {
        findings.add(
            "the number of nodes is at most the maximum",
            nodes,
            format_args!("at most {NODES}"),
            nodes.get(),
        );
    }
    nodes.get().min(NODES as u32)
}

fn check_list(
    segment: &impl WaiterStore,
    list: List,
    listed: &mut [bool],
    findings: &mut Findings,
) {
    let Some(links) = segment.links(list) else {
        return;
    };
    let (mut link, mut word, mut before, mut count) = (links.head.get(), &links.head, 0, 0);
    while let Some(index) = link.checked_sub(1) {
        let Some((node, seen)) = segment.node(index).ok().zip(listed.get_mut(index as usize))
        else {
            return findings.add(
                "a list leads to nodes in use",
                word,
                "0, or a node's number plus one",
                link,
            );
        };
        if std::mem::replace(seen, true) {
            return findings.add(
                "a list leads to each node once",
                word,
                "another node",
                format_args!("node {index}"),
            );
        }
        findings.holds(
            "a node is in the list that leads to it",
            &node.list,
            list as u32,
        );
        findings.holds(
            "a node names its predecessor in the list",
            &node.previous,
            before,
        );
        (before, word, link) = (link, &node.next, node.next.get());
        count += 1;
    }
    findings.holds("a list's tail is its last node", &links.tail, before);
    findings.holds("a list's length is right", &links.len, count);
}

/// Returns the waiters in the order of service. `wait` returns the event for which the thread of a node waits. If `knows_threads` is true, a thread
/// that does not exist is reported as dead.
pub(super) fn blocked<S: WaiterStore>(
    segment: &S,
    knows_threads: bool,
    wait: impl Fn(u32, &Node) -> Wait,
) -> Vec<Blocked> {
    let mut nodes: Vec<_> = all(segment)
        .filter(|(_, node)| List::of(node) != List::None || matches!(state(node), State::Waiting))
        .filter(|(_, node)| !matches!(state(node), State::Free | State::Accepted))
        .collect();
    nodes.sort_by_key(|(_, node)| (List::of(node) as u32, node.rank.get(), node.ticket.get()));
    nodes
        .into_iter()
        .map(|(index, node)| Blocked {
            who: who(segment, node, knows_threads),
            wait: wait(index, node),
            time: waited(node),
            served: matches!(state(node), State::Settled | State::DiedSettled),
        })
        .collect()
}

fn who(lives: &dyn Liveness, node: &Node, knows_threads: bool) -> Process {
    let (pid, tid) = (node.pid.get(), node.tid.get());
    let mut who = Process::of_thread(lives, pid, tid, node.birth.get());
    match state(node) {
        // The kernel has marked the node at the death of its thread.
        State::DiedWaiting | State::DiedSettled => who.life = Life::Dead,
        _ if who.life == Life::Dead
            && !knows_threads
            && liveness::life_of(node.birth.get()).is_none() =>
        {
            who.life = Life::Alive
        }
        _ => {}
    }
    who
}

/// Returns all nodes that were ever used.
pub(super) fn all<S: WaiterStore>(segment: &S) -> impl Iterator<Item = (u32, &Node)> {
    let usable = segment.nodes_in_use().get().min(NODES as u32);
    (0..usable).filter_map(|index| Some((index, segment.node(index).ok()?)))
}

fn waited(node: &Node) -> Duration {
    let time = clock::milliseconds().wrapping_sub(node.since.get());
    Duration::from_millis(time.into())
}
