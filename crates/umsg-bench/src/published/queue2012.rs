//! The published table of 2012: the kernel's POSIX queue changes from a sorted array to a tree.

use super::{Entry, Table};
use crate::document::Document;

/// The number of messages that filled the queue in the published test.
const DEPTH: f64 = 65_528.0;

/// Two figures for the array, and two figures for the tree. Of two figures, the first is for sending or filling, the second for receiving or
/// draining.
type Pair = [[f64; 2]; 2];

/// The published figures, in the order of the test. Each entry has the order of priorities, then the nanoseconds of a send and of a receive, and then
/// the seconds to fill and to drain. The figures of the array come before those of the tree.
const ORDERS: [(&str, Pair, Pair); 4] = [
    (
        "constant",
        [[526_589.0, 823.0], [362.0, 314.0]],
        [[17.37, 0.12], [0.13, 0.12]],
    ),
    (
        "increasing",
        [[403_105.0, 916.0], [495.0, 445.0]],
        [[4.14, 0.14], [0.21, 0.18]],
    ),
    (
        "decreasing",
        [[73_420.0, 594.0], [482.0, 409.0]],
        [[12.93, 0.13], [0.21, 0.18]],
    ),
    (
        "random",
        [[280_147.0, 920.0], [546.0, 436.0]],
        [[8.88, 0.16], [0.22, 0.17]],
    ),
];
const EMPTY: Pair = [[305.0, 288.0], [349.0, 318.0]];

/// The percentage by which a kernel compile on the other cores took longer, beside the array and beside the tree.
const NEIGHBOUR: [f64; 2] = [8.0, 0.5];

const ENDS: [&str; 2] = ["send", "receive"];

pub fn table(document: &Document) -> Table {
    let mut table = Table {
        id: "queue-2012",
        title: "POSIX queue: 65,528 messages of 16 bytes",
        origin: "Published in 2012 with the change of the kernel's queue from a sorted array to a tree \
                 (mq_perf_tests). The published times of filling and draining, in seconds, are divided by the number of \
                 messages. That test has one queue for all orders: it is new for the first, constant priority, so that its \
                 memory comes into use, and was full before, of the orders above, for the others. What these take in a new queue is beside them. \
                 The kernel's column is taken at the deepest queue that it allows the caller.",
        goal: "Each row at least 10 times the kernel's speed; an empty queue at most 45 ns for both; a neighbour at most 0.5 % slower.",
        more: [
            "umsg at the kernel's depth",
            "umsg at the kernel's rate",
            "array of 2012, here",
        ]
        .map(Into::into)
        .into(),
        published: vec!["array", "tree"],
        lines: Vec::new(),
        notes: Vec::new(),
    };
    let keys = ["umsg_at_kernel_depth", "umsg_at_kernel_rate", "array2012"];
    for (end, name) in ENDS.into_iter().enumerate() {
        let name = format!("empty, {name}");
        let published = vec![Some(EMPTY[0][end]), Some(EMPTY[1][end])];
        table.push(document, &keys, entry(&name, &name, published));
    }
    table.push(
        document,
        &keys,
        entry("empty, both", "empty, both", both(EMPTY)),
    );
    for (order, times, _) in ORDERS {
        for (end, name) in ENDS.into_iter().enumerate() {
            let name = format!("full, {order}, {name}");
            let published = vec![Some(times[0][end]), Some(times[1][end])];
            table.push(document, &keys, entry(&name, &name, published));
        }
    }
    for (index, (order, _, seconds)) in ORDERS.into_iter().enumerate() {
        for (step, name) in ["fill", "drain"].into_iter().enumerate() {
            let each = |change: usize| Some(seconds[change][step] * 1e9 / DEPTH);
            let mut push = |row: String, state, published| {
                let label = format!("{name}, {order}, {state}, a message");
                table.push(document, &keys, entry(&row, &label, published));
            };
            let (new, again) = (format!("{name}, {order}"), format!("{name} again, {order}"));
            let (published, none) = (vec![each(0), each(1)], vec![None; 2]);
            let is_first = index == 0;
            if is_first {
                push(new, "new queue", published);
            } else {
                push(again, "full before", published);
                push(new, "new queue", none);
            }
        }
    }
    for (row, label, published) in [
        (
            "more CPU time for a compile, queue full",
            "slowdown of a compile beside it",
            NEIGHBOUR.map(Some),
        ),
        (
            "more CPU time for a pointer chase, queue full",
            "slowdown of a pointer chase beside it",
            [None; 2],
        ),
    ] {
        let neighbour = Entry {
            suite: "neighbour",
            row,
            label,
            published: published.into(),
        };
        table.push(document, &keys, neighbour);
    }
    table
}

fn entry<'a>(row: &'a str, label: &'a str, published: Vec<Option<f64>>) -> Entry<'a> {
    Entry {
        suite: "mqueue",
        row,
        label,
        published,
    }
}

fn both(times: Pair) -> Vec<Option<f64>> {
    times
        .iter()
        .map(|[send, receive]| Some(send + receive))
        .collect()
}
