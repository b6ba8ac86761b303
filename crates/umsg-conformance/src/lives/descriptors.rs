//! The descriptors of all processes of a history, as the answers show them, and the doorbells that the drop-in opens for them.
//!
//! A registration of epoll belongs to a number and an open file description. The drop-in registers a doorbell, of which each number of an
//! *attachment* of a process has one from its first registration on. A fork copies attachments; a process that receives a
//! descriptor, or keeps it over exec, attaches anew. So two processes that share a description may have different doorbells. A set
//! with a registration of which this can be seen is [tainted](Descriptors::concerns_a_doorbell).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::act::{Act, NAMES, PROCESSES, succeeded};
use crate::compare::{Outcome, Reply};

/// An open file description.
pub type Description = u32;
/// A queue, whatever its name.
pub type Queue = u32;
/// A process's record of a queue.
type Attachment = u32;
/// A doorbell.
type Bell = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Descriptor {
    description: Description,
    /// The process's record of the queue.
    attachment: Attachment,
    close_on_exec: bool,
}

#[derive(Debug, Clone, Default)]
struct Process {
    numbers: BTreeMap<i32, Descriptor>,
    bells: BTreeMap<(Attachment, i32), Bell>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Registration {
    set: Description,
    number: i32,
    member: Description,
    bell: Bell,
}

/// What is open.
#[derive(Default)]
pub struct Descriptors {
    processes: [Process; PROCESSES],
    mail: VecDeque<Descriptor>,
    sets: BTreeSet<Description>,
    registrations: BTreeSet<Registration>,
    tainted: BTreeSet<Description>,
    /// The queue that a name leads to.
    names: [Option<Queue>; NAMES],
    queues: BTreeMap<Description, Queue>,
    /// The process that is registered for notification.
    registrants: BTreeMap<Queue, usize>,
    /// Queues whose registered process has run another program.
    kept_over_exec: BTreeMap<Queue, usize>,
    last: u32,
}

impl Descriptors {
    fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn at(&self, process: usize, number: i32) -> Option<Descriptor> {
        self.processes[process].numbers.get(&number).copied()
    }

    fn is_queue(&self, descriptor: Descriptor) -> bool {
        !self.sets.contains(&descriptor.description)
    }

    /// The doorbell for a number of an attachment, opened by the first registration.
    fn bell(&mut self, process: usize, key: (Attachment, i32)) -> Bell {
        if let Some(&bell) = self.processes[process].bells.get(&key) {
            return bell;
        }
        let bell = self.next();
        self.processes[process].bells.insert(key, bell);
        bell
    }

    fn open(&mut self, process: usize, number: i32, close_on_exec: bool) -> Description {
        let descriptor = Descriptor {
            description: self.next(),
            attachment: self.next(),
            close_on_exec,
        };
        self.put(process, number, descriptor);
        descriptor.description
    }

    fn put(&mut self, process: usize, number: i32, descriptor: Descriptor) {
        self.processes[process].numbers.insert(number, descriptor);
        self.settle();
    }

    /// A process is about to change a set: with another doorbell than the one that is registered, the answers may differ.
    pub fn before(&mut self, process: usize, act: Act) {
        let Act::Control {
            set, fd, operation, ..
        } = act
        else {
            return;
        };
        let (Some(set), Some(member)) = (self.at(process, set), self.at(process, fd)) else {
            return;
        };
        let has = self.processes[process].bells.get(&(member.attachment, fd));
        let is_other = |registration: &Registration| {
            registration.set == set.description
                && registration.number == fd
                && registration.member == member.description
                && has != Some(&registration.bell)
        };
        if self.is_queue(member) && self.registrations.iter().any(is_other) {
            self.tainted.insert(set.description);
        }
        if operation == libc::EPOLL_CTL_ADD && self.is_queue(member) {
            self.bell(process, (member.attachment, fd));
        }
    }

    /// Both sides gave this answer.
    pub fn answered(&mut self, process: usize, act: Act, reply: &Reply) {
        if !succeeded(reply.outcome) {
            return;
        }
        let new = match reply.outcome {
            Outcome::Descriptor(number) => number,
            _ => -1,
        };
        match act {
            Act::Open { name, .. } => {
                let opened = self.open(process, new, true);
                let queue = self.names[name].unwrap_or_else(|| self.next());
                self.names[name] = Some(queue);
                self.queues.insert(opened, queue);
            }
            Act::Unlink { name } => self.names[name] = None,
            Act::Notify { fd, signal } => {
                if let Some(queue) = self.queue(process, fd) {
                    match signal {
                        Some(_) => {
                            self.registrants.insert(queue, process);
                        }
                        // Another process's registration stays.
                        None => self
                            .registrants
                            .retain(|&at, &mut of| at != queue || of != process),
                    }
                }
            }
            Act::MakeSet => {
                let set = self.open(process, new, false);
                self.sets.insert(set);
            }
            Act::Close { fd } => {
                self.processes[process].numbers.remove(&fd);
            }
            Act::KeepOnExec { fd, keep } => {
                if let Some(descriptor) = self.processes[process].numbers.get_mut(&fd) {
                    descriptor.close_on_exec = !keep;
                }
            }
            Act::Dup { fd } | Act::Dup2 { fd, .. } if new != fd => {
                if let Some(descriptor) = self.at(process, fd) {
                    let close_on_exec = false;
                    let copy = Descriptor {
                        close_on_exec,
                        ..descriptor
                    };
                    self.put(process, new, copy);
                }
            }
            Act::Pass { fd } => self.mail.extend(self.at(process, fd)),
            Act::Take => {
                if let Some(descriptor) = self.mail.pop_front() {
                    let received = Descriptor {
                        attachment: self.next(),
                        close_on_exec: false,
                        ..descriptor
                    };
                    self.put(process, new, received);
                }
            }
            Act::Control {
                set, operation, fd, ..
            } => self.control(process, set, operation, fd),
            Act::Fork { child } => self.processes[child] = self.processes[process].clone(),
            Act::Exec => self.exec(process),
            _ => {}
        }
        self.settle();
    }

    fn control(&mut self, process: usize, set: i32, operation: i32, fd: i32) {
        let (Some(set), Some(member)) = (self.at(process, set), self.at(process, fd)) else {
            return;
        };
        let bell = if self.is_queue(member) {
            self.bell(process, (member.attachment, fd))
        } else {
            0
        };
        let registration = Registration {
            set: set.description,
            number: fd,
            member: member.description,
            bell,
        };
        match operation {
            libc::EPOLL_CTL_ADD => {
                self.registrations.insert(registration);
            }
            libc::EPOLL_CTL_DEL => {
                self.registrations.remove(&registration);
            }
            _ => {}
        }
    }

    /// Descriptors that stay open are attached to anew.
    fn exec(&mut self, process: usize) {
        let mut numbers = std::mem::take(&mut self.processes[process]).numbers;
        numbers.retain(|_, descriptor| !descriptor.close_on_exec);
        let mut anew = BTreeMap::new();
        for descriptor in numbers.values_mut() {
            // Each number is found by itself.
            let attachment = anew.len() as u32;
            anew.insert(attachment, descriptor.attachment);
            descriptor.attachment = self.last + 1 + attachment;
        }
        self.last += 1 + anew.len() as u32;
        let kept = numbers.values();
        let kept: BTreeSet<Queue> = kept
            .filter_map(|descriptor| self.queues.get(&descriptor.description).copied())
            .collect();
        for queue in kept {
            if self.registrants.get(&queue) == Some(&process) {
                self.kept_over_exec.insert(queue, process);
            }
        }
        self.processes[process].numbers = numbers;
    }

    /// The open file description that a number leads to.
    pub fn description(&self, process: usize, number: i32) -> Option<Description> {
        self.at(process, number)
            .map(|descriptor| descriptor.description)
    }

    /// The queue that a number leads to.
    pub fn queue(&self, process: usize, number: i32) -> Option<Queue> {
        let description = self.at(process, number)?.description;
        self.queues.get(&description).copied()
    }

    /// Whether an act learns of a registration for notification whose process has run another program since, with the queue
    /// open: by asking the queue, or as that process.
    pub fn concerns_a_registration_kept_over_exec(&self, process: usize, act: Act) -> bool {
        match act {
            Act::Notify { fd, .. } | Act::StatusLine { fd } => self
                .queue(process, fd)
                .is_some_and(|queue| self.kept_over_exec.contains_key(&queue)),
            act => {
                (act == Act::Notices || act.may_block())
                    && self.kept_over_exec.values().any(|&kept| kept == process)
            }
        }
    }

    /// A process has ended.
    pub fn ended(&mut self, process: usize) {
        self.processes[process] = Process::default();
        self.settle();
    }

    /// Forgets what is closed. A doorbell that goes before its description has taken its registrations along; one that is
    /// there after it would go on ringing.
    fn settle(&mut self) {
        for process in &mut self.processes {
            let numbers = &process.numbers;
            process.bells.retain(|&(attachment, _), _| {
                let mut open = numbers.values();
                open.any(|descriptor| descriptor.attachment == attachment)
            });
        }
        let numbers = self.processes.iter().flat_map(|one| one.numbers.values());
        let open: BTreeSet<Description> = numbers
            .chain(&self.mail)
            .map(|descriptor| descriptor.description)
            .collect();
        let bells = self.processes.iter().flat_map(|one| one.bells.values());
        let bells: BTreeSet<Bell> = bells.copied().collect();
        let (tainted, sets) = (&mut self.tainted, &self.sets);
        self.registrations.retain(|registration| {
            let is_open = open.contains(&registration.member);
            let rings = bells.contains(&registration.bell);
            if is_open != rings && !sets.contains(&registration.member) {
                tainted.insert(registration.set);
            }
            is_open && open.contains(&registration.set)
        });
    }

    /// Whether an act asks a set with a registration whose doorbell is not shared as its queue is, or a set that has such a
    /// set as a member.
    pub fn concerns_a_doorbell(&self, process: usize, act: Act) -> bool {
        let numbers = match act {
            Act::WaitSet { set, .. } | Act::Control { set, .. } => [set, set],
            Act::Poll { fds, .. } => fds,
            Act::Select { fd } => [fd, fd],
            _ => return false,
        };
        let mut asked: BTreeSet<Description> = numbers
            .iter()
            .filter_map(|&number| self.at(process, number))
            .map(|descriptor| descriptor.description)
            .collect();
        for _ in 0..self.sets.len() {
            let members = self.registrations.iter();
            let members = members.filter(|one| asked.contains(&one.set));
            let members: Vec<Description> = members.map(|one| one.member).collect();
            asked.extend(members);
        }
        !asked.is_disjoint(&self.tainted)
    }
}
