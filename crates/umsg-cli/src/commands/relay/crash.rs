//! The named steps of a relay, at which tests kill it.

umsg_carry::points! {
    in "UMSG_RELAY_CRASH";
    /// A message waits in the kernel's queue, and room for it is reserved: the room is free again, and the message waits.
    IN_RESERVED;
    /// The message has left the kernel's POSIX queue, and is not committed: the message is lost.
    IN_TAKEN;
    /// The message of a System V queue is copied, and not placed: it waits in the kernel's queue.
    IN_COPIED;
    /// The message is in umsg's queue. A POSIX message has arrived. A System V message is in the kernel's queue, too: it is placed once more.
    IN_PLACED;
    /// The message of a System V queue has left the kernel's queue: it has arrived.
    IN_REMOVED;
    /// The message of umsg's queue is leased, and not sent: it returns to its place.
    OUT_LEASED;
    /// The message is in the kernel's queue, and its lease lasts: it returns to its place, and is sent once more.
    OUT_SENT;
    /// The message is acknowledged: it has arrived.
    OUT_ENDED;
    /// The message is in the dead-letter queue, and has not left its source: it comes there once more.
    DEAD_STORED;
}
