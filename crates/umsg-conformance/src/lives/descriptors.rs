//! Tracks the descriptors of all processes of a history, from the answers to their calls, and the doorbells that the drop-in opens for the
//! descriptors.
//!
//! In the kernel, an epoll registration belongs to a descriptor number and an open file description. The drop-in registers a doorbell in place of the
//! queue. An *attachment* is a process's record of a queue. Each descriptor number of an attachment gets a doorbell at its first registration. A fork
//! copies attachments. A process that receives a descriptor, or keeps a descriptor over exec, makes a new attachment. So two processes that share a
//! description may have different doorbells. A registration is *lost* in the drop-in if its doorbell is closed while its description is open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::act::{Act, NAMES, PROCESSES, succeeded};
use crate::compare::{Outcome, Reply};

/// An open file description.
pub type Description = u32;
/// A queue, independent of its name.
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
    /// The data that the events of the registration carry.
    data: i64,
}

impl Registration {
    /// Returns the key by which the kernel finds the registration.
    fn key(&self) -> (Description, i32, Description) {
        (self.set, self.number, self.member)
    }
}

/// The open descriptors of all processes of a history, as far as the answers show them.
#[derive(Default)]
pub struct Descriptors {
    processes: [Process; PROCESSES],
    mail: VecDeque<Descriptor>,
    sets: BTreeSet<Description>,
    registrations: BTreeSet<Registration>,
    /// The data that the next new or changed registration gets for its events: the number of the step.
    data: i64,
    /// For each name, the queue with this name.
    names: [Option<Queue>; NAMES],
    queues: BTreeMap<Description, Queue>,
    /// For each queue with a registration for notification, the number of the registered process.
    registrants: BTreeMap<Queue, usize>,
    /// The queues whose registered process has executed another program while it kept the queue open. The value is the number of that process.
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

    /// Returns the doorbell of a descriptor number of an attachment. Opens the doorbell if it is not open.
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

    /// Records that a process is about to perform the act of this step. A call that adds a queue to a set opens a doorbell even if the call fails.
    pub fn before(&mut self, number: usize, process: usize, act: Act) {
        self.data = number as i64;
        if let Act::Control {
            fd,
            operation: libc::EPOLL_CTL_ADD,
            ..
        } = act
            && let Some(member) = self.at(process, fd)
            && self.is_queue(member)
        {
            self.bell(process, (member.attachment, fd));
        }
    }

    /// Updates the records after both sides gave this answer.
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
                        // The call succeeds on both sides only if no process is registered in the kernel.
                        Some(_) => {
                            self.kept_over_exec.remove(&queue);
                            self.registrants.insert(queue, process);
                        }
                        // With a null pointer, the call removes only a registration of the calling process.
                        None => {
                            for of in [&mut self.registrants, &mut self.kept_over_exec] {
                                of.retain(|&at, &mut of| at != queue || of != process);
                            }
                        }
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
            data: self.data,
        };
        if operation != libc::EPOLL_CTL_ADD {
            self.registrations
                .retain(|one| one.key() != registration.key());
        }
        if operation != libc::EPOLL_CTL_DEL {
            self.registrations.insert(registration);
        }
    }

    /// Makes new attachments for the descriptors of a process that stay open over exec.
    fn exec(&mut self, process: usize) {
        let mut numbers = std::mem::take(&mut self.processes[process]).numbers;
        numbers.retain(|_, descriptor| !descriptor.close_on_exec);
        let mut anew = BTreeMap::new();
        for descriptor in numbers.values_mut() {
            // The new program makes a separate attachment for each descriptor number.
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

    /// Returns the open file description of a descriptor number.
    pub fn description(&self, process: usize, number: i32) -> Option<Description> {
        self.at(process, number)
            .map(|descriptor| descriptor.description)
    }

    /// Returns the queue of a descriptor number.
    pub fn queue(&self, process: usize, number: i32) -> Option<Queue> {
        let description = self.at(process, number)?.description;
        self.queues.get(&description).copied()
    }

    /// Returns whether an act shows or changes the registration for notification of a queue, and the registered process has executed another program
    /// while it kept the queue open.
    pub fn concerns_a_registration_kept_over_exec(&self, process: usize, act: Act) -> bool {
        let (Act::Notify { fd, .. } | Act::StatusLine { fd }) = act else {
            return false;
        };
        self.queue(process, fd)
            .is_some_and(|queue| self.kept_over_exec.contains_key(&queue))
    }

    /// Notes that a process has ended.
    pub fn ended(&mut self, process: usize) {
        self.processes[process] = Process::default();
        // The kernel ends the registrations of a process when the process ends.
        for of in [&mut self.registrants, &mut self.kept_over_exec] {
            of.retain(|_, &mut of| of != process);
        }
        self.settle();
    }

    /// Removes the doorbells without an open descriptor, and the registrations whose member or set is closed in all processes.
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
        self.registrations
            .retain(|one| open.contains(&one.member) && open.contains(&one.set));
    }

    /// Returns whether only the kernel finds the registration that an `epoll_ctl` names. The drop-in misses it, because this process has another
    /// doorbell than the process that registered.
    pub fn is_registered_by_another_doorbell(&self, process: usize, set: i32, fd: i32) -> bool {
        let (Some(set), Some(member)) = (self.at(process, set), self.at(process, fd)) else {
            return false;
        };
        let own = self.processes[process].bells.get(&(member.attachment, fd));
        let key = (set.description, fd, member.description);
        let mut found = self.registrations.iter().filter(|one| one.key() == key);
        self.is_queue(member) && found.any(|one| own != Some(&one.bell))
    }

    /// Returns whether a process with another doorbell has registered another descriptor number of the same description in a set.
    pub fn is_registered_by_another_number(&self, process: usize, set: i32, fd: i32) -> bool {
        let (Some(set), Some(member)) = (self.at(process, set), self.at(process, fd)) else {
            return false;
        };
        let own = &self.processes[process].bells;
        let is_of_another = |one: &Registration| {
            one.set == set.description
                && one.member == member.description
                && one.number != fd
                && own.values().all(|&bell| bell != one.bell)
        };
        self.is_queue(member) && self.registrations.iter().any(is_of_another)
    }

    /// Returns whether a registration is lost, or its member is a set with a lost registration.
    fn is_lost(&self, registration: &Registration) -> bool {
        match self.sets.contains(&registration.member) {
            true => self.has_lost_members(registration.member),
            false => {
                let mut bells = self.processes.iter().flat_map(|one| one.bells.values());
                bells.all(|&bell| bell != registration.bell)
            }
        }
    }

    /// Returns whether a member of a set is a lost registration. The recursion ends, because the kernel prevents cycles of sets.
    fn has_lost_members(&self, set: Description) -> bool {
        let mut members = self.registrations.iter().filter(|one| one.set == set);
        members.any(|one| self.is_lost(one))
    }

    /// Returns whether a descriptor number refers to a set with a lost registration.
    pub fn leads_to_lost_members(&self, process: usize, number: i32) -> bool {
        self.at(process, number)
            .is_some_and(|set| self.has_lost_members(set.description))
    }

    /// Returns the data that the events of the lost registrations of a set carry.
    pub fn lost_data(&self, process: usize, set: i32) -> BTreeSet<i64> {
        let set = self.description(process, set);
        let members = self
            .registrations
            .iter()
            .filter(|one| Some(one.set) == set && self.is_lost(one));
        members.map(|one| one.data).collect()
    }
}
