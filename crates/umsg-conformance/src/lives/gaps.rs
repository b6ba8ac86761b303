//! Recognises the known gaps (differences from the kernel) of `docs/protocols.md` section 11 that occur in histories. Each gap is a predicate over
//! the events so far.

use std::collections::{BTreeMap, BTreeSet};

use super::act::{Act, PROCESSES, succeeded};
use super::descriptors::{Descriptors, Queue};
use crate::compare::{Outcome, Reply};
use crate::errno::Errno;

/// A known gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gap {
    /// The result of an `epoll_ctl` or the events of a set differ, because processes that share the queue's descriptor have different doorbells.
    Doorbell,
    /// The process that is registered for notification has executed another program.
    NotifyOverExec,
    /// The kernel has restarted a blocked call after a stop.
    BegunAnew,
    /// Several processes sleep in epoll_wait for one set.
    OneSetSeveralWaiters,
    /// Several senders are blocked on a System V queue.
    SeveralSenders,
    /// Several receivers were blocked on a System V queue when IPC_SET changed the queue.
    SeveralReceivers,
    /// One message fills an empty queue, or its receipt empties a full queue, while a process polls.
    BothLevels,
}

impl Gap {
    /// All known gaps.
    pub const ALL: [Gap; 7] = [
        Gap::Doorbell,
        Gap::NotifyOverExec,
        Gap::BegunAnew,
        Gap::OneSetSeveralWaiters,
        Gap::SeveralSenders,
        Gap::SeveralReceivers,
        Gap::BothLevels,
    ];

    /// Returns the text in the first column of the gap's row in the table of `docs/protocols.md`.
    pub fn row(self) -> &'static str {
        match self {
            Gap::Doorbell => {
                "processes of the drop-in share a queue's descriptor, and each has its own doorbell"
            }
            Gap::NotifyOverExec => {
                "a process of the drop-in that is registered for notification runs another program, with the queue open"
            }
            Gap::BegunAnew => "a stop interrupts a blocked call on a queue",
            Gap::OneSetSeveralWaiters => {
                "several processes of the drop-in sleep in epoll_wait for one set"
            }
            Gap::SeveralSenders => {
                "room comes, by a receive or IPC_SET, for some of several blocked senders of a System V queue"
            }
            Gap::SeveralReceivers => {
                "IPC_SET changes a System V queue on which several receivers are blocked"
            }
            Gap::BothLevels => {
                "one call takes a queue from empty to full, or from full to empty, while another process polls"
            }
        }
    }
}

/// Returns the data and events that a set reports for all registrations except the lost ones. Without a reply, the caller sleeps, and the list is
/// empty. For an error, the result is `None`.
fn told_beside(lost: &BTreeSet<i64>, reply: Option<&Reply>) -> Option<Vec<[i64; 2]>> {
    let Some(reply) = reply else {
        return Some(Vec::new());
    };
    let Outcome::Value(_) = reply.outcome else {
        return None;
    };
    let (pairs, _) = reply.details.as_chunks::<2>();
    let beside = pairs.iter().filter(|[data, _]| !lost.contains(data));
    Some(beside.copied().collect())
}

/// Returns whether the kernel's call has succeeded while the drop-in's call is blocked. In the drop-in, another process then got the message or the
/// room.
fn is_overtaken(kernel: Option<&Reply>, other: Option<&Reply>) -> bool {
    kernel.is_some_and(|kernel| succeeded(kernel.outcome)) && other.is_none()
}

/// Returns whether the two answers differ because the kernel has a registration for notification that the drop-in no longer has.
fn has_lost_its_registration(act: Act, kernel: Option<&Reply>, other: Option<&Reply>) -> bool {
    let (Some(kernel), Some(other)) = (kernel, other) else {
        return false;
    };
    match act {
        Act::Notify {
            signal: Some(_), ..
        } => kernel.outcome == Outcome::Failed(Errno::EBUSY) && other.outcome == Outcome::Value(0),
        Act::StatusLine { .. } => {
            let is_registered = |reply: &Reply| reply.details != [0];
            let size = |reply: &Reply| reply.data.get(..QUEUE_SIZE).map(<[u8]>::to_vec);
            succeeded(kernel.outcome)
                && kernel.outcome == other.outcome
                && is_registered(kernel)
                && !is_registered(other)
                && size(kernel) == size(other)
                && other.data.get(QUEUE_SIZE..) == Some(NOT_REGISTERED)
        }
        _ => false,
    }
}

/// Returns whether a process that waits for a set gets different events on the two sides. A process that still sleeps has got no events.
fn is_another_waiters_event(kernel: Option<&Reply>, other: Option<&Reply>) -> bool {
    let told = [kernel, other].map(|reply| told_beside(&BTreeSet::new(), reply));
    matches!(told, [Some(kernel), Some(other)] if kernel != other)
}

/// The length of the field `QSIZE` and its value in the status line of a queue.
const QUEUE_SIZE: usize = 17;

/// The part of the status line between `QSIZE` and the process id, if no process is registered.
const NOT_REGISTERED: &[u8] = b"NOTIFY:0     SIGNO:0     NOTIFY_PID:";

/// The events of a history that can cause gaps.
#[derive(Default)]
pub struct Ledger {
    descriptors: Descriptors,
    blocked: [Option<Act>; PROCESSES],
    /// For each process: true if the kernel has restarted its blocked call after a stop.
    begun_anew: [bool; PROCESSES],
    /// Queues on which several calls were blocked when the kernel restarted one of these calls after a stop.
    reordered: BTreeSet<Queue>,
    /// Keys of System V queues on which several receivers were blocked when the kernel restarted one or all of their calls. The value is the gap that
    /// explains the difference.
    reordered_keys: BTreeMap<usize, Gap>,
}

impl Ledger {
    /// Records that a process is blocked in this act.
    pub fn blocked(&mut self, process: usize, act: Act) {
        self.blocked[process] = Some(act);
    }

    /// Notes that a blocked process got a signal, or was stopped and continued.
    pub fn disturbed(&mut self, process: usize, act: Act) {
        if act != Act::StopAndContinue {
            return;
        }
        if let Some(Act::ReceiveTyped { key, .. }) = self.blocked[process]
            && self.receivers(key) > 1
        {
            self.reordered_keys.insert(key, Gap::BegunAnew);
        }
        let Some(queue) = self.waits_for(process) else {
            return;
        };
        self.begun_anew[process] = true;
        let callers = (0..PROCESSES).filter(|&other| self.waits_for(other) == Some(queue));
        if callers.count() > 1 {
            self.reordered.insert(queue);
        }
    }

    /// Returns the POSIX queue that a process waits for in mq_send or mq_receive.
    fn waits_for(&self, process: usize) -> Option<Queue> {
        match self.blocked[process]? {
            Act::Send { fd, .. } | Act::Receive { fd, .. } => self.descriptors.queue(process, fd),
            _ => None,
        }
    }

    /// Notes that a process no longer sleeps.
    fn released(&mut self, process: usize) {
        self.blocked[process] = None;
        self.begun_anew[process] = false;
        let waited_for: BTreeSet<Queue> = (0..PROCESSES)
            .filter_map(|process| self.waits_for(process))
            .collect();
        self.reordered.retain(|queue| waited_for.contains(queue));
        let mut keys = std::mem::take(&mut self.reordered_keys);
        keys.retain(|&key, _| self.receivers(key) > 0);
        self.reordered_keys = keys;
    }

    /// Returns the number of processes that are blocked in msgrcv on the queue of a key.
    fn receivers(&self, key: usize) -> usize {
        let waits = |act: &&Act| matches!(act, Act::ReceiveTyped { key: of, .. } if *of == key);
        self.blocked.iter().flatten().filter(waits).count()
    }

    /// Notes that a process is about to perform the act of this step.
    pub fn before(&mut self, number: usize, process: usize, act: Act) {
        self.descriptors.before(number, process, act);
    }

    /// Updates the records after both sides gave this answer.
    pub fn answered(&mut self, process: usize, act: Act, reply: &Reply) {
        self.released(process);
        if let Act::LimitBytes { key, .. } = act
            && succeeded(reply.outcome)
            && self.receivers(key) > 1
        {
            self.reordered_keys.insert(key, Gap::SeveralReceivers);
        }
        self.descriptors.answered(process, act, reply);
    }

    /// Notes that a process has ended.
    pub fn ended(&mut self, process: usize) {
        self.released(process);
        self.descriptors.ended(process);
    }

    /// Returns the gap that explains a difference between the two replies to a process. A reply of `None` means that the process is blocked.
    pub fn gap(
        &self,
        process: usize,
        act: Act,
        kernel: Option<&Reply>,
        other: Option<&Reply>,
    ) -> Option<Gap> {
        let descriptors = &self.descriptors;
        if self.is_of_another_doorbell(process, act, [kernel, other]) {
            Some(Gap::Doorbell)
        } else if descriptors.concerns_a_registration_kept_over_exec(process, act)
            && has_lost_its_registration(act, kernel, other)
        {
            Some(Gap::NotifyOverExec)
        } else if self.was_restarted(process, kernel, other) {
            Some(Gap::BegunAnew)
        } else if self.is_one_of_several_waiters(process, act)
            && is_another_waiters_event(kernel, other)
        {
            Some(Gap::OneSetSeveralWaiters)
        } else if self.is_one_of_several_senders(process, act) && is_overtaken(kernel, other) {
            Some(Gap::SeveralSenders)
        } else if let Act::ReceiveTyped { key, .. } = act
            && let Some(&gap) = self.reordered_keys.get(&key)
            && is_overtaken(kernel, other)
        {
            Some(gap)
        } else if self.learns_of_both_levels(process, act, [kernel, other]) {
            Some(Gap::BothLevels)
        } else {
            None
        }
    }

    /// Returns whether the doorbells explain the difference. Either the drop-in's `epoll_ctl` misses a registration, or it ignores the registration
    /// of another descriptor number, or a set reports events of lost registrations.
    fn is_of_another_doorbell(
        &self,
        process: usize,
        act: Act,
        replies: [Option<&Reply>; 2],
    ) -> bool {
        let descriptors = &self.descriptors;
        match act {
            Act::Control {
                set, operation, fd, ..
            } => {
                let expected = match operation {
                    libc::EPOLL_CTL_ADD => [Outcome::Failed(Errno::EEXIST), Outcome::Value(0)],
                    _ => [Outcome::Value(0), Outcome::Failed(Errno::ENOENT)],
                };
                let outcomes = replies.map(|reply| reply.map(|reply| reply.outcome));
                let found = [Outcome::Value(0), Outcome::Failed(Errno::EEXIST)];
                (outcomes == expected.map(Some)
                    && descriptors.is_registered_by_another_doorbell(process, set, fd))
                    || (operation == libc::EPOLL_CTL_ADD
                        && outcomes == found.map(Some)
                        && descriptors.is_registered_by_another_number(process, set, fd))
            }
            Act::WaitSet { set, .. } => {
                let lost = descriptors.lost_data(process, set);
                let [kernel, other] = replies.map(|reply| told_beside(&lost, reply));
                !lost.is_empty() && kernel == other
            }
            Act::Poll { fds, .. } => fds
                .iter()
                .any(|&fd| descriptors.leads_to_lost_members(process, fd)),
            Act::Select { fd } => descriptors.leads_to_lost_members(process, fd),
            _ => false,
        }
    }

    /// Returns whether a restart explains that the drop-in's call is still blocked: the kernel has restarted this call or another call on the queue.
    /// A restarted call reads `O_NONBLOCK` again, and then waits behind all other callers.
    fn was_restarted(&self, process: usize, kernel: Option<&Reply>, other: Option<&Reply>) -> bool {
        let refused = Some(Outcome::Failed(Errno::EAGAIN));
        let is_refused = kernel.map(|kernel| kernel.outcome) == refused && other.is_none();
        let queue = self.waits_for(process);
        self.begun_anew[process] && is_refused
            || queue.is_some_and(|queue| self.reordered.contains(&queue))
                && is_overtaken(kernel, other)
    }

    /// Returns whether the drop-in reports both a message and room to a process that slept in epoll_wait, while the kernel reports only one of the
    /// two.
    fn learns_of_both_levels(
        &self,
        process: usize,
        act: Act,
        replies: [Option<&Reply>; 2],
    ) -> bool {
        let told = replies.map(|reply| told_beside(&BTreeSet::new(), reply));
        let [Some(kernel), Some(other)] = told else {
            return false;
        };
        let both = i64::from(libc::EPOLLIN | libc::EPOLLOUT);
        let is_same_or_both = |(one, another): (&[i64; 2], &[i64; 2])| {
            one == another
                || one[0] == another[0] && one[1] & both != 0 && one[1] | both == another[1]
        };
        matches!(act, Act::WaitSet { .. })
            && self.blocked[process].is_some()
            && kernel.len() == other.len()
            && kernel.iter().zip(&other).all(is_same_or_both)
    }

    /// Returns whether this process sends to a System V queue on which another process is blocked in msgsnd.
    fn is_one_of_several_senders(&self, process: usize, act: Act) -> bool {
        let Act::SendTyped { key: to, .. } = act else {
            return false;
        };
        let sends = |act| matches!(act, Some(Act::SendTyped { key, .. }) if key == to);
        (0..PROCESSES).any(|other| other != process && sends(self.blocked[other]))
    }

    /// Returns whether this process waits for an epoll set for which another process sleeps in epoll_wait.
    fn is_one_of_several_waiters(&self, process: usize, act: Act) -> bool {
        let set = |process, act| match act {
            Act::WaitSet { set, .. } => self.descriptors.description(process, set),
            _ => None,
        };
        let Some(waited_for) = set(process, act) else {
            return false;
        };
        (0..PROCESSES).any(|other| {
            let waits = self.blocked[other].and_then(|act| set(other, act));
            other != process && waits == Some(waited_for)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::returned;

    const RECEIVE: Act = Act::ReceiveTyped {
        key: 0,
        kind: 0,
        waits: true,
    };
    const SEND: Act = Act::SendTyped {
        key: 0,
        kind: 1,
        waits: true,
    };

    fn failed(errno: Errno) -> Reply {
        Reply::new(Outcome::Failed(errno))
    }

    fn line(text: &str, registered: i64) -> Reply {
        Reply {
            data: text.as_bytes().to_vec(),
            ..returned(60).with([registered])
        }
    }

    #[test]
    fn a_lost_registration_explains_that_a_new_one_succeeds_and_no_other_answer() {
        let notify = Act::Notify {
            fd: 3,
            signal: Some(0),
        };
        let (busy, ok, bad) = (failed(Errno::EBUSY), returned(0), failed(Errno::EBADF));
        let explains = |act, kernel, other| has_lost_its_registration(act, Some(kernel), other);
        assert!(explains(notify, &busy, Some(&ok)));
        assert!(!explains(notify, &ok, Some(&busy)));
        assert!(!explains(notify, &busy, Some(&bad)));
        assert!(!explains(notify, &busy, None));
        assert!(!explains(RECEIVE, &busy, Some(&ok)));
        let none = Act::Notify {
            fd: 3,
            signal: None,
        };
        assert!(!explains(none, &busy, Some(&ok)));
    }

    #[test]
    fn a_lost_registration_explains_a_status_line_without_it_and_no_other_difference() {
        let act = Act::StatusLine { fd: 3 };
        let registered = line("QSIZE:4          NOTIFY:0     SIGNO:40    NOTIFY_PID:", 2);
        let lost = line("QSIZE:4          NOTIFY:0     SIGNO:0     NOTIFY_PID:", 0);
        let explains = |kernel, other| has_lost_its_registration(act, Some(kernel), Some(other));
        assert!(explains(&registered, &lost));
        assert!(!explains(&lost, &registered));
        let another_size = line("QSIZE:8          NOTIFY:0     SIGNO:0     NOTIFY_PID:", 0);
        assert!(!explains(&registered, &another_size));
        let a_rest = line("QSIZE:4          NOTIFY:0     SIGNO:40    NOTIFY_PID:", 0);
        assert!(!explains(&registered, &a_rest));
    }

    /// Returns whether a gap explains these answers to process 0 while process 1 is blocked in the same call.
    fn explains(ledger: &Ledger, act: Act, kernel: Option<&Reply>, other: Option<&Reply>) -> bool {
        ledger.gap(0, act, kernel, other).is_some()
    }

    #[track_caller]
    fn expect_only_overtaking(ledger: &Ledger, act: Act) {
        let (ok, removed) = (returned(0), failed(Errno::EIDRM));
        assert!(explains(ledger, act, Some(&ok), None));
        assert!(!explains(ledger, act, None, Some(&ok)));
        assert!(!explains(ledger, act, Some(&removed), None));
        assert!(!explains(ledger, act, Some(&ok), Some(&removed)));
        assert!(!explains(ledger, act, Some(&ok), Some(&returned(4))));
    }

    #[test]
    fn several_senders_explain_only_that_another_one_is_let_in() {
        let mut ledger = Ledger::default();
        ledger.blocked(0, SEND);
        ledger.blocked(1, SEND);
        expect_only_overtaking(&ledger, SEND);
    }

    #[test]
    fn a_change_of_several_receivers_explains_only_that_another_one_gets_the_message() {
        let mut ledger = Ledger::default();
        ledger.blocked(0, RECEIVE);
        ledger.blocked(1, RECEIVE);
        let (key, bytes) = (0, 16);
        ledger.answered(2, Act::LimitBytes { key, bytes }, &returned(0));
        expect_only_overtaking(&ledger, RECEIVE);
    }

    #[test]
    fn a_stop_of_one_of_several_receivers_explains_only_that_another_one_gets_the_message() {
        let mut ledger = Ledger::default();
        ledger.blocked(0, RECEIVE);
        ledger.blocked(1, RECEIVE);
        ledger.disturbed(0, Act::StopAndContinue);
        expect_only_overtaking(&ledger, RECEIVE);
    }

    #[test]
    fn a_stop_of_one_of_several_callers_explains_only_that_another_one_is_let_go() {
        use crate::lives::act::Waits;
        let mut ledger = Ledger::default();
        let open = Act::Open {
            name: 0,
            flags: libc::O_CREAT,
            depth: 1,
        };
        let descriptor = Reply::new(Outcome::Descriptor(3));
        let receive = Act::Receive {
            fd: 3,
            waits: Waits::Forever,
        };
        for process in 0..2 {
            ledger.answered(process, open, &descriptor);
        }
        for process in 0..2 {
            ledger.blocked(process, receive);
        }
        ledger.disturbed(0, Act::StopAndContinue);
        expect_only_overtaking(&ledger, receive);
        let again = failed(Errno::EAGAIN);
        assert!(explains(&ledger, receive, Some(&again), None));
        assert!(!explains(
            &ledger,
            receive,
            Some(&again),
            Some(&returned(0))
        ));
        assert!(!explains(&ledger, receive, None, Some(&again)));
    }

    #[test]
    fn several_waiters_for_a_set_explain_events_for_one_of_them_and_no_error() {
        let event = returned(1).with([7, 1]);
        let error = failed(Errno::EINTR);
        assert!(is_another_waiters_event(Some(&event), None));
        assert!(is_another_waiters_event(None, Some(&event)));
        assert!(!is_another_waiters_event(Some(&error), None));
        assert!(!is_another_waiters_event(Some(&event), Some(&error)));
        assert!(!is_another_waiters_event(Some(&event), Some(&event)));
    }
}
