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
//! docs/protocols.md, "The relay", describes the steps and the deaths.

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
/// For programs that `umsg run` can't intercept, such as set-user-ID programs, and programs that are started elsewhere: they use the kernel's
/// queue, programs under `umsg run` use umsg's queue, and the relay carries messages from one to the other. Each message keeps its
/// priority or type. If the queue to which messages go is full, they wait in the queue from which they come, until its senders wait or fail.
///
/// A pair has one direction: --in carries from the kernel's queue to umsg's, --out from umsg's queue to the kernel's. Both queues have one name,
/// or are written KERNEL=UMSG. A System V queue can serve both directions: --both key:0x1234,type=1 carries messages of type 1 in, and all
/// others out. The options may be repeated: one relay serves any number of pairs.
///
/// The relay runs until SIGTERM or SIGINT, and loses no message at such an end. If the relay is killed (SIGKILL), from umsg to the kernel, and in
/// System V queues in both directions, no message is lost, and one message of each pair may come twice. From a POSIX queue of the kernel, one
/// message of each pair may be lost: the one that the kernel has handed over, and that is not yet in umsg's queue. So may a System V message
/// without bytes, and any System V message on a kernel without MSG_COPY. The relay should be the only receiver of the queues from which it carries:
/// a System V message that another receiver takes at the same moment comes twice.
///
/// A message that is too long for the other queue goes to the dead-letter queue, or waits, with an error that names it. After an error, a pair tries
/// again every second, and the other pairs go on. If a queue is removed, the relay opens or, with --create, makes the next queue of this name.
#[derive(Args, Debug)]
#[command(
    override_usage = "umsg relay [OPTIONS] [--in QUEUE]... [--out QUEUE]... [--both QUEUE,type=N]...",
    after_help = "\
Queues:
  /orders              a POSIX queue; the kernel's and umsg's have this name
  /orders=/jobs        the kernel's /orders, and umsg's /jobs
  key:0x1234           a System V queue; id:32769 by its identifier
  key:0x1234,type=1    only messages of type 1; except=1: of all other types

Examples:
  umsg relay --in /requests --out /replies --create
  umsg relay --both key:0x1234,type=1
  umsg relay --in /orders=/jobs --dead-letter /too-long --json

Signals:
  SIGUSR1              print a line for each pair
  SIGTERM, SIGINT      end, without loss of messages"
)]
pub struct Relay {
    /// Carry from the kernel's queue to umsg's
    #[arg(long = "in", value_name = "QUEUE", value_parser = declared())]
    into: Vec<Declared>,
    /// Carry from umsg's queue to the kernel's
    #[arg(long, value_name = "QUEUE", value_parser = declared())]
    out: Vec<Declared>,
    /// Carry these types of a System V queue from the kernel, and all others to the kernel
    #[arg(long, value_name = "QUEUE,type=N", value_parser = declared())]
    both: Vec<Declared>,
    /// Make a missing queue with the attributes and the mode of the other queue of its pair
    #[arg(long)]
    create: bool,
    /// The queue of umsg for messages that are too long, made if it is missing; one for POSIX queues, and one for System V queues
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
        // A copied mode is exact.
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

/// Tells a service manager. Messages go on without it.
fn tell(state: &str) {
    if let Err(error) = service::tell(state) {
        eprintln!("umsg: sd_notify: {error}");
    }
}

/// Passes signals and changes of names on to the pairs, until all have ended.
fn supervise(scene: &Scene, workers: &[Worker], signals: &OwnedFd, have_ended: impl Fn() -> bool) {
    loop {
        // Relaxed: the interruption comes behind it, and is repeated.
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
            // A pair ends before the relay only by a panic.
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

/// Has the pairs of changed names look at them.
fn pass_on(scene: &Scene, workers: &[Worker]) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(&scene.changes, &mut buffer);
    while let Ok(event) = reader.next() {
        for worker in workers.iter().filter(|worker| worker.has_watch(event.wd())) {
            // Release: see `Crew::interrupted`.
            worker.looks.store(true, Ordering::Release);
        }
    }
}
