//! The defects, each of which is one edit of the library's source. The list in this file has the defects that a soak has to notice.

use std::fmt;

use crate::soak::Face;

/// The soak or test that has to fail because of a defect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum By {
    /// The soak of one API: POSIX, System V or rings.
    Soak(Face),
    /// A test of the library: its test program, and its name.
    Test(&'static str, &'static str),
    /// The name of a test of the engines.
    Unit(&'static str),
    /// The name of a test of the engines that runs under the model checker.
    Model(&'static str),
}

impl fmt::Display for By {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Soak(face) => write!(to, "soak, {}", face.module()),
            By::Test(program, test) => write!(to, "{program}::{test}"),
            By::Unit(test) => write!(to, "{test}"),
            By::Model(test) => write!(to, "model, {test}"),
        }
    }
}

/// A mistake that the task plants.
pub struct Defect {
    pub name: &'static str,
    /// The effect of the defect.
    pub what: &'static str,
    /// The soak or test that has to notice the defect.
    pub by: By,
    /// The path of the source file, below `crates`.
    pub file: &'static str,
    /// The text that the defect replaces. The text occurs once in the file.
    pub old: &'static str,
    pub new: &'static str,
    /// The words of the failure that the defect causes; one of them must occur. Another failure proves nothing.
    pub finding: &'static [&'static str],
}

pub const DEFECTS: &[Defect] = &[
    Defect {
        name: "posix-loses",
        what: "a repair forgets one of the messages in the store",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/posix_engine/recover.rs",
        old: "Ok(cell.is_stored().then(|| cell.sequence()))",
        new: "Ok((cell.is_stored() && slot != 5).then(|| cell.sequence()))",
        finding: &["messages are lost", "half of the batch"],
    },
    Defect {
        name: "posix-twice",
        what: "a message whose hand-over was cut short is delivered, and is still in the queue",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/posix_engine/recover.rs",
        old: "    leave_queue(receiving, engine, node.slot.get())?;\n",
        new: "",
        finding: &[
            "was received 2 times",
            "memory is corrupted",
            "the places of the slots",
        ],
    },
    Defect {
        name: "posix-slot-leak",
        what: "a repair does not free the slot that a dead receiver had taken",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/posix_engine/recover.rs",
        old: "            engine.free_slot(receiving, slot);\n",
        new: "",
        finding: &["slots that are in no place", "no slot is lost"],
    },
    Defect {
        name: "posix-count",
        what: "a repair counts a stored message too many",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/posix_engine/recover.rs",
        old: "receiver.set_stored(receiving, messages, bytes);",
        new: "receiver.set_stored(receiving, messages + u64::from(messages > 2), bytes);",
        finding: &["memory is corrupted", "the places of the slots"],
    },
    Defect {
        name: "posix-batch-half",
        what: "the messages of a batch whose sender died are not taken back",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/posix_engine/recover.rs",
        old: "Some(end) => batch::take_back(sending, segment, sent, end)?,",
        new: "Some(_) => {}",
        finding: &[
            "half of the batch",
            "memory is corrupted",
            "the places of the slots",
        ],
    },
    Defect {
        name: "posix-sender-unwoken",
        what: "a blocked sender whose message is admitted is not woken",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/posix_engine/serve.rs",
        old: "            waiters.remove(receiving, node)?;\n            wakes.add(index);\n",
        new: "            waiters.remove(receiving, node)?;\n            let _ = index;\n",
        finding: &["a blocked sender is not woken"],
    },
    Defect {
        name: "posix-lease-kept",
        what: "a lease of a dead process never comes back",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/leases/end.rs",
        old: "State::Leased => is_over || holders.is_orphan(self.segment, record),",
        new: "State::Leased => is_over,",
        finding: &["dead processes wait or hold messages"],
    },
    Defect {
        name: "posix-room-kept",
        what: "room that a dead process had reserved never comes back",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/leases/end.rs",
        old: "State::Reserved => holders.is_orphan(self.segment, record),",
        new: "State::Reserved => false,",
        finding: &["dead processes wait or hold messages"],
    },
    Defect {
        name: "posix-bell-silent",
        what: "a poller is not told of messages",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/doorbell/deferred.rs",
        old: "(self.ticket, is_rung)",
        new: "(self.ticket, true)",
        finding: &["is stuck", "poller", "not told"],
    },
    Defect {
        name: "posix-notice-lost",
        what: "a registered process is not notified when a message comes to the empty queue",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/posix_engine/notification.rs",
        old: "(true, true) => self.fire(receiving, wakes),",
        new: "(true, true) => {}",
        finding: &["to be told"],
    },
    Defect {
        name: "posix-descriptor-leak",
        what: "a process that checks whether any process polls leaves a descriptor open",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/doorbell/descriptor/rung.rs",
        old: "        flock(&bell, FlockOperation::NonBlockingLockExclusive).ok()?;\n",
        new: "        if flock(&bell, FlockOperation::NonBlockingLockExclusive).is_err() {\n            std::mem::forget(bell);\n            return None;\n        }\n",
        finding: &["descriptors are left", "descriptors, more than"],
    },
    Defect {
        name: "sysv-hand-over-lost",
        what: "a message that was handed to a receiver that died does not go back",
        by: By::Soak(Face::Sysv),
        file: "umsg-shm/src/sysv_engine/offer.rs",
        old: "wakes.add_reports();\n                    self.put_back(receiving, waiter, wakes)?;",
        new: "wakes.add_reports();\n                    self.clear_away(receiving, node)?;",
        finding: &["messages are lost", "half of the batch"],
    },
    Defect {
        name: "sysv-twice",
        what: "a message that its receiver has accepted is in the queue again after a repair",
        by: By::Soak(Face::Sysv),
        file: "umsg-shm/src/sysv_engine/repair.rs",
        old: "                segment.cell(node.slot.get())?.end();\n",
        new: "",
        finding: &[
            "was received before",
            "was received 2 times",
            "the places of the slots",
        ],
    },
    Defect {
        name: "sysv-admission-lost",
        what: "a blocked sender is told that its message is sent, but the message is lost if the process that admitted it dies",
        by: By::Soak(Face::Sysv),
        file: "umsg-shm/src/sysv_engine/repair.rs",
        old: "        engine.commit(receiving, slot)?;\n",
        new: "",
        finding: &["messages are lost", "half of the batch"],
    },
    Defect {
        name: "sysv-slot-leak",
        what: "a repair does not free each slot that no process holds",
        by: By::Soak(Face::Sysv),
        file: "umsg-shm/src/sysv_engine/repair.rs",
        old: "        if !survey.has(slot) {\n            segment.cell",
        new: "        if !survey.has(slot) && slot % 4 != 1 {\n            segment.cell",
        finding: &[
            "slots that are in no place",
            "the places of the slots",
            "no slot is lost",
        ],
    },
    Defect {
        name: "sysv-bytes",
        what: "a repair counts a byte too many",
        by: By::Soak(Face::Sysv),
        file: "umsg-shm/src/sysv_engine/repair.rs",
        old: "control.recount(receiving, counts, held);",
        new: "let counts = Sum { bytes: counts.bytes + 1, ..counts };\n    control.recount(receiving, counts, held);",
        finding: &["counts of an empty queue"],
    },
    Defect {
        name: "sysv-unwoken",
        what: "a waiter whose wait has ended is not woken",
        by: By::Soak(Face::Sysv),
        file: "umsg-shm/src/sysv_engine/wait.rs",
        old: "            wakes.add(to.index);\n",
        new: "            let _ = &wakes;\n",
        finding: &["is not woken"],
    },
    Defect {
        name: "sysv-lease-kept",
        what: "a lease of a dead process never comes back",
        by: By::Soak(Face::Sysv),
        file: "umsg-shm/src/leases/end.rs",
        old: "State::Leased => is_over || holders.is_orphan(self.segment, record),",
        new: "State::Leased => is_over,",
        finding: &["dead processes wait or hold messages"],
    },
    Defect {
        name: "sysv-bell-silent",
        what: "a poller is not told of messages",
        by: By::Soak(Face::Sysv),
        file: "umsg-shm/src/doorbell/ringing.rs",
        old: "            fifo.change(from, to, loudly);\n",
        new: "            if to < from {\n                fifo.change(from, to, loudly);\n            }\n",
        finding: &["is stuck", "poller", "not told"],
    },
    Defect {
        name: "ring-batch-half",
        what: "the reservation of a batch whose sender died is not skipped",
        by: By::Soak(Face::Ring),
        file: "umsg-shm/src/posix_engine/recover.rs",
        old: "Some(end) => batch::take_back(sending, segment, sent, end)?,",
        new: "Some(_) => {}",
        finding: &["a message is missing, or comes twice"],
    },
    Defect {
        name: "ring-cursor",
        what: "the cursor is not moved past a message whose sender died",
        by: By::Test(
            "ring_crash_points",
            "a_sender_that_is_killed_at_any_point_leaves_a_whole_message_or_none_and_stops_no_process",
        ),
        file: "umsg-shm/src/posix_engine/recover.rs",
        old: "None if is_sent => sender.move_cursor(sending, sent.wrapping_add(1)),",
        new: "None if is_sent => {}",
        finding: &["a message is missing, or comes twice"],
    },
    Defect {
        name: "ring-unwoken",
        what: "the receiver is not woken",
        by: By::Soak(Face::Ring),
        file: "umsg-shm/src/posix_engine/wake_word.rs",
        old: "            futex::wake(wait_flags.futex(), 1);\n",
        new: "",
        finding: &["the receiver is not woken"],
    },
    Defect {
        name: "ring-untold",
        what: "the receiver's descriptor is not made readable",
        by: By::Soak(Face::Ring),
        file: "umsg-shm/src/posix_engine/wake_word.rs",
        old: "if !self.notify() {",
        new: "if self.notifier.is_none() {",
        finding: &["a poller", "not told"],
    },
    Defect {
        name: "ring-orphaned",
        what: "senders wait for room for ever when the owner is dead",
        by: By::Soak(Face::Ring),
        file: "umsg-shm/src/posix_engine/owner.rs",
        old: "_ => self.has_lost_its_owner(),",
        new: "_ => false,",
        finding: &["is stuck"],
    },
    Defect {
        name: "ring-descriptor-leak",
        what: "a descriptor that came with a message stays open",
        by: By::Soak(Face::Ring),
        file: "umsg/src/ring/doorbell.rs",
        old: "self.waiting.remove(index).map(|(_, descriptor)| descriptor)",
        new: "self.waiting.remove(index).map(|(_, descriptor)| {\n            std::mem::forget(descriptor.try_clone());\n            descriptor\n        })",
        finding: &["descriptors that were passed on"],
    },
];
