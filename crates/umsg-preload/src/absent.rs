//! The last name for which the program found no queue. A program that waits for a queue to appear opens the same name repeatedly, and all openings
//! except the last one fail. These openings only compare the state of the directory, and do not look for the name ([`umsg::posix::Directory`]).
//!
//! | the opening of a missing name | does |
//! |---|---|
//! | the first one | looks for the name, and remembers it |
//! | the second one | inspects the directory, then looks for the name: the name is missing since the inspection |
//! | each further one | inspects the directory, which has not changed; if it has changed, does the same as the first one |
//!
//! A lock guards the remembered name for a few instructions. If a call finds the lock taken, for example in a signal handler or a forked child, the
//! call looks for the name.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use umsg::Namespace;
use umsg::posix::Directory;

/// True once a search for any name has found no queue.
static IS_ANY: AtomicBool = AtomicBool::new(false);

static LAST: Mutex<Option<Absent>> = Mutex::new(None);

struct Absent {
    /// The name for which no queue was found, without its slash.
    name: Box<[u8]>,
    /// The state of the directory before the search that found no queue of the name.
    directory: Option<Directory>,
}

/// The answer of [`known`].
pub(crate) enum Known {
    /// No queue has the name.
    Absent,
    /// The caller has to search for the name. If the caller finds no queue, it passes the directory's state before the search to [`note`].
    Nothing(Option<Directory>),
}

/// Returns whether a name is known to belong to no queue. The name has no slash.
pub(crate) fn known(namespace: &Namespace, name: &[u8]) -> Known {
    // Relaxed: the value is only a hint.
    if !IS_ANY.load(Ordering::Relaxed) {
        return Known::Nothing(None);
    }
    known_of_last(namespace, name).unwrap_or(Known::Nothing(None))
}

#[cold]
fn known_of_last(namespace: &Namespace, name: &[u8]) -> Option<Known> {
    let mut last = LAST.try_lock().ok()?;
    let absent = last.as_mut().filter(|absent| &*absent.name == name)?;
    let now = Directory::look(namespace)?;
    match absent.directory.take() {
        None => Some(Known::Nothing(Some(now))),
        Some(then) if then.is_unchanged_in(&now) => {
            absent.directory = Some(then);
            Some(Known::Absent)
        }
        // The directory has changed, so the remembered state is dropped. If the directory changes all the time, comparing the states would never save
        // a search.
        Some(_) => None,
    }
}

/// Notes that no queue has the name, with the state of the directory before the search.
#[cold]
pub(crate) fn note(name: &[u8], directory: Option<Directory>) {
    let Ok(mut last) = LAST.try_lock() else {
        return;
    };
    match last.as_mut().filter(|absent| &*absent.name == name) {
        Some(absent) => absent.directory = directory,
        None => {
            let name = name.into();
            *last = Some(Absent { name, directory });
            IS_ANY.store(true, Ordering::Relaxed);
        }
    }
}
