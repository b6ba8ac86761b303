//! Moving a message from one queue to another, exactly once: the steps of `umsg-shm`'s `posix_engine/transfer.rs` in the order that makes them safe.

use super::queue::Queue;
use crate::error::SendError;
use std::time::Duration;
use umsg_shm::leases::InPlace;
use umsg_shm::posix_engine::segment::{History, Trace};
use umsg_shm::posix_engine::{Arrival, Engine, LeaseHandle, Origin, Refused};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::random::mix;
use umsg_shm::sys::thread;

/// The time for which a failed [`send_copy`] tries to cancel its reservation in the destination queue, if a process is stopped inside that queue.
const LONGEST: Duration = Duration::from_secs(1);

/// Returns the number that identifies a queue in the records of moved messages: a hash of the file's inode number and the time of the queue's
/// creation.
pub(super) fn number(inode: u64, engine: &Engine) -> u64 {
    mix(mix(inode) ^ engine.segment().fixed().header.created_at())
}

/// Sends a copy of a held message to another queue. If the call succeeds, the message has arrived; if it fails, the message has not arrived.
///
/// The call moves none of the destination queue's own messages to a dead-letter queue: each of the two queues may be the dead-letter queue of the
/// other.
///
/// # If the process dies
/// If the process dies during the call, the next mover finds out with [`Engine::has_arrived`] whether the message has arrived.
pub(super) fn send_copy(
    from: &Engine,
    handle: &LeaseHandle,
    to: &Queue,
    (origin, history, trace): (Origin, &History, Option<&Trace>),
    patience: Duration,
) -> Result<(), SendError> {
    let mut data = vec![0; handle.len];
    InPlace::new(from.place(handle)?, handle.len).read_at(0, &mut data);
    to.check_to_send(data.len())?;
    let (me, engine) = (thread::current(), &to.engine);
    let room = engine
        .try_reserve(me, data.len(), Deadline::after(patience))
        .map_err(refusal)?;
    let sent = engine
        .place(&room)
        .map_err(Refused::from)
        .and_then(|place| {
            InPlace::new(place, data.len()).write_at(0, &data);
            let by = Deadline::after(patience);
            let arrival = Arrival {
                origin,
                history: Some(history),
                trace,
                sent_at: None,
            };
            engine.arrive(me, &room, handle.key, &arrival, by)
        });
    match sent {
        Ok(Some(_)) => Ok(()),
        // The message has arrived, and a later step failed.
        _ if engine.has_arrived(me, origin, Deadline::after(patience)) == Ok(true) => Ok(()),
        Ok(None) => Err(SendError::Full),
        Err(refused) => {
            let _ = engine.cancel(me, &room, Deadline::after(LONGEST));
            Err(refusal(refused))
        }
    }
}

/// Ends the records of messages that have arrived in `to` and that `from` no longer records as departing, because their movers have died.
pub(super) fn forget_left_arrivals(
    from: &Engine,
    number: u64,
    to: &Queue,
    patience: Duration,
) -> Result<(), Refused> {
    let me = thread::current();
    for ticket in to.engine.arrivals(me, number, Deadline::after(patience))? {
        // The source no longer records this ticket as departing, and never uses a ticket again. So the arrival needs no record any more.
        if !from.is_departing(me, ticket, Deadline::after(patience))? {
            let origin = Origin {
                queue: number,
                ticket,
            };
            to.engine
                .forget_arrival(me, origin, Deadline::after(patience))?;
        }
    }
    Ok(())
}

fn refusal(refused: Refused) -> SendError {
    match refused {
        Refused::NotNow | Refused::Own(_) => SendError::Full,
        Refused::TimedOut => SendError::TimedOut,
        Refused::Interrupted => SendError::Interrupted,
        Refused::Closed => SendError::Closed,
        Refused::Fault(fault) => fault.into(),
    }
}
