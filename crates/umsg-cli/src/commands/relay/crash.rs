//! The named steps of the relay at which tests kill it. Each comment says where the message is, and what becomes of it after the relay is killed
//! there.

umsg_carry::points! {
    in "UMSG_RELAY_CRASH";
    /// A message waits in the kernel's queue, and room for it is reserved: the room is free again, and the message waits.
    IN_RESERVED;
    /// A POSIX message, or a System V message without bytes, has left the kernel's queue, and is not committed to umsg's queue: the message is lost.
    IN_TAKEN;
    /// The message of a System V queue is copied, and not placed in umsg's queue: it waits in the kernel's queue.
    IN_COPIED;
    /// The message is in umsg's queue. A POSIX message has arrived. A System V message is still in the kernel's queue, too: it is placed in umsg's
    /// queue once more.
    IN_PLACED;
    /// The message of a System V queue has left the kernel's queue: it has arrived.
    IN_REMOVED;
    /// The message of umsg's queue is leased, and not sent: it returns to its place in umsg's queue.
    OUT_LEASED;
    /// The message is sent to the kernel's queue, and its lease lasts: it returns to its place in umsg's queue, and is sent once more.
    OUT_SENT;
    /// The message is acknowledged: it has arrived.
    OUT_ENDED;
    /// The message is in the dead-letter queue, and has not left its source: it goes to the dead-letter queue once more.
    DEAD_STORED;
}
