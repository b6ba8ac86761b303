//! The most important ratios, as bars.

use maud::{Markup, html};

use crate::document::Document;
use crate::row::Row;
use crate::table::number;

/// A row whose ratio is shown at the top of the page.
pub struct Headline {
    pub suite: &'static str,
    pub row: &'static str,
    pub label: &'static str,
}

const fn of(suite: &'static str, row: &'static str, label: &'static str) -> Headline {
    Headline { suite, row, label }
}

/// One row for each kind of work, measured with the programs' default settings; and the rows in which the kernel is ahead by most.
pub const HEADLINES: [Headline; 22] = [
    of(
        "mqueue",
        "empty, both",
        "Send and receive, one thread, empty queue",
    ),
    of(
        "mqueue",
        "full, constant, both",
        "Receive and send, one thread, full queue, one priority",
    ),
    of(
        "mqueue",
        "full, random, both",
        "Receive and send, one thread, full queue, random priorities",
    ),
    of(
        "mqueue",
        "fill again, random",
        "Filling a queue whose memory is already allocated, random priorities, per message",
    ),
    of(
        "mqueue",
        "fill, random",
        "Filling a new queue, random priorities, per message",
    ),
    of(
        "stream",
        "64 B, depth 10, adaptive",
        "Stream of 64-byte messages, two processes, queue depth 10",
    ),
    of(
        "batch",
        "64 a call, adaptive",
        "Stream of 64-byte messages, 64 messages a call",
    ),
    of(
        "pingpong",
        "64 B, two cores, adaptive",
        "Round trip of 64 bytes on two cores",
    ),
    of(
        "pingpong",
        "64 B, one core, blocking",
        "Round trip of 64 bytes on one core, both processes sleep while they wait",
    ),
    of(
        "poll",
        "send + receive, backlog, polled by level",
        "Send and receive in a queue that holds messages and that a process polls",
    ),
    of(
        "poll",
        "send + receive, empty, polled by level",
        "Send and receive in an empty queue that a process polls",
    ),
    of(
        "msg",
        "one thread, send + receive",
        "System V: send and receive, one thread",
    ),
    of(
        "msg",
        "a type behind 15000 messages of another",
        "System V: receive one type behind 15,000 messages of another type",
    ),
    of(
        "msg",
        "2 threads on one queue, split",
        "System V: two threads with a core each, one queue",
    ),
    of(
        "msg",
        "8 threads on one queue, same core",
        "System V: eight threads on one core, one queue",
    ),
    of(
        "msg",
        "160 threads on 80 queues, adaptive",
        "System V: 160 threads on 80 queues",
    ),
    of(
        "ring",
        "processes, 10 us, adaptive: receiver",
        "Ring: one message every 10 µs, latency at the receiver (kernel: io_uring MSG_RING)",
    ),
    of(
        "everyday",
        "mq_open of an existing queue + close",
        "Open an existing queue, and close it",
    ),
    of(
        "everyday",
        "mq_open, create + close + unlink, first of a process",
        "Create the first queue of a process, close it, and remove it",
    ),
    of(
        "everyday",
        "fork + child sends + wait",
        "Fork a child that sends a message, and wait for its end",
    ),
    of(
        "everyday",
        "fork + exec of /bin/true",
        "Start a program that uses no queue, and wait for its end (umsg: libumsg_preload.so is loaded)",
    ),
    of(
        "everyday",
        "mq_send + mq_receive, static or raw",
        "Send and receive in a static program, or by system calls without libc",
    ),
];

pub fn section(document: &Document) -> Markup {
    let found = HEADLINES.iter().filter_map(|headline| {
        let row = document.row(headline.suite, headline.row)?;
        Some((headline.label, row, row.ratio?))
    });
    let found: Vec<(&str, &Row, f64)> = found.collect();
    if found.is_empty() {
        return html! {};
    }
    let highest = found
        .iter()
        .fold(10.0, |highest, found| f64::max(highest, found.2));
    html! {
        section #headline {
            h2 { "How many times better than the kernel" }
            p.about {
                "The ratio of the two medians in the same run; above 1, umsg is faster. Bars grow with the logarithm: "
                "half of the length is the square root of the ratio."
            }
            ul.ratios {
                @for (label, row, ratio) in found { (item(label, row, ratio, highest)) }
            }
        }
    }
}

fn item(label: &str, row: &Row, ratio: f64, highest: f64) -> Markup {
    let width = 100.0 * (ratio.ln().abs() / highest.ln()).clamp(0.004, 1.0);
    html! {
        li .worse[ratio < 1.0] .doubtful[!row.resolved] {
            span.name {
                (label)
                span.figures {
                    (number(row.umsg)) " " (row.unit) " beside " (number(row.kernel)) " " (row.unit)
                }
            }
            span.bar { i style=(format!("width:{width:.1}%")) {} }
            span.ratio { @if !row.resolved { "≈ " } (number(Some(ratio))) " ×" }
        }
    }
}
