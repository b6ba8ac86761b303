//! One process sends batches, and another process receives batches, as fast as they can. The kernel's queues have no batch calls: each call sends or
//! receives one message.
//!
//! As in [`super::stream`], each message carries its sequence number, here both at its start and at its end, and the receiver checks the numbers.
//! After a warm-up, the receiver measures the rate, and both processes measure their CPU time. A receive asks for as many messages as one send
//! carries, and takes the messages that are in the queue.

use std::hint;

use umsg::posix::{ReceiveError, Received, SendError};

use super::duet::{LAST, LINE_NOTE, Letter, Mode};
use super::stream::{self, Case, Flow, WORDS, Word, judge_best};
use crate::backends::kernel::KernelQueue;
use crate::backends::umsg::UmsgQueue;
use crate::backends::{MessageQueue as _, Spec};
use crate::clock;
use crate::duo::{self, Barrier, Places};
use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Row};
use crate::shared::SharedWords;

const SUITE: &str = "batch";

/// The length of a message, in bytes.
const SIZE: usize = 64;

/// The numbers of messages in a batch.
const BATCHES: [usize; 3] = [1, 16, 64];

/// The depth of the queues, in messages.
const DEPTH: u32 = 1024;

/// The goal for the largest batches, in million messages a second, with the best way of waiting.
const GOAL: f64 = 25.0;

/// The number of messages before the measurement. It is a multiple of every batch size.
const WARM_UP: u64 = 6_400;
/// The number of messages between two readings of the clock. It is a multiple of every batch size.
const LOOK: u64 = 640;

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let places = plan.apart(SUITE)?;
    let mut rows = Vec::new();
    for batch in BATCHES {
        for mode in [Mode::Polling, Mode::Adaptive, Mode::Blocking] {
            if plan.only.has(&name(mode, batch)) {
                rows.push(measure(plan, mode, batch, places)?);
            }
        }
    }
    if plan.only.is_all() {
        let largest = format!("{} a call", BATCHES[BATCHES.len() - 1]);
        judge_best(&mut rows, &largest, GOAL);
    }
    Ok(rows)
}

/// Returns the rows of the suite "guard": the largest batches.
pub fn guard(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let Ok(places) = plan.apart(SUITE) else {
        return Ok(Vec::new());
    };
    let largest = BATCHES[BATCHES.len() - 1];
    Ok(vec![measure(plan, Mode::Adaptive, largest, places)?])
}

fn name(mode: Mode, batch: usize) -> String {
    format!("{batch} a call, {}", mode.name())
}

fn measure(plan: &Plan, mode: Mode, batch: usize, places: Places) -> Result<Row, Failure> {
    let name = name(mode, batch);
    let kernel_depth = plan.allowance.deepest(DEPTH, SIZE as u32);
    let (mut umsg, mut line) = (Side::new(), Side::new());
    let mut kernel = Side::absent(kernel_depth.as_ref().err().cloned());
    for round in 0..plan.rounds {
        plan.progress(&format!("batch: {name}"), round);
        line.round(|| duo::line_transfer(places));
        umsg.round(|| flow(plan, mode, batch, places));
        if let Ok(depth) = kernel_depth {
            let case = Case {
                mode,
                depth,
                size: SIZE,
            };
            kernel.round(|| stream::flow::<KernelQueue>(plan, case, places));
        }
    }
    if let Some(failure) = umsg.failure {
        return Err(Failure::new(format!("{name}: {failure}")));
    }
    let rates = (umsg.each(|flow| flow.rate), kernel.each(|flow| flow.rate));
    let mut row = Row::compare(SUITE, name, "M/s", Better::More, &rates.0, &rates.1)
        .column("umsg_cpu_ns", umsg.each(|flow| flow.cpu).median())
        .column("kernel_cpu_ns", kernel.each(|flow| flow.cpu).median())
        .column("line", line.each(|&time| time).median())
        .spreads(&rates.0, &rates.1)
        .reason("kernel", kernel.failure.as_ref())
        .note("cpu: of both processes, a message; the kernel sends and receives single messages")
        .note(LINE_NOTE);
    if kernel_depth.as_ref().is_ok_and(|&kernel| kernel < DEPTH) {
        row = row.note(plan.allowance.describe(kernel_depth?));
    }
    if mode == Mode::Adaptive {
        row = row.note("the kernel has no such mode: it blocks");
    }
    Ok(row)
}

fn flow(plan: &Plan, mode: Mode, batch: usize, places: Places) -> Result<Flow, Failure> {
    let queue = UmsgQueue::make(&Spec {
        depth: DEPTH,
        message_size: SIZE as u32,
    })?;
    let words = SharedWords::new(WORDS)?;
    let budget = plan.duo_budget.as_nanos() as u64;
    duo::run(
        places,
        |barrier| {
            mode.prepare(&queue);
            sender(&queue, mode, batch, barrier, budget, &words)
        },
        |barrier| {
            mode.prepare(&queue);
            receiver(&queue, mode, batch, barrier, &words)
        },
    )?;
    Ok(Flow::of(&words))
}

fn sender(
    queue: &UmsgQueue,
    mode: Mode,
    batch: usize,
    barrier: &Barrier,
    budget: u64,
    words: &SharedWords,
) -> Result<(), Failure> {
    let mut letters: Vec<Letter> = (0..batch).map(|_| Letter::new(SIZE)).collect();
    barrier.meet();
    let mut number = 0;
    let mut send = |number: &mut u64, stamp: u64| {
        let mut messages: [(&[u8], u32); 64] = [(&[], 0); 64];
        for (place, letter) in messages.iter_mut().zip(&mut letters) {
            *place = (letter.write(*number, stamp), 0);
            *number += 1;
        }
        send_all(queue, mode, &messages[..batch])
    };
    while number < WARM_UP {
        send(&mut number, 0)?;
    }
    let cpu = clock::cpu();
    let end = clock::now() + budget;
    while !number.is_multiple_of(LOOK) || clock::now() < end {
        send(&mut number, 0)?;
    }
    send(&mut number, LAST)?;
    words.set(Word::SenderCpu as usize, clock::cpu() - cpu);
    Ok(())
}

#[inline]
fn send_all(queue: &UmsgQueue, mode: Mode, messages: &[(&[u8], u32)]) -> Result<(), Failure> {
    let sent = match mode {
        Mode::Polling | Mode::Pausing => loop {
            match queue.queue().try_send_batch(messages) {
                Err(SendError::Full) => hint::spin_loop(),
                other => break other,
            }
        },
        Mode::Adaptive | Mode::Blocking => queue.queue().send_batch(messages),
    };
    sent.map_err(|error| Failure::new(format!("a batch was not sent: {error}")))
}

fn receiver(
    queue: &UmsgQueue,
    mode: Mode,
    batch: usize,
    barrier: &Barrier,
    words: &SharedWords,
) -> Result<(), Failure> {
    let mut buffer = vec![0; batch * SIZE];
    let mut received = vec![Received::default(); batch];
    let mut letter = Letter::new(SIZE);
    barrier.meet();
    let mut number = 0;
    // The number of received messages, the time, and the CPU time when the warm-up is over.
    let mut start = None;
    loop {
        if number >= WARM_UP && start.is_none() {
            start = Some((number, clock::now(), clock::cpu()));
        }
        let count = receive_all(queue, mode, &mut buffer, &mut received)?;
        let mut last = false;
        for bytes in buffer.chunks_exact(SIZE).take(count) {
            letter.buffer().copy_from_slice(bytes);
            last |= letter.read(number)? == LAST;
            number += 1;
        }
        if last {
            break;
        }
    }
    let end = clock::now();
    let Some((first, start, cpu)) = start else {
        return Err(Failure::new("the round ended before its warm-up"));
    };
    words.set(Word::Messages as usize, number - first);
    words.set(Word::Nanoseconds as usize, end - start);
    words.set(Word::ReceiverCpu as usize, clock::cpu() - cpu);
    Ok(())
}

#[inline]
fn receive_all(
    queue: &UmsgQueue,
    mode: Mode,
    buffer: &mut [u8],
    received: &mut [Received],
) -> Result<usize, Failure> {
    let count = match mode {
        Mode::Polling | Mode::Pausing => loop {
            match queue.queue().try_receive_batch(buffer, received) {
                Err(ReceiveError::Empty) => hint::spin_loop(),
                other => break other,
            }
        },
        Mode::Adaptive | Mode::Blocking => queue.queue().receive_batch(buffer, received),
    };
    count.map_err(|error| Failure::new(format!("no batch was received: {error}")))
}
