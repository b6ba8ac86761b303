//! Opens local queues, and makes missing queues if the configuration says so.

use crate::config::{Bridge, End, NewQueue};
use std::ffi::OsStr;
use std::io::ErrorKind;
use umsg::posix::{self, KnownFile, OpenError};
use umsg::{Namespace, sysv};

/// Returns the error of a queue that does not exist. The sentence of the library gives advice for programs, so it is not part of the error.
fn missing(end: &End, is_missing: &str) -> String {
    format!("`queue` {end}: {is_missing}. Create the queue, or set `create_queue`")
}

/// Opens a POSIX queue for sending and receiving.
///
/// # Errors
/// The error is a sentence that names the setting.
pub fn posix(
    namespace: &Namespace,
    (name, new): (&str, Option<&NewQueue>),
) -> Result<posix::Queue, String> {
    let mut options = posix::OpenOptions::new();
    options.read(true).write(true).namespace(namespace);
    if let Some(new) = new {
        options.create(true).max_messages(new.max_messages);
        options.message_size(u32::try_from(new.message_size.0).unwrap_or(u32::MAX));
    }
    options.open(name).map_err(|error| match error {
        OpenError::NotFound => missing(&End::Posix(name.to_owned()), "no queue has this name"),
        error => format!("`queue` {name}: {error}"),
    })
}

/// Returns whether a name still refers to a queue. The usual answer costs three system calls, and maps nothing.
pub fn is_named(namespace: &Namespace, name: &str, queue: &posix::Queue) -> bool {
    let file = name.strip_prefix('/').unwrap_or(name);
    // The mapping of the queue keeps the inode's number from other files.
    let file = KnownFile::open(namespace, OsStr::new(file), true, true, true);
    match file {
        Ok(file) if file.identity() == queue.identity() => true,
        // Another error says nothing about the name: the process may have too many open files.
        Err(error) if error.kind() != ErrorKind::NotFound => true,
        _ => posix(namespace, (name, None)).is_ok_and(|now| now.serial() == queue.serial()),
    }
}

/// Opens a System V queue.
///
/// # Errors
/// The error is a sentence that names the setting.
pub fn sysv(namespace: &Namespace, bridge: &Bridge) -> Result<sysv::Queue, String> {
    let mut options = sysv::OpenOptions::new();
    options.namespace(namespace);
    options.create(bridge.create_queue.is_some()).mode(0o600);
    let opened = match bridge.queue {
        End::Id(id) => options.open_id(id),
        End::Key(key) => options.open(key),
        _ => {
            return Err(format!(
                "`queue` {}: this is not a System V queue",
                bridge.queue
            ));
        }
    };
    opened.map_err(|error| match error {
        sysv::OpenError::NotFound => missing(&bridge.queue, "no queue has this key"),
        error => format!("`queue` {}: {error}", bridge.queue),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Direction;

    #[test]
    fn the_error_of_a_missing_queue_gives_its_advice_once() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(home.path()).unwrap();
        let bridge = Bridge::new("a", Direction::Export, (End::Key(5), "S"));
        for (why, is_missing) in [
            (
                posix(&namespace, ("/q", None)).unwrap_err(),
                "`queue` /q: no queue has this name",
            ),
            (
                sysv(&namespace, &bridge).unwrap_err(),
                "`queue` key:0x5: no queue has this key",
            ),
        ] {
            let advice = "Create the queue, or set `create_queue`";
            assert_eq!(why, format!("{is_missing}. {advice}"));
        }
    }

    #[test]
    fn a_queue_that_is_made_again_does_not_have_the_name_of_the_old_one() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(home.path()).unwrap();
        let new = NewQueue::default();
        let queue = posix(&namespace, ("/q", Some(&new))).unwrap();
        assert!(is_named(&namespace, "/q", &queue));
        posix::unlink_in(&namespace, "/q").unwrap();
        assert!(!is_named(&namespace, "/q", &queue));
        let other = posix(&namespace, ("/q", Some(&new))).unwrap();
        assert!(!is_named(&namespace, "/q", &queue) && is_named(&namespace, "/q", &other));
    }
}
