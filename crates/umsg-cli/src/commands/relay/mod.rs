//! `umsg relay`.
//!
//! | what | where |
//! |---|---|
//! | pairs on the command line | [`pair`] |
//! | the thread of a pair: interruptions, attempts after errors | [`worker`] |
//! | the steps of a message | [`posix`], [`sysv`] |
//! | the places at which tests kill the relay | [`crash`] |
//! | the lines about each pair | [`board`] |
//!
//! docs/protocols.md, "The relay", describes the steps of the relay, and its state after a death at each step.

mod board;
mod crash;
mod pair;
mod posix;
mod sysv;
mod worker;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::thread;

use clap::Args;
use rustix::fs::inotify::Reader;
use umsg_carry::service;

use crate::address::Address;
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::lookout::{self, PERSISTENCE};
use crate::output::Format;
use crate::{ending, place};
use pair::{Declared, dead_letter, declared};
use worker::{Scene, Worker};

/// Carry messages between the kernel's queues and umsg's queues
///
/// The relay serves programs that `umsg run` can't intercept: set-user-ID programs, and programs that a service such as cron starts. These
/// programs use a queue of the kernel, and programs under `umsg run` use a queue of umsg. The relay carries messages from one queue to the other.
/// Each message keeps its priority or type. While the destination queue is full, the messages wait in the source queue. If the source queue is also
/// full, its senders wait or fail.
///
/// A pair is a queue of the kernel and a queue of umsg, with one direction. --in carries messages from the kernel's queue to umsg's queue, and --out
/// in the other direction. Give one name for both queues, or write KERNEL=UMSG. A System V queue can serve both directions: --both key:0x1234,type=1
/// carries messages of type 1 in, and messages of all other types out. The options may be repeated: one relay serves any number of pairs.
///
/// The relay runs until SIGTERM or SIGINT. If the signal comes while umsg's queue is missing or corrupted, a pair may hold one message that it has
/// received from the kernel's queue and can't send. The relay returns this message to the kernel's queue. If the kernel's queue has no room for the
/// message, the message is lost, and the relay prints an error. No other message is lost.
///
/// If the relay is killed (SIGKILL), at most one message of each pair is affected. A pair that carries to the kernel's queue, or from a System V
/// queue of the kernel, may deliver this message twice. A pair that carries from a POSIX queue of the kernel may lose the message if it has left the
/// kernel's queue and is not yet in umsg's queue. A pair that carries from a System V queue of the kernel copies a message before it receives the
/// message. Such a pair may lose only messages that the kernel can't copy: messages without bytes, messages longer than msgmax, and all messages of a
/// kernel without MSG_COPY.
///
/// The relay should be the only receiver of its source queues: if another receiver takes a System V message after the relay has copied it, the
/// message is delivered twice.
///
/// A message that is too long for the destination queue goes to the queue of --dead-letter. Without --dead-letter, the message waits, and the relay
/// prints an error with the message's length. If the kernel's POSIX queue may hold messages that are too long, the relay requires --dead-letter.
/// After an error, a pair tries again every second, and the other pairs continue. If a queue is removed and created again, the relay opens the new
/// queue. With --create, the relay creates a missing queue itself.
#[derive(Args, Debug)]
#[command(
    override_usage = "umsg relay [OPTIONS] [--in QUEUE]... [--out QUEUE]...\n                  [--both QUEUE,type=N]...",
    after_help = "\
Queues:
  /orders              a POSIX queue of this name, of the kernel and of umsg
  /orders=/jobs        the kernel's /orders, and umsg's /jobs
  key:0x1234           a System V queue by its key; id:32769 by its identifier
  key:0x1234,type=1    only messages of type 1; except=1: all other messages

Examples:
  umsg relay --in /requests --out /replies --create
  umsg relay --both key:0x1234,type=1
  umsg relay --in /orders=/jobs --dead-letter /too-long --json

Signals:
  SIGUSR1              print the state and the counts of each pair
  SIGTERM, SIGINT      end, as described above"
)]
pub struct Relay {
    /// Carry messages from the kernel's queue to umsg's queue
    #[arg(long = "in", value_name = "QUEUE", value_parser = declared())]
    into: Vec<Declared>,
    /// Carry messages from umsg's queue to the kernel's queue
    #[arg(long, value_name = "QUEUE", value_parser = declared())]
    out: Vec<Declared>,
    /// With type=N: carry messages of type N from the kernel's System V queue to umsg's queue, and messages of all other types from umsg's queue to
    /// the kernel's queue. With except=N, the directions are exchanged
    #[arg(long, value_name = "QUEUE,type=N", value_parser = declared())]
    both: Vec<Declared>,
    /// Create a missing queue with the attributes and the mode of the other queue of its pair
    #[arg(long)]
    create: bool,
    /// The queue of umsg for messages that are too long, created if it is missing. The option may be given twice: with a POSIX queue for POSIX pairs,
    /// and with a System V queue for System V pairs
    #[arg(long, value_name = "QUEUE", value_parser = dead_letter())]
    dead_letter: Vec<Address>,
    #[command(flatten)]
    format: Format,
}

impl Relay {
    pub fn perform(&self, cli: &Cli) -> Result {
        let pairs = pair::pairs(&self.into, &self.out, &self.both)?;
        let kinds = self.dead_letter.iter().map(std::mem::discriminant);
        if kinds
            .clone()
            .enumerate()
            .any(|(index, kind)| kinds.clone().take(index).any(|earlier| earlier == kind))
        {
            let line = "--dead-letter is given twice for one kind of queue; name one POSIX queue and one System V queue at most";
            return Err(Failure::new(Code::Usage, line));
        }
        let namespace = match self.create {
            true => place::namespace(cli)?,
            false => place::existing(cli)?,
        };
        // A queue that the relay creates gets exactly the mode of the other queue of its pair: the umask must remove no bit.
        rustix::process::umask(rustix::fs::Mode::empty());
        let signals = ending::listen(&[ending::INTERRUPT, ending::TERMINATE, ending::USER])?;
        let scene = Scene::new(namespace, self.create, self.dead_letter.clone())?;
        let workers: Vec<Worker> = pairs
            .into_iter()
            .map(|pair| Worker::new(pair, self.format.json))
            .collect();
        let mut open = Vec::new();
        for worker in &workers {
            let ends = worker.open(&scene);
            open.push(ends.map_err(|why| Failure::new(Code::Failed, why))?);
        }
        thread::scope(|scope| {
            let threads: Vec<_> = workers
                .iter()
                .zip(open)
                .map(|(worker, ends)| {
                    worker.board.report("running");
                    scope.spawn(|| worker.run(&scene, ends))
                })
                .collect();
            tell(&format!("READY=1\nSTATUS={} pairs", workers.len()));
            supervise(&scene, &workers, &signals, || {
                threads.iter().all(thread::ScopedJoinHandle::is_finished)
            });
        });
        for worker in &workers {
            worker.board.report("ended");
        }
        Ok(())
    }
}

/// Reports the state to a service manager. An error is only printed, because the relay also works without a service manager.
fn tell(state: &str) {
    if let Err(error) = service::tell(state) {
        eprintln!("umsg: sd_notify: {error}");
    }
}

/// Passes signals to the pairs, and tells pairs when the names of their queues change, until all pairs have ended.
fn supervise(scene: &Scene, workers: &[Worker], signals: &OwnedFd, have_ended: impl Fn() -> bool) {
    loop {
        // Relaxed: this thread itself sets the flag. If this thread does not yet see that a pair has cleared the flag, it interrupts that pair once
        // more, which is harmless.
        let looks = |worker: &&Worker| worker.looks.load(Ordering::Relaxed);
        let is_urgent = scene.is_stopped() || workers.iter().any(|worker| looks(&worker));
        let events = [signals.as_fd(), scene.changes.as_fd(), scene.over.as_fd()];
        let ready = ending::wait_for(events, is_urgent.then_some(PERSISTENCE));
        if ready[0] {
            match ending::heard(signals.as_fd()) {
                Some(ending::USER) => workers.iter().for_each(|worker| worker.board.tell()),
                Some(_) => {
                    tell("STOPPING=1");
                    scene.stop();
                }
                None => {}
            }
        }
        if ready[1] {
            pass_on(scene, workers);
        }
        if ready[2] {
            // A pair ends before the relay ends only if the pair's thread has panicked. So the relay ends, too.
            scene.stop();
        }
        if scene.is_stopped() && have_ended() {
            return;
        }
        for worker in workers {
            if scene.is_stopped() || looks(&worker) {
                lookout::interrupt(&worker.thread);
            }
        }
    }
}

/// Sets a flag for each pair with a queue whose name has changed. The flag makes the pair check the names of its queues.
fn pass_on(scene: &Scene, workers: &[Worker]) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(&scene.changes, &mut buffer);
    while let Ok(event) = reader.next() {
        for worker in workers.iter().filter(|worker| worker.has_watch(event.wd())) {
            // Release: pairs with the Acquire in `Crew::interrupted`.
            worker.looks.store(true, Ordering::Release);
        }
    }
}
