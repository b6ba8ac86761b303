//! One thread waits for an io_uring and for a ring of umsg together: the ring's descriptor is polled by the io_uring.
//!
//! If io_uring is not permitted, as in most containers, the program says so and ends.

use io_uring::{IoUring, opcode, types};
use std::os::fd::AsRawFd;
use umsg::ring::{Options, Post, ReceiveError};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const MESSAGES: u64 = 20;
/// `user_data` of the io_uring's completions.
const POLLED: u64 = 1;
const TIMER: u64 = 2;

fn main() -> Result<()> {
    let mut uring = match IoUring::new(8) {
        Ok(uring) => uring,
        Err(error) => {
            println!("io_uring can't be used here: {error}");
            return Ok(());
        }
    };
    let mut ring = Options::new().entries(64).create()?;
    let sender = ring.sender();
    let poster = std::thread::spawn(move || {
        for n in 0..MESSAGES {
            std::thread::sleep(std::time::Duration::from_millis(2));
            sender.send(&Post::new(n)).expect("the ring is open");
        }
    });
    let timeout = types::Timespec::new().nsec(5_000_000);
    watch(&mut uring, &mut ring)?;
    tick(&mut uring, &timeout)?;
    let (mut messages, mut ticks) = (0, 0);
    while messages < MESSAGES {
        uring.submit_and_wait(1)?;
        let done: Vec<u64> = uring.completion().map(|done| done.user_data()).collect();
        for done in done {
            match done {
                POLLED => {
                    messages += receive(&mut ring)?;
                    watch(&mut uring, &mut ring)?;
                }
                _ => {
                    ticks += 1;
                    tick(&mut uring, &timeout)?;
                }
            }
        }
    }
    poster.join().expect("no panic");
    println!("{messages} messages by the ring, {ticks} ticks of the io_uring's timer");
    assert_eq!(messages, MESSAGES);
    Ok(())
}

/// Receives until the ring is empty: then its descriptor is no longer readable.
fn receive(ring: &mut umsg::ring::Ring) -> Result<u64> {
    let mut count = 0;
    loop {
        match ring.try_receive() {
            Ok(_) => count += 1,
            Err(ReceiveError::Empty) => return Ok(count),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes the io_uring report once that the ring has messages.
fn watch(uring: &mut IoUring, ring: &mut umsg::ring::Ring) -> Result<()> {
    let descriptor = types::Fd(ring.pollable().as_raw_fd());
    let poll = opcode::PollAdd::new(descriptor, libc::POLLIN as u32).build();
    push(uring, &poll.user_data(POLLED))
}

fn tick(uring: &mut IoUring, timeout: &types::Timespec) -> Result<()> {
    push(
        uring,
        &opcode::Timeout::new(timeout).build().user_data(TIMER),
    )
}

fn push(uring: &mut IoUring, entry: &io_uring::squeue::Entry) -> Result<()> {
    // SAFETY: the descriptor and the time that the entries refer to live as long as the io_uring.
    unsafe { uring.submission().push(entry)? };
    Ok(())
}
