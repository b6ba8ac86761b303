//! Messages of a megabyte between two processes: copied in and out, or written and read in place.
//!
//! Every way does the same work: the sender writes each byte of a message, and the receiver reads each byte. The suite also measures the least cost
//! of this work, as "bare". In "bare", two processes without a queue write and read buffers in shared memory, and notify each other by a flag. When
//! messages are written and read in place, a queue should add no visible cost. The kernel's queues take no message of a megabyte, so the kernel's
//! side sends the message in parts of the largest permitted size.

use std::hint;

use ::umsg::posix::Waiting;

use crate::backends::kernel::KernelQueue;
use crate::backends::umsg::UmsgQueue;
use crate::backends::{Errno, MessageQueue, Spec};
use crate::clock;
use crate::duo::{self, Barrier, Places};
use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Row};
use crate::shared::SharedWords;

const SUITE: &str = "copy";

/// The length of a message, in bytes.
const SIZE: usize = 1 << 20;
/// The length of a message, in words.
const WORDS: usize = SIZE / size_of::<u64>();

/// The number of messages, or buffers, between the two processes.
const DEPTH: usize = 4;

/// The bytes of a part in the kernel's queues: the limit for unprivileged processes.
const PART: usize = 8192;

/// The largest ratio of the in-place time to the time with bare buffers. The limit is above 1, because the times of two equal runs can differ by this
/// ratio.
const GOAL: f64 = 1.05;

/// The number of messages before the measurement.
const WARM_UP: u64 = 2 * DEPTH as u64;

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let places = plan.apart(SUITE)?;
    // Few messages suffice, because one message takes some hundred microseconds.
    let messages = if plan.quick { 200 } else { 600 };
    let (mut place, mut copied) = (Side::new(), Side::new());
    let (mut bare, mut kernel) = (Side::new(), Side::new());
    for round in 0..plan.rounds {
        plan.progress("copy: 1 MB", round);
        bare.round(|| time(places, messages, &Bare::new()?));
        place.round(|| time(places, messages, &InPlace::new()?));
        copied.round(|| time(places, messages, &Copied::new()?));
        kernel.round(|| time(places, messages, &Parts::new()?));
    }
    for side in [&bare, &place, &copied] {
        if let Some(failure) = &side.failure {
            return Err(Failure::new(format!("1 MB: {failure}")));
        }
    }
    let kernel_times = kernel.each(|&time| time);
    let bare_times = bare.each(|&time| time);
    let row = |name: &str, side: &Side<f64>| {
        let times = side.each(|&time| time);
        Row::compare(SUITE, name, "us", Better::Less, &times, &kernel_times)
            .column("bare", bare_times.median())
            .spreads(&times, &kernel_times)
            .reason("kernel", kernel.failure.as_ref())
    };
    let in_place = row("1 MB, in place", &place);
    let verdict = bare_times
        .median()
        .and_then(|bare| in_place.judge_umsg(bare * GOAL));
    Ok(vec![
        in_place
            .goal_if(format!("<= {GOAL} x bare"), verdict)
            .note("umsg and bare spin; the kernel's two sleep")
            .note("bare: the same bytes written and read in shared memory, with no queue")
            .note(format!("the kernel's messages are parts of {PART} bytes")),
        row("1 MB, copied", &copied),
    ])
}

/// A way to get a megabyte from one process to the other.
trait Way {
    /// Writes the message with this number, and sends it.
    fn send(&self, number: u64) -> Result<(), Failure>;

    /// Receives the message with this number, and reads it.
    fn receive(&self, number: u64) -> Result<(), Failure>;
}

/// Returns the time that one message takes, in microseconds.
fn time(places: Places, messages: u64, way: &impl Way) -> Result<f64, Failure> {
    let result = SharedWords::new(1)?;
    duo::run(
        places,
        |barrier: &Barrier| {
            barrier.meet();
            (0..WARM_UP + messages).try_for_each(|number| way.send(number))
        },
        |barrier: &Barrier| {
            barrier.meet();
            (0..WARM_UP).try_for_each(|number| way.receive(number))?;
            let begin = clock::now();
            (WARM_UP..WARM_UP + messages).try_for_each(|number| way.receive(number))?;
            result.set(0, clock::now() - begin);
            Ok(())
        },
    )?;
    Ok(result.get(0) as f64 / messages as f64 / 1000.0)
}

/// Writes every byte of a message.
fn write(message: &mut [u8], number: u64) {
    for (word, at) in message.chunks_exact_mut(8).zip(0_u64..) {
        word.copy_from_slice(&(number ^ at).to_ne_bytes());
    }
}

/// Reads every byte of a message.
fn read(message: &[u8], number: u64) -> Result<(), Failure> {
    let mut wrong = 0;
    for (word, at) in message.chunks_exact(8).zip(0_u64..) {
        let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
        wrong |= word ^ number ^ at;
    }
    match wrong {
        0 => Ok(()),
        _ => Err(Failure::new(format!("message {number} arrived incomplete"))),
    }
}

/// Buffers in shared memory, and a flag for each.
struct Bare {
    buffers: SharedWords,
    flags: SharedWords,
}

impl Bare {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            buffers: SharedWords::new(DEPTH * WORDS)?,
            // A cache line for each flag.
            flags: SharedWords::new(DEPTH * 16)?,
        })
    }

    fn wait_for(&self, buffer: usize, turn: u64) {
        while self.flags.get(buffer * 16) != turn {
            hint::spin_loop();
        }
    }
}

impl Way for Bare {
    fn send(&self, number: u64) -> Result<(), Failure> {
        let (buffer, turn) = (number as usize % DEPTH, number / DEPTH as u64 * 2);
        self.wait_for(buffer, turn);
        // SAFETY: the flag gives the buffer to the sender, until this function sets the flag.
        let message = unsafe { self.buffers.bytes_mut(buffer * WORDS, WORDS) };
        write(message, number);
        self.flags.set(buffer * 16, turn + 1);
        Ok(())
    }

    fn receive(&self, number: u64) -> Result<(), Failure> {
        let (buffer, turn) = (number as usize % DEPTH, number / DEPTH as u64 * 2);
        self.wait_for(buffer, turn + 1);
        // SAFETY: the flag gives the buffer to the receiver, until this function sets the flag.
        let message = unsafe { self.buffers.bytes_mut(buffer * WORDS, WORDS) };
        read(message, number)?;
        self.flags.set(buffer * 16, turn + 2);
        Ok(())
    }
}

/// A queue of umsg. Messages are written and read in place.
struct InPlace(UmsgQueue);

impl InPlace {
    fn new() -> Result<Self, Failure> {
        Ok(Self(queue()?))
    }
}

/// Creates a queue whose waits spin, as the waits for the bare buffers do.
fn queue() -> Result<UmsgQueue, Failure> {
    let queue = UmsgQueue::make(&Spec {
        depth: DEPTH as u32,
        message_size: SIZE as u32,
    })?;
    queue.queue().set_waiting(Waiting::Spinning);
    Ok(queue)
}

fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{what}: {error}"))
}

impl Way for InPlace {
    fn send(&self, number: u64) -> Result<(), Failure> {
        let queue = self.0.queue();
        let mut message = queue.reserve(SIZE).map_err(|e| failed("reserve", e))?;
        // SAFETY: both processes follow the protocol: no other process touches the reserved memory.
        write(unsafe { message.bytes_mut() }, number);
        message.commit(0).map_err(|e| failed("commit", e))
    }

    fn receive(&self, number: u64) -> Result<(), Failure> {
        let queue = self.0.queue();
        let message = queue.receive_lease().map_err(|e| failed("lease", e))?;
        // SAFETY: as in `send`; no process writes a message that is leased without a limit.
        read(unsafe { message.bytes() }, number)?;
        message.acknowledge().map_err(|e| failed("acknowledge", e))
    }
}

/// A queue of umsg. Messages are copied in and out.
struct Copied(UmsgQueue, std::cell::RefCell<Vec<u8>>);

impl Copied {
    fn new() -> Result<Self, Failure> {
        Ok(Self(queue()?, vec![0; SIZE].into()))
    }
}

impl Way for Copied {
    fn send(&self, number: u64) -> Result<(), Failure> {
        write(&mut self.1.borrow_mut(), number);
        let sent = self.0.send(&self.1.borrow(), 0);
        sent.map_err(|errno| Failure::queue("a send of 1 MB failed", errno))
    }

    fn receive(&self, number: u64) -> Result<(), Failure> {
        let received = self.0.receive(&mut self.1.borrow_mut());
        received.map_err(|errno| Failure::queue("a receive of 1 MB failed", errno))?;
        read(&self.1.borrow(), number)
    }
}

/// A queue of the kernel. A message is sent in parts.
struct Parts(KernelQueue, std::cell::RefCell<Vec<u8>>);

impl Parts {
    fn new() -> Result<Self, Failure> {
        let spec = Spec {
            depth: 10,
            message_size: PART as u32,
        };
        Ok(Self(KernelQueue::make(&spec)?, vec![0; SIZE].into()))
    }

    fn each(&self, mut work: impl FnMut(&mut [u8]) -> Result<(), Errno>) -> Result<(), Failure> {
        let mut buffer = self.1.borrow_mut();
        let mut parts = buffer.chunks_exact_mut(PART);
        parts
            .try_for_each(&mut work)
            .map_err(|errno| Failure::queue("a part of 1 MB failed", errno))
    }
}

impl Way for Parts {
    fn send(&self, number: u64) -> Result<(), Failure> {
        write(&mut self.1.borrow_mut(), number);
        self.each(|part| self.0.send(part, 0))
    }

    fn receive(&self, number: u64) -> Result<(), Failure> {
        self.each(|part| self.0.receive(part).map(drop))?;
        read(&self.1.borrow(), number)
    }
}
