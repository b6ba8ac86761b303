//! A pair of io_uring's rings.

use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use super::{Answer, Completion, ENTRIES, IN_VAIN, Pair};

/// The number of entries of the sender's submission queue. All messages of a post fit into it.
const SUBMISSIONS: u32 = 64;

/// Returns the reason why this process can't use io_uring on this machine. Returns `None` if it can.
pub fn unavailable() -> Option<String> {
    let error = Uring::new(false).err()?;
    Some(format!("no io_uring here: {error}"))
}

/// A sender's ring and a receiver's ring. The receiver may have been dropped.
#[derive(Default)]
pub struct Uring {
    sender: Option<IoUring>,
    receiver: Option<IoUring>,
    /// The receiver's descriptor. After the receiver is dropped, it is an invalid descriptor.
    target: i32,
    enabled: bool,
}

impl Uring {
    fn new(disabled: bool) -> std::io::Result<Uring> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(ENTRIES as u32);
        if disabled {
            builder.setup_r_disabled();
        }
        let receiver = builder.build(ENTRIES as u32 / 2)?;
        Ok(Uring {
            sender: Some(IoUring::new(SUBMISSIONS)?),
            target: receiver.as_raw_fd(),
            receiver: Some(receiver),
            enabled: !disabled,
        })
    }
}

impl Pair for Uring {
    fn make(&mut self, disabled: bool) {
        *self = Uring::default();
        *self = Uring::new(disabled).expect("io_uring works here");
    }

    /// Posts messages. The completions on the sender's ring show whether the messages were sent. All completions must have the same result.
    fn post(&mut self, messages: &[Completion]) -> Answer {
        let target = self.target;
        match &mut self.sender {
            None => Answer::Nothing,
            Some(sender) => post(sender, target, messages),
        }
    }

    fn take(&mut self, most: usize) -> Option<Vec<Completion>> {
        self.receiver.as_mut().map(|ring| take(ring, most))
    }

    fn wait(&mut self, count: usize) -> Answer {
        let Some(ring) = &mut self.receiver else {
            return Answer::Nothing;
        };
        if ring.completion().len() >= count {
            return Answer::Waited(true);
        }
        let timeout = types::Timespec::new().nsec(IN_VAIN as u32);
        let args = types::SubmitArgs::new().timespec(&timeout);
        match ring.submitter().submit_with_args(count, &args) {
            Ok(_) => Answer::Waited(ring.completion().len() >= count),
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Answer::Waited(false),
            // For a disabled ring, io_uring refuses to wait: no message can arrive before the ring is enabled.
            Err(error) if !self.enabled && error.raw_os_error() == Some(libc::EBADFD) => {
                Answer::Waited(false)
            }
            Err(error) => Answer::Error(error.raw_os_error().unwrap_or(0)),
        }
    }

    fn meet(&mut self, messages: &[Completion]) -> Answer {
        let target = self.target;
        let (Some(sender), Some(ring)) = (&mut self.sender, &mut self.receiver) else {
            return Answer::Nothing;
        };
        if !self.enabled {
            return Answer::Nothing;
        }
        let mut taken = take(ring, usize::MAX);
        let posted = AtomicBool::new(false);
        let early = thread::scope(|scope| {
            scope.spawn(|| {
                post_one_by_one(messages, &posted, |message| {
                    post(sender, target, &[message])
                })
            });
            while ring.completion().len() < messages.len() {
                match ring.submit_and_wait(messages.len()) {
                    Err(error) if error.raw_os_error() != Some(libc::EINTR) => break,
                    _ => {}
                }
            }
            !posted.load(Ordering::Acquire)
        });
        taken.extend(take(ring, usize::MAX));
        Answer::Met(!early, taken)
    }

    fn enable(&mut self) -> Option<()> {
        // If the ring is already enabled, the call fails with EBADFD, which is harmless.
        let _ = self.receiver.as_ref()?.submitter().register_enable_rings();
        self.enabled = true;
        Some(())
    }

    fn close(&mut self) {
        self.receiver = None;
        // The kernel may soon reuse the receiver's descriptor number for another file.
        self.target = -1;
    }
}

/// Posts messages with a pause before each message. Sets `posted` before the last message.
pub(super) fn post_one_by_one(
    messages: &[Completion],
    posted: &AtomicBool,
    mut post: impl FnMut(Completion) -> Answer,
) {
    for (index, &message) in messages.iter().enumerate() {
        thread::sleep(Duration::from_micros(200));
        posted.store(index + 1 == messages.len(), Ordering::Release);
        assert_eq!(post(message), Answer::Done);
    }
}

fn post(sender: &mut IoUring, target: i32, messages: &[Completion]) -> Answer {
    let target = types::Fd(target);
    for message in messages {
        let Completion {
            user_data,
            res,
            flags,
        } = *message;
        let entry = opcode::MsgRingData::new(target, res, user_data, Some(flags)).build();
        // SAFETY: the submission contains no pointer to memory.
        let pushed = unsafe { sender.submission().push(&entry) };
        assert!(
            pushed.is_ok(),
            "a post has more messages than submissions fit"
        );
    }
    match sender.submit_and_wait(messages.len()) {
        Ok(count) => assert_eq!(count, messages.len()),
        Err(error) => return Answer::Error(error.raw_os_error().unwrap_or(0)),
    }
    let results: Vec<i32> = sender.completion().map(|done| done.result()).collect();
    assert_eq!(results.len(), messages.len());
    assert!(results.iter().all(|&result| result == results[0]));
    match -results[0] {
        0 => Answer::Done,
        libc::EBADF => Answer::Gone,
        error => Answer::Error(error),
    }
}

/// Takes up to this number of completions, including completions that the kernel kept because of an overflow.
fn take(ring: &mut IoUring, most: usize) -> Vec<Completion> {
    let mut taken = Vec::new();
    while taken.len() < most {
        let next = ring.completion().next();
        match next {
            Some(entry) => taken.push(Completion {
                user_data: entry.user_data(),
                res: entry.result(),
                flags: entry.flags(),
            }),
            // The call only moves overflowed completions into the ring, and returns at once.
            None if ring.submission().cq_overflow() => {
                ring.submit().expect("io_uring gives out what overflowed");
            }
            None => break,
        }
    }
    taken
}
