//! Defects in the treatment of messages that are not received at once: dead letters and redrives, delays, fair priorities, the end of a stream and
//! its producers.

use super::list::{By, Defect};
use crate::soak::Face;

/// The soak's words for a message that exists twice.
const TWICE: &[&str] = &[
    "was received 2 times",
    "is in two queues",
    "is twice in a queue",
    "is in a queue",
];

pub const DEFECTS: &[Defect] = &[
    Defect {
        name: "redrive-twice",
        what: "a message that a killed redrive had sent back is still in the dead-letter queue",
        by: By::Soak(Face::Posix),
        file: "umsg/src/posix/redrive.rs",
        old: ".end_redrive(me, &handle, has_arrived)",
        new: ".end_redrive(me, &handle, has_arrived && false)",
        finding: TWICE,
    },
    Defect {
        name: "dead-letter-twice",
        what: "a message that a killed process had moved to the dead-letter queue is moved once more",
        by: By::Soak(Face::Posix),
        file: "umsg/src/posix/dead_letter.rs",
        old: "            if departure.was_left {\n",
        new: "            if departure.was_left && self.number == 0 {\n",
        finding: TWICE,
    },
    Defect {
        name: "dead-letter-lost",
        what: "a repair forgets a message whose mover died before it was in the store",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/posix_engine/recover.rs",
        old: "    if !cell.is_stored() {\n        engine.mark_stored(receiving, cell);\n    }\n    record",
        new: "    record",
        finding: &["messages are lost", "half of the batch"],
    },
    Defect {
        name: "producer-immortal",
        what: "a producer that was killed counts for ever",
        by: By::Soak(Face::Posix),
        file: "umsg-shm/src/producers.rs",
        old: "    pid != 0 && !liveness::is_dead(lives, birth, is_dead)\n",
        new: "    pid != 0 && (pid != 1 || !liveness::is_dead(lives, birth, is_dead))\n",
        finding: &["no producer is left", "32 producer processes"],
    },
    Defect {
        name: "end-before-delayed",
        what: "a receiver gets the end of a stream while a message is delayed",
        by: By::Test(
            "delays",
            "a_delayed_message_comes_before_the_end_of_a_closed_queue",
        ),
        file: "umsg-shm/src/posix_engine/end_of_stream.rs",
        old: "            && fixed.receiver.held() <= others\n",
        new: "            && fixed.receiver.held() <= others + u64::from(fixed.leases.delayed.load(Ordering::Relaxed))\n",
        finding: &["before the delayed message"],
    },
    Defect {
        name: "delay-too-short",
        what: "a delayed message is delivered at the next look",
        by: By::Test(
            "delays",
            "a_message_that_is_returned_for_later_does_not_block_younger_ones",
        ),
        file: "umsg-shm/src/leases/end.rs",
        old: "                    holders.pass();\n                    if is_over {\n",
        new: "                    holders.pass();\n                    if true {\n",
        finding: &["came too early"],
    },
    Defect {
        name: "due-overtaken",
        what: "a message that is sent after the due time of another comes before it",
        by: By::Test(
            "delays",
            "a_due_message_comes_before_those_that_are_sent_after_that_time",
        ),
        file: "umsg-shm/src/posix_engine/send.rs",
        old: "                    self.store_due(me, deadline);\n",
        new: "",
        finding: &["a send"],
    },
    Defect {
        name: "sysv-due-overtaken",
        what: "a message that is sent after the due time of another comes before it",
        by: By::Test(
            "sysv_delivery",
            "a_due_message_comes_before_those_that_are_sent_after_that_time",
        ),
        file: "umsg-shm/src/sysv_engine/send.rs",
        old: "        self.deliver_due(receiving, wakes)?;\n",
        new: "",
        finding: &["a send"],
    },
    Defect {
        name: "delay-shortens-life",
        what: "the time to live of a delayed message begins at its send",
        by: By::Test(
            "delays",
            "the_time_to_live_of_a_delayed_message_begins_when_it_is_due",
        ),
        file: "umsg-shm/src/posix_engine/delay.rs",
        old: "            found.cell.become_due(record.until.get());\n",
        new: "",
        finding: &["Empty"],
    },
    Defect {
        name: "fair-starves",
        what: "the lower priorities do not take turns: only the highest of them is ever delivered",
        by: By::Test("fair_priorities", "lower_priorities_take_turns"),
        file: "umsg-shm/src/posix_engine/fair.rs",
        old: "        let priority = below(highest.min(self.last.into())).unwrap_or(second);\n",
        new: "        let priority = below(highest).unwrap_or(second);\n",
        finding: &["left == right"],
    },
];
