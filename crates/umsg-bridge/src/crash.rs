//! Named places at which a test kills the bridge. A release build does not contain these places.

umsg_carry::points! {
    in "UMSG_BRIDGE_CRASH";
    /// A message is leased and not published: the message returns to its place in the queue.
    EXPORT_LEASED;
    /// A message is passed to the connection, and may be in the stream: the stream recognises the next publish.
    EXPORT_PUBLISHED;
    /// A message is in the stream, and is still leased: the message returns to the queue, and the stream recognises the next publish.
    EXPORT_STORED;
    /// The message is acknowledged locally: the export is complete.
    EXPORT_ENDED;
    /// A message has left a queue of the kernel or a ring, and is not in the spool: the message is lost.
    SPOOL_TAKEN;
    /// A message is in the spool: the next bridge exports it.
    SPOOL_STORED;
    /// A message that JetStream refuses is in the dead-letter queue, and is still leased: the message goes to the dead-letter queue once more.
    EXPORT_DEAD;
    /// A message has come from the stream, and is not placed: the server delivers it again.
    IMPORT_PULLED;
    /// Room is reserved, and nothing is committed: the room is free again, and the server delivers the message again.
    IMPORT_RESERVED;
    /// The message is in the queue, which has a record of the message's arrival: the next bridge finds the record and does not place the message
    /// again. A queue without arrival records (System V, ring, kernel) gets the message once more.
    IMPORT_PLACED;
    /// The message is also in the window's file: the next bridge recognises the redelivery.
    IMPORT_NOTED;
    /// The arrival record of the message is removed from the queue, and the window's file has the message: the next bridge recognises the redelivery.
    IMPORT_FORGOTTEN;
    /// The acknowledgement is passed to the connection. If the acknowledgement is lost, the next bridge recognises the redelivery.
    IMPORT_ENDED;
}
