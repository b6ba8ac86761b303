//! The file /proc/sysvipc/msg, as the kernel would write it for umsg's queues.

use std::fmt::Write;

use crate::Namespace;
use crate::sysv::{self, Entry, OpenError, raw};

/// The path of the kernel's file.
pub const PATH: &str = "/proc/sysvipc/msg";

/// The maximum number of queues in a namespace; an identifier modulo this number is the queue's index.
const INDICES: i32 = 32_768;

/// Returns the table of all System V queues of a namespace.
///
/// ```
/// use umsg::kernel_files::sysv_table;
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// let _queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(7)?;
/// assert_eq!(sysv_table::text(&namespace)?.lines().count(), 2, "the heading, and a queue");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The queues can't be listed.
pub fn text(namespace: &Namespace) -> Result<String, OpenError> {
    let mut entries = sysv::list(namespace)?;
    entries.sort_unstable_by_key(|entry| entry.id % INDICES);
    Ok(table(&entries))
}

/// Returns the text of the table. Source: `sysvipc_msg_proc_show` in ipc/msg.c of the kernel.
fn table(entries: &[Entry]) -> String {
    let mut text = String::from(
        "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n",
    );
    for entry in entries {
        let [sent, received, changed] =
            [entry.last_send, entry.last_receive, entry.changed].map(raw::seconds);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:10} {:10}  {:4o}  {:10} {:10} {:5} {:5} {:5} {:5} {:5} {:5} {sent:10} {received:10} {changed:10}",
            entry.key,
            entry.id,
            entry.mode,
            entry.bytes,
            entry.messages,
            entry.last_sender,
            entry.last_receiver,
            entry.uid,
            entry.gid,
            entry.cuid,
            entry.cgid,
        );
    }
    text
}
