//! Defects that one model of the engines has to notice: their effect needs another process at one certain moment.

use super::list::{By, Defect};

pub const DEFECTS: &[Defect] = &[
    Defect {
        name: "trace-counted-early",
        what: "an event of a message is counted before the lease takes effect, and a death in between is not taken back",
        by: By::Model("the_event_of_a_step_that_death_cut_short_is_replaced"),
        file: "umsg-shm/src/posix_engine/trace.rs",
        old: "            true => record.take_back(&event),\n",
        new: "            true => {}\n",
        finding: &["assertion `left == right` failed"],
    },
    Defect {
        name: "trace-uncounted-shown",
        what: "a reader shows a lease whose process died before the lease took effect",
        by: By::Model("the_event_of_a_step_that_death_cut_short_is_replaced"),
        file: "umsg-shm/src/posix_engine/trace.rs",
        old: "        Some(trace.as_delivered(deliveries))\n",
        new: "        let _ = deliveries;\n        Some(trace)\n",
        finding: &["assertion `left == right` failed"],
    },
    Defect {
        name: "trace-of-another-message",
        what: "the history of a slot's earlier message is shown for the next message",
        by: By::Model("the_next_message_of_a_slot_has_a_history_of_its_own"),
        file: "umsg-shm/src/posix_engine/trace.rs",
        old: "            false => record.clear(),\n",
        new: "            false => {}\n",
        finding: &["assertion `left == right` failed"],
    },
];
