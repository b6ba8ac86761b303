//! A rehearsal receives the messages of a copy of a queue and sends new messages, as a program would. A rehearsal finds defects that the checks do
//! not cover, such as a wrong shape of a search tree. No other process sees the copy: the waiters of the copy are not woken, and its pollers and
//! registrations are removed first, so that no process is notified.

use super::findings::Findings;
use crate::error::Fault;
use std::mem::offset_of;
use umsg_shm::posix_engine;
use umsg_shm::posix_engine::segment;
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;
use umsg_shm::sysv_engine::order::{TypeIndexStore, Want};
use umsg_shm::sysv_engine::{self, Call};

/// The maximum number of messages that the rehearsal receives.
const RECEIVED: usize = 1 << 17;
/// The number of messages that the rehearsal sends, enough for the queue to allocate memory.
const SENT: usize = 100;

const CHECK: &str = "messages can be received and sent";

/// The place that a finding of the rehearsal names in the file of a POSIX queue: the beginning of the receivers' side.
const RECEIVERS: usize = offset_of!(segment::Fixed, receiver);

/// Rehearses with a copy of a POSIX queue or of a ring. The copy can't be used afterwards.
pub(super) fn posix(copy: segment::Segment, findings: &mut Findings) {
    copy.fixed().forget_watchers();
    let (engine, me) = (posix_engine::Engine::new(copy.share()), thread::current());
    let mut buffer = vec![0; copy.layout().message_size];
    let mut refused = None;
    for _ in 0..RECEIVED {
        match engine.try_receive(me, &mut buffer, Deadline::Passed) {
            Ok(_) => {}
            Err(end) => {
                refused = Some(end);
                break;
            }
        }
    }
    let short = copy.layout().message_size.min(copy.layout().inline());
    for n in 0..SENT {
        if refused == Some(posix_engine::Refused::Fault(Fault::Damaged)) {
            break;
        }
        let sent = engine.try_send(me, &buffer[..n % (short + 1)], n * 300, Deadline::Passed);
        refused = sent.err().or(refused);
    }
    if refused == Some(posix_engine::Refused::Fault(Fault::Damaged)) {
        findings.add_at(CHECK, RECEIVERS as u64, "no error", "EBADMSG");
    }
}

/// Rehearses with a copy of a System V queue.
pub(super) fn typed(copy: sysv_engine::segment::Segment, findings: &mut Findings) {
    let fixed = copy.fixed();
    fixed.rights.watched().set(0);
    let base = std::ptr::from_ref(fixed).addr();
    let at = std::ptr::from_ref(copy.kinds()).addr() - base;
    let version = fixed.rights.version();
    let mut buffer = vec![0; copy.layout().msgmax];
    let engine = sysv_engine::Engine::new(copy);
    let mut call = Call::new(thread::current(), Deadline::Passed);
    call.set_rights(version);
    let wants = [
        Want::Any,
        Want::Lowest(i64::MAX),
        Want::Except(1),
        Want::Exactly(1),
    ];
    let (mut in_vain, mut damaged) = (0, false);
    for n in 0..RECEIVED {
        match engine.receive(&call, wants[n % wants.len()], &mut buffer, true) {
            Ok(_) => in_vain = 0,
            Err(refused) => {
                damaged |= refused == sysv_engine::Refused::Fault(Fault::Damaged);
                in_vain += 1;
            }
        }
        if damaged || in_vain == wants.len() {
            break;
        }
    }
    let short = buffer.len().min(sysv_engine::segment::Layout::inline());
    for n in 0..SENT {
        let sent = engine.try_send(&call, n as i64 % 20 + 1, &buffer[..n % (short + 1)]);
        damaged |= sent == Err(sysv_engine::Refused::Fault(Fault::Damaged));
    }
    if damaged {
        findings.add_at(CHECK, at as u64, "no error", "EBADMSG");
    }
}
