//! Named places at which a process may be killed in a test.
//!
//! `crash_point!(NAME)` marks every step of an operation after which a death leaves an incomplete change. A release build has no code for the points.
//! With the feature `crash-points`, a process that has armed a point gets a real SIGKILL at that point. Under loom, a model thread dies at the point
//! by unwinding, and the model marks the thread's locks as the kernel would.
//!
//! A waiter sleeps in slices: at the end of each slice, it checks by itself whether its wait is over.

/// Declares the points, each with its name and the fate of an operation that dies there.
macro_rules! points {
    ($($(#[doc = $what:literal])+ $name:ident;)+) => {
        /// A place in the code at which a test may kill the process.
        #[allow(non_camel_case_types, missing_docs, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Point {
            $($(#[doc = $what])+ $name,)+
        }

        /// Every point: its name, and the fate of an operation that dies at the point.
        pub const POINTS: &[(Point, &str, &str)] = &[
            $((Point::$name, stringify!($name), concat!($($what),+)),)+
        ];
    };
}

points! {
    /// A slot is taken and filled; nothing is published: the message was never sent.
    SEND_FILLED;
    /// The word that announces another priority is stored, and the message is not: the message was never sent.
    SEND_RUN_CHANGED;
    /// The stamp is stored, and the cursor is not: the message was sent, and the repair moves the cursor.
    SEND_PUBLISHED;
    /// The cursor is stored, and the lock is held: the message was sent.
    SEND_COUNTED;
    /// The lock is dropped, and waiting receivers were not served: they find the message at their next slice.
    SEND_UNSERVED;
    /// The end of the batch is noted, and no message is filled: no message was sent.
    BATCH_NOTED;
    /// All messages are filled, and all except the first are stamped: no message was sent, and the repair removes the stamps.
    BATCH_STAMPED;
    /// The first message's stamp is stored, and the cursor is not moved: all messages were sent, and the repair moves the cursor.
    BATCH_PUBLISHED;
    /// The cursor is one short of the end of the batch: all messages were sent, and the repair moves the cursor.
    BATCH_COUNTED;
    /// The stamps of a batch that can't be sent are removed: no message was sent.
    BATCH_TAKEN_BACK;
    /// The turn of a blocked batch has come, and its thread was not woken: the thread checks by itself at its next slice.
    BATCH_TURN;
    /// The payload's block is split off, and the slot does not name it yet: the block returns to the arena.
    ARENA_SPLIT;
    /// The slot names its block, so the block stays with the slot.
    ARENA_NAMED;
    /// The message is copied out and nothing is changed, so the message stays in the queue.
    RECEIVE_COPIED;
    /// A free slot's index is written after the free slots of the ring, and is not published: the repair frees the slot.
    RECEIVE_RETURNED;
    /// The message is taken from the ring, and no list has its slot: the message was received, and the repair frees the slot.
    RECEIVE_TAKEN;
    /// The message is taken from the store, and no list has its slot: the message was received, and the repair frees the slot.
    RECEIVE_UNSTORED;
    /// The delivery of a message from the store is counted for the turns of lower priorities: the message was received, and the repair frees the
    /// slot.
    TURN_COUNTED;
    /// Several messages are taken, and their slots are written after the free slots: the messages were received, and the repair frees the slots.
    RECEIVE_BATCH_TAKEN;
    /// The slot is free, and the counters are not updated: the repair counts again.
    RECEIVE_FREED;
    /// A blocked sender's message was admitted, and the sender was not woken: the sender checks by itself at its next slice.
    RECEIVE_ADMITTED;
    /// The slot is marked as stored, and is in no list: the repair rebuilds the lists.
    DRAIN_MARKED;
    /// The slot is in its list and still in the ring: the repair treats it as a slot of the ring.
    DRAIN_LINKED;
    /// A node is filled and in no list: the node is free again.
    WAIT_NODE_FILLED;
    /// The node is in its list, and the flag for senders is not set: a message of a blocked sender was not sent, unless a later call admits it.
    WAIT_LISTED;
    /// The lock is dropped, and the thread has not yet named its node to the kernel: the start time of the thread shows that it is dead.
    WAIT_UNNAMED;
    /// The thread has named the node to the kernel, so the kernel marks the node at the thread's death.
    WAIT_NAMED;
    /// The waiter was woken and has not checked its node.
    WAIT_WOKEN;
    /// A message is noted in a waiter's node but not offered, so the message is still in the queue.
    SERVE_NOTED;
    /// A message is offered, and also still in the queue: the waiter owns the message.
    SERVE_OFFERED;
    /// A message is offered and has left the queue; the waiter was not woken.
    SERVE_TAKEN;
    /// A sender's message is accepted and not yet in the store: the repair stores it.
    ADMIT_ACCEPTED;
    /// A record says that the message is leased, and the message is also still in the queue: the lease owns the message.
    LEASE_HELD;
    /// The message is leased and has left the queue, and the counts are not updated: the repair counts again.
    LEASE_TAKEN;
    /// An event of a message's trace is written and not counted: the next event overwrites it.
    TRACE_WRITTEN;
    /// An event of a message's trace is counted, and the lease or return that it records has not taken effect: readers skip this event, and the next
    /// event of this step replaces it.
    TRACE_NOTED;
    /// A lease is acknowledged, and no list has its slot: the repair frees the slot.
    LEASE_ENDED;
    /// A leased message is marked as stored, but its record is still leased: the record decides, and the message returns to the queue, because the
    /// holder of the lease is dead.
    RETURN_MARKED;
    /// A leased message is back in the store, and receivers that wait for it were not served.
    RETURN_ENDED;
    /// A message is set aside, and may also still be in the queue or be counted as leased: the repair corrects the queue and the counts.
    ASIDE_HELD;
    /// A message that is set aside is being sent to the dead-letter queue: another process sends it again.
    MOVE_BEGUN;
    /// The copy of a moved message is written in the other queue, which does not have the message: another process sends it again.
    ARRIVE_WRITTEN;
    /// A moved message has arrived, and is not in the store: the repair stores it, and no process sends it again.
    ARRIVE_NOTED;
    /// A moved message has arrived and is marked as stored, but is in no list: the repair stores it, and no process sends it again.
    ARRIVE_MARKED;
    /// A moved message has arrived, receivers that wait for it were not served, and its source still has it: the next mover removes it from the
    /// source.
    ARRIVE_ENDED;
    /// The record of a message that has arrived in another queue is removed, and no list has the message's slot: the repair frees the slot.
    DEPART_ENDED;
    /// A message has left its source, and its arrival is still recorded: the next mover from this source ends the record.
    MOVE_ENDED;
    /// A record holds a dead letter that is to be sent back, and the message is also still in the queue: the record decides.
    REDRIVE_HELD;
    /// A dead letter is held to be sent back: the next redrive puts it back or completes the move.
    REDRIVE_BEGUN;
    /// A dead letter that was not sent back is marked as stored, and its record still says that it is being sent: the next redrive puts it back.
    REDRIVE_RETURNED;
    /// A message is delayed, and the counts are not updated: the repair counts again.
    DELAY_HELD;
    /// A delayed message is marked as stored at its delivery time, and its record still says that it is delayed: the record decides, and the next
    /// receiver delivers the message.
    DUE_MARKED;
    /// The records of several messages whose delivery time has come are linked in their order, and no message is delivered yet: all messages are
    /// still delayed.
    DUE_SORTED;
    /// A slot for a reservation was taken from the free slots: the repair frees it.
    RESERVE_SLOT_TAKEN;
    /// A slot is reserved, and the counts are not updated: the repair counts again, and frees the slot, because the holder of the reservation is
    /// dead.
    RESERVE_HELD;
    /// A reserved message is marked as stored: it is sent, and the repair ends the reservation.
    COMMIT_MARKED;
    /// A reserved message is in the store, and receivers that wait for it were not served.
    COMMIT_ENDED;
    /// A reservation has ended, and no list has its slot: the repair frees the slot.
    CANCEL_ENDED;
    /// A slot for a blocked sender's message was taken from the free slots: the repair frees it.
    PARK_SLOT_TAKEN;
    /// The blocked sender's message is written, and no node names it: the message was never sent, and the repair frees the slot.
    PARK_FILLED;
    /// A thread is now the first in line of the threads that lend a lock's owner their priority: if this thread dies, the kernel or the next thread
    /// in line replaces it.
    INHERIT_FIRST;
    /// The first of the threads that lend a lock's owner their priority has stored the owner's id, and does not wait yet: the owner's next unlock
    /// removes the id.
    INHERIT_NAMED;
    /// The owner has unlocked the lock and woken only the first of the threads that lend it their priority: at the owner's death, the kernel wakes a
    /// sleeper if the lock is free.
    INHERIT_HANDED_ON;
    /// The sender lock is lent, and no data is changed: the next owner of the receiver lock ends the loan.
    GROW_LENT;
    /// The entries of the ring are doubled, and its size is not changed: no process reads the new entries until the next growth.
    GROW_COPIED;
    /// The ring's size is doubled: the ring has more entries than slots, which needs no repair.
    GROW_DOUBLED;
    /// New slots are written after the free slots and not counted: the next growth writes them again.
    GROW_WRITTEN;
    /// New slots are counted and not free: the repair frees them.
    GROW_COUNTED;
    /// A process has announced a change of a doorbell, and has not made the change: the repair makes the doorbell show the current level.
    BELL_BEGUN;
    /// A doorbell was rung, and the segment does not record that: the repair makes the doorbell show the current level.
    BELL_RUNG;
    /// A doorbell shows a level that the operation has not reached yet: a poller finds that the level is wrong, and repairs the doorbell.
    BELL_FORETOLD;
    /// A doorbell shows the current level, and the lock is held: the message was sent or received.
    BELL_SETTLED;
    /// A message is sent, the ring of the doorbell is deferred, and the locks are released: the next call on the queue rings the doorbell.
    BELL_DEFERRED;
    /// A deferred ring is done, and the segment does not record it: the next call on the queue finds the packet in the FIFO.
    BELL_DEFERRED_RUNG;
    /// A doorbell is made, and no segment names it: the next process that makes a doorbell removes the unused one.
    BELL_MADE;
    /// The segment names a doorbell that no process rings: the next process that polls uses it.
    BELL_NAMED;
    /// No process polls a doorbell that is to be rung: the sender that rings the doorbell notices that no process polls.
    BELL_WATCHED;
    /// A doorbell that no process polls is no longer rung, and the segment still names it: the next process that polls uses it.
    BELL_FORGOTTEN;
    /// A doorbell that no process polls is in no segment, and still has its name: the next process that makes a doorbell removes the unused one.
    BELL_UNNAMED;
    /// Helpers were called and still sleep: they check after a slice, and find the lock orphaned.
    BELL_CALLED;
    /// The queue is closed for sending, and waiters were not woken: they check at their next slice.
    SEND_CLOSED_SET;
    /// The queue is open for sending again, and the lock is held: the queue stays open.
    SEND_REOPENED;
    /// A record names a producer, and the queue's count of producers is unchanged: the dead process is not counted.
    PRODUCER_NAMED;
    /// A process is counted as a producer, and the lock is held: the next receiver finds the process dead.
    PRODUCER_COUNTED;
    /// The last producer has ended, and the queue is not yet closed for sending: the next receiver closes it for sending.
    PRODUCER_ENDED;
    /// The wake word is armed, and its receiver does not wait yet: the ring has lost its owner, and a sender's wake-up reaches no receiver.
    RING_ARMED;
    /// A sender has sent a message and has not yet woken the receiver: the next sender wakes it, or the receiver checks at its next slice.
    RING_DUE;
    /// The wake word is silent, and its receiver was not woken: the message was sent, and a sleeper checks at its next slice.
    RING_SILENCED;
    /// The receiver's descriptor is readable, and the wake word is still armed: the next sender rings once more.
    RING_PULLED;
    /// A descriptor was passed, and its message was not sent: the receiver keeps the descriptor among the last thousand that have arrived.
    RING_PASSED;
    /// A dead owner's doorbell is removed, and its ring still has its name: the next process that makes a ring of that name removes the ring, too.
    RING_CLEARED;
    /// A ring has its name and no doorbell: the ring has a dead owner.
    RING_NAMED;
    /// A ring has its doorbell, and the call that makes the ring has not returned: the ring has a dead owner.
    RING_MADE;
    /// The ring is enabled, and the owner's call has not returned: the ring has a dead owner.
    RING_ENABLED;
    /// Senders are refused, and waiting senders were not woken: they check at their next slice.
    RING_CLOSED;
    /// A closed ring has lost its doorbell and still has its name: the next process that makes a ring of that name removes the closed ring.
    RING_UNHUNG;
    /// The file of a transient queue is found and not locked: the queue is removed when no other process has it open.
    OPEN_FOUND;
    /// A queue's file is made, without contents and without a name: the file vanishes.
    CREATE_EMPTY;
    /// A queue's file, which has no name, has a symbolic link that names its dead-letter queue: the file vanishes, and a sweep removes the link.
    CREATE_LABELLED;
    /// A queue's file has its contents and no name: the file vanishes.
    CREATE_UNNAMED;
    /// The file of a transient queue is in a directory that does not have the queue's name yet: the next process that makes a transient queue removes
    /// the file.
    CREATE_HOUSED;
    /// The file has its name: the queue exists.
    CREATE_NAMED;
    /// A queue is removed, its segment is not cleared, and its file has the name: the next process that wants the name removes the file.
    VACATE_REMOVED;
    /// A removed queue's segment is cleared, and its file has the name: the next process that wants the name removes the file.
    VACATE_CLEARED;
    /// A removed queue's segment is filled in for the next queue, which does not exist yet: the next process that wants the name removes the file.
    REVIVE_FILLED;
    /// A removed queue's creator can't use its segment again, and the file has the name: the next process that wants the name removes the file.
    TAKE_GONE;
    /// A transient queue has no users, and the last user has not removed it: the next process that finds the queue removes it.
    TRANSIENT_LOCKED;
    /// A transient queue is removed, and its directory exists: a new queue of its name replaces the directory.
    TRANSIENT_EMPTIED;
    /// The directory of another IPC namespace is made, and only its user may use it yet: the next process of that user uses it.
    IPC_DIRECTORY_MADE;
    /// The directory of an ended IPC namespace has lost its name: a sweep removes it.
    IPC_DIRECTORY_GOING;
    /// A System V queue's file is made, without contents and without a name: the file vanishes.
    MSGGET_EMPTY;
    /// A System V queue's file has its contents and no name: the file vanishes.
    MSGGET_FILLED;
    /// The file has its index and no key symlink, so it is not yet a queue. A later process of the file's user, or of root, that needs the index
    /// removes the file.
    MSGGET_INDEXED;
    /// The identifier that the namespace's owner has requested, if any, is used up: no queue gets that identifier.
    MSGGET_ID_TAKEN;
    /// An identifier is recorded as used, and no queue has it: the file is removed like a file that has only its index.
    MSGGET_NUMBERED;
    /// The file has its key symlink: the queue exists.
    MSGGET_LABELLED;
    /// A queue's file has the old and the new rights of a change, and its header has the old rights: the queue is unchanged.
    MSGCTL_HANDED_OVER;
    /// A queue's file has the old and the new rights of a change, and its header has the new rights: the queue is changed.
    MSGCTL_APPLIED;
    /// A removed queue has lost its key symlink and has its index: the next process that needs the index removes the file.
    MSGCTL_UNLABELLED;
    /// A registration for a notification is written and not armed: the process is not registered.
    NOTICE_FILLED;
    /// The queue asks senders to report messages, but the registration is not valid yet: the repair withdraws the request.
    NOTICE_DECIDED;
    /// A process died after its registration and before it released the lock: the registration belongs to the dead process, and the next process that
    /// registers removes it.
    NOTICE_ARMED;
    /// A registration is withdrawn, and senders are not told: the next sender notices the withdrawal.
    NOTICE_WITHDRAWN;
    /// The sender that made the queue non-empty is noted, and the registration is not fired: the repair fires it.
    NOTICE_NOTED;
    /// A registration of another process is being fired, and that process has not raised the signal: the repair has the process raise it.
    NOTICE_RAISING;
    /// The signal of another process is raised, and its registration is not ended: the repair has that process raise the signal again.
    NOTICE_SIGNALLED;
    /// A registration is fired, and the queue still shows it as armed: the repair corrects this, and the registered process checks by itself.
    NOTICE_FIRED;
    /// A registration is fired, and its process was not woken: the process checks by itself at its next slice.
    NOTICE_UNTOLD;
    /// A process has raised its signal, and has not recorded the signal: the sender that fired the registration finds that the process is dead.
    NOTICE_RAISED;
    /// The queue is removed, and its segment is kept and not cleared yet: the next process that needs the index or the key removes the names of the
    /// segment.
    MSG_VACATED;
    /// The queue is removed, and its segment is kept and cleared: the next process that needs the index or the key removes the names of the segment.
    MSG_EMPTIED;
    /// A kept segment is taken from the process that keeps it, and its names still exist: the next process that needs the index or the key removes
    /// the names.
    MSG_TAKEN;
    /// A kept segment is filled in for the next queue, which does not exist yet: the next process that needs the index or the key removes the names
    /// of the segment.
    MSG_REFILLED;
    /// The next queue of a kept segment exists, and its lock has a dead owner: the next owner of the lock repairs it.
    MSG_REVIVED;
    /// A repair has found out which slots are in use: the next owner of the lock repairs again.
    REPAIR_SURVEYED;
    /// A repair has emptied the lists of the store: the next owner of the lock repairs again.
    REPAIR_CLEARED;
    /// A repair has rebuilt the store: the next owner of the lock repairs again.
    REPAIR_STORED;
    /// A repair has returned slots that were in no use: the next owner of the lock repairs again.
    REPAIR_FREED;
    /// A queue is about to be rebuilt, by `umsg doctor --repair`: it is as corrupted as before, and marked as being rebuilt.
    SALVAGE_BEGUN;
    /// No lock or waiter refers to corrupted contents any more: the queue needs another salvage, as after each of the following points.
    SALVAGE_SURVEYED;
    /// Overlapping blocks are dropped; a slot that had such a block is still marked as having a message.
    SALVAGE_BLOCKS_LAID;
    /// A message of the ring is marked as stored, and the later messages of the ring are not.
    SALVAGE_MARKED;
    /// A message has its new number, and the messages after it have their old numbers.
    SALVAGE_RENUMBERED;
    /// The messages that are kept have their places in the order; all other data are still corrupted.
    SALVAGE_NUMBERED;
    /// The messages of the ring are in the store, and the ring is being emptied.
    SALVAGE_EMPTIED;
    /// Everything is rebuilt, and the queue is still marked as being rebuilt.
    SALVAGE_DONE;
    /// A message is written in a slot that is in no list: the message was never sent, and the repair frees the slot.
    MSG_FILLED;
    /// A lock that was marked as counted is taken, and the namespace's count of changes has not grown: nothing was changed.
    MSG_UNCOUNTED;
    /// The namespace's count of changes shows that counts may change: nothing was changed.
    MSG_ANNOUNCED;
    /// The namespace's count of changes has grown, and its log does not show the queue: nothing was changed.
    MSG_NUMBERED;
    /// A process that adds up counts has taken the lock: nothing was changed.
    MSG_COUNTING;
    /// The message's number is stored, but the message is in no list and was not offered to a receiver: it is sent, and the repair puts it into the
    /// order.
    MSG_SENT;
    /// The message is in the order, and the counts are not updated: the repair counts again.
    MSG_LINKED;
    /// Some messages of a batch are filled and have numbers beyond the last valid number: no message was sent.
    MSG_BATCH_FILLED;
    /// The last number of a batch is stored: all messages are sent, and the repair puts them into the order.
    MSG_BATCH_SENT;
    /// A blocked sender's message is written, and no waiter record names it: the message was never sent, and the repair frees the slot.
    MSG_PARKED;
    /// A waiter record is filled and in no list: the record is free again.
    MSG_CLAIMED;
    /// The waiter record is in its list, and the lock is held. The thread has not yet named its node to the kernel: the start time of the thread
    /// proves its death.
    MSG_LISTED;
    /// The thread has named the node to the kernel, so the kernel marks the node at the thread's death.
    MSG_NAMED;
    /// The waiter continues and has not checked its node: an offered message goes back, and an admitted message is sent.
    MSG_WOKEN;
    /// A message is noted in a waiter record and not offered: the message is still in the queue.
    MSG_NOTED;
    /// A message is offered, and no list or count shows it: the waiter owns the message.
    MSG_OFFERED;
    /// The waiter has copied the message and not accepted it: the message goes back to the queue.
    MSG_TAKEN_UP;
    /// No list has the slot of an accepted message: the repair frees it.
    MSG_REAPED;
    /// An offer was withdrawn, and the message is in no list: the repair puts it into the order.
    MSG_PUT_BACK;
    /// A blocked sender's message is accepted and has no number: the repair sends it.
    MSG_ADMITTED;
    /// The message is copied out and nothing is changed, so the message stays in the queue.
    MSG_COPIED;
    /// The cell says that the message has ended, and the message is still in lists: the message is received, and the repair rebuilds the lists.
    MSG_ENDED;
    /// A record says that the message is leased, and the message is also in the order: the lease owns the message.
    MSG_LEASED;
    /// The message of a lease has ended, and the record of the lease has not: the repair ends the record.
    MSG_ACKNOWLEDGED;
    /// A leased message is marked as returned, but its record is still leased: the record decides, and the message returns to the queue, because the
    /// holder of the lease is dead.
    MSG_RETURNED;
    /// The record of a delayed message is stored, and its cell is not queued: the message was never sent, and the repair frees the record.
    MSG_DELAY_NOTED;
    /// The message is delayed, and the counts do not show it: the repair counts the message.
    MSG_DELAYED;
    /// A delayed message is marked as queued at its delivery time, and its record still says that it is delayed: a later call delivers the message.
    MSG_DUE;
    /// The queue is closed for sending, and its waiters were not woken: they check the queue at the end of their slice.
    MSG_CLOSED;
    /// The queue is open for sending again, and the lock is held: the queue stays open.
    MSG_REOPENED;
    /// Rights have changed, and waiters were not woken: they notice the change at their next check.
    MSG_CHANGED;
    /// The queue is removed, and waiters were not woken: they notice the removal at their next slice.
    MSG_REMOVED;
    /// A repair has found out which slots are in use: the next owner of the lock repairs again.
    MSG_SURVEYED;
    /// A repair has emptied the order: the next owner of the lock repairs again.
    MSG_CLEARED;
    /// A repair has rebuilt the order: the next owner of the lock repairs again.
    MSG_ORDERED;
}

/// Kills the process at this point if a test requests it. A release build has no code for the point.
#[cfg(any(loom, feature = "crash-points"))]
#[doc(hidden)]
#[macro_export]
macro_rules! crash_point {
    ($name:ident) => {
        $crate::crash::reached($crate::crash::Point::$name);
    };
}

/// Only checks that the point exists: this build has no crash points.
#[cfg(not(any(loom, feature = "crash-points")))]
#[doc(hidden)]
#[macro_export]
macro_rules! crash_point {
    ($name:ident) => {
        const _: $crate::crash::Point = $crate::crash::Point::$name;
    };
}

pub use crash_point;

#[cfg(all(feature = "crash-points", not(loom)))]
mod armed {
    use super::{POINTS, Point};
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use std::sync::{Mutex, PoisonError};

    /// The number of the armed point plus one; 0 if no point is armed.
    static ARMED: AtomicU32 = AtomicU32::new(0);
    /// The number of passes of the armed point until the process dies. The last pass kills the process.
    static PASSES: AtomicU32 = AtomicU32::new(0);
    /// The function to call at the armed point, in place of the death.
    static FUSE: Mutex<Option<fn()>> = Mutex::new(None);
    /// The points that this process has passed, one bit each.
    static REACHED: [AtomicU64; POINTS.len().div_ceil(64)] =
        [const { AtomicU64::new(0) }; POINTS.len().div_ceil(64)];

    /// Adds this number of nanoseconds to each reading of CLOCK_REALTIME in this process, because a test can't set the machine's clock.
    pub fn step_realtime(nanoseconds: i64) {
        crate::sys::clock::step::set(nanoseconds);
    }

    /// Arms the named point: the process is killed when it passes the point for the `nth` time (1 is the next).
    ///
    /// # Panics
    /// If no point has that name.
    pub fn arm(name: &str, nth: u32) {
        set(name, nth, None);
    }

    /// Arms the named point: when the process next passes the point, this function is called. The function may arrange a later death.
    ///
    /// # Panics
    /// If no point has that name.
    pub fn arm_fuse(name: &str, fuse: fn()) {
        set(name, 1, Some(fuse));
    }

    fn set(name: &str, nth: u32, fuse: Option<fn()>) {
        let (point, _, _) = POINTS
            .iter()
            .find(|(_, known, _)| *known == name)
            .expect("a point of this name");
        *FUSE.lock().unwrap_or_else(PoisonError::into_inner) = fuse;
        PASSES.store(nth, Ordering::SeqCst);
        ARMED.store(*point as u32 + 1, Ordering::SeqCst);
    }

    /// Forgets which points this process has passed.
    pub fn forget() {
        for word in &REACHED {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Returns the points that this process has passed: a bit for each point, 64 in a word.
    pub fn passed(word: usize) -> u64 {
        REACHED[word].load(Ordering::SeqCst)
    }

    /// Notes that the process passes this point, and kills the process or calls the function if the point is armed.
    pub fn reached(point: Point) {
        REACHED[point as usize / 64].fetch_or(1 << (point as u32 % 64), Ordering::SeqCst);
        if ARMED.load(Ordering::SeqCst) == point as u32 + 1
            && PASSES.fetch_sub(1, Ordering::SeqCst) == 1
        {
            // The lock of `FUSE` is released before the function is called, because the function may arm another point.
            let fuse = *FUSE.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(fuse) = fuse {
                return fuse();
            }
            use rustix::process::{Signal, getpid, kill_process};
            let _ = kill_process(getpid(), Signal::KILL);
            loop {
                std::hint::spin_loop();
            }
        }
    }
}
#[cfg(all(feature = "crash-points", not(loom)))]
pub use armed::{arm, arm_fuse, forget, passed, reached, step_realtime};

#[cfg(loom)]
pub(crate) use crate::model::crash::reached;
