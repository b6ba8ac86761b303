//! The named steps of the relay at which tests kill it. Each comment says where the message is at that step, and where the message goes after the
//! relay is killed.

umsg_carry::points! {
    in "UMSG_RELAY_CRASH";
    /// A message waits in the kernel's queue, and room for it is reserved in umsg's queue. After a kill, the room is free again, and the message
    /// still waits.
    IN_RESERVED;
    /// A POSIX message, or a System V message without bytes, has left the kernel's queue, but is not yet committed to umsg's queue. After a kill, the
    /// message is lost.
    IN_TAKEN;
    /// The message of a System V queue is copied, but not yet placed in umsg's queue. After a kill, it still waits in the kernel's queue.
    IN_COPIED;
    /// The message is in umsg's queue. A POSIX message has left the kernel's queue. A System V message is still in the kernel's queue, so after a
    /// kill the next relay places it in umsg's queue a second time.
    IN_PLACED;
    /// The message of a System V queue has left the kernel's queue, and is in umsg's queue only.
    IN_REMOVED;
    /// The message of umsg's queue is leased, but not yet sent. After a kill, it returns to its place in umsg's queue.
    OUT_LEASED;
    /// The message is sent to the kernel's queue, but its lease is not yet acknowledged. After a kill, it returns to its place in umsg's queue, and
    /// is sent a second time.
    OUT_SENT;
    /// The message is acknowledged, and is in the kernel's queue only.
    OUT_ENDED;
    /// The message is in the dead-letter queue, but has not left its source queue. After a kill, it goes to the dead-letter queue a second time.
    DEAD_STORED;
}
