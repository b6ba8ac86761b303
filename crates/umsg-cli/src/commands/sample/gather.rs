//! Scrapes: all queues and rings, which stay mapped from one scrape to the next.
//!
//! A scrape lists the names, and opens only the queues that it does not know. A queue that was replaced has another inode number, or is a System V
//! queue with another identifier. Reading a mapped queue takes neither a lock nor a system call.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Instant;

use glob::Pattern;
use umsg::posix::{self, OpenError, OpenOptions};
use umsg::ring::{self, Observer, RingError};
use umsg::sysv::{self, ControlError};
use umsg::{Namespace, QueueError, SegmentError};

use super::bridges::{self, Bridge};
use super::families::{self, Form};
use super::figures::{Figures, Kind, Reason};
use super::kept::Kept;
use super::parallel;
use crate::address::{Label, Notation, RING};
use crate::cli::Cli;
use crate::failure::{Code, Explain, Failure, Result};
use crate::place;

/// The number of queues for which a thread is worth its start.
pub const SHARE: usize = 256;

/// The state of a namespace at one scrape.
#[derive(Debug)]
pub struct Snapshot {
    pub figures: Vec<Figures>,
    /// The numbers of queues and rings that match, by kind.
    pub found: [u64; Kind::ALL.len()],
    /// The numbers of queues without metrics, by kind and reason.
    pub left_out: [[u64; Reason::ALL.len()]; Kind::ALL.len()],
    pub bridges: Vec<Bridge>,
    /// The time that the scrape took, in seconds, without the text.
    pub seconds: f64,
    /// The number of queues that have metrics, or may have.
    admitted: usize,
}

/// The queues of a namespace between two scrapes.
pub struct Gatherer<'a> {
    cli: &'a Cli,
    patterns: &'a [Pattern],
    most: usize,
    posix: Kept<OsString, Arc<Named<posix::Queue>>>,
    sysv: Kept<i32, Arc<Named<sysv::Queue>>>,
    rings: Kept<OsString, Arc<Named<Observer>>>,
    /// The length of the last text.
    len: usize,
}

/// A queue with its label.
struct Named<Q> {
    queue: Q,
    label: Arc<str>,
}

impl Snapshot {
    fn new() -> Snapshot {
        Snapshot {
            figures: Vec::new(),
            found: [0; Kind::ALL.len()],
            left_out: [[0; Reason::ALL.len()]; Kind::ALL.len()],
            bridges: Vec::new(),
            seconds: 0.0,
            admitted: 0,
        }
    }

    fn leave_out(&mut self, kind: Kind, why: Reason) {
        self.left_out[kind as usize][why as usize] += 1;
    }

    /// Frees the place of a queue that has no metrics for this reason. None: the queue was removed since the names were read.
    fn give_up(&mut self, kind: Kind, why: Option<Reason>) {
        self.admitted -= 1;
        match why {
            Some(why) => self.leave_out(kind, why),
            None => self.found[kind as usize] -= 1,
        }
    }
}

impl<'a> Gatherer<'a> {
    pub fn new(cli: &'a Cli, patterns: &'a [Pattern], most: usize) -> Gatherer<'a> {
        Gatherer {
            cli,
            patterns,
            most,
            posix: Kept::new(),
            sysv: Kept::new(),
            rings: Kept::new(),
            len: 0,
        }
    }

    /// Scrapes, and returns the metrics as text.
    pub fn text(&mut self, form: Form) -> Result<String> {
        let text = families::text(self.scrape()?, form, self.len);
        self.len = text.len();
        Ok(text)
    }

    /// # Errors
    /// Fails if there is no namespace, or if the namespace can't be read.
    pub fn scrape(&mut self) -> Result<Snapshot> {
        let begin = Instant::now();
        let namespace = place::existing(self.cli)?;
        let mut snapshot = Snapshot::new();
        self.scrape_posix(&namespace, &mut snapshot)?;
        self.scrape_sysv(&namespace, &mut snapshot)?;
        self.scrape_rings(&namespace, &mut snapshot)?;
        snapshot.bridges = bridges::read(namespace.path());
        snapshot.seconds = begin.elapsed().as_secs_f64();
        Ok(snapshot)
    }

    /// Counts a queue. Returns whether there is room for its metrics; None if the queue does not match.
    fn admit(&self, kind: Kind, label: &str, snapshot: &mut Snapshot) -> Option<bool> {
        let is_meant =
            self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.matches(label));
        if !is_meant {
            return None;
        }
        snapshot.found[kind as usize] += 1;
        let has_room = snapshot.admitted < self.most;
        match has_room {
            true => snapshot.admitted += 1,
            false => snapshot.leave_out(kind, Reason::Limit),
        }
        Some(has_room)
    }

    fn scrape_posix(&mut self, namespace: &Namespace, snapshot: &mut Snapshot) -> Result {
        self.posix.begin();
        let mut queues = Vec::new();
        for (name, inode) in posix::names(namespace)? {
            let lossy = name.to_string_lossy();
            if self.admit(Kind::Posix, &lossy, snapshot) != Some(true) {
                continue;
            }
            let kept = self.posix.queue(name.as_os_str(), inode, || {
                let label = name.to_str().ok_or(Some(Reason::Name))?.into();
                let queue = open_posix(namespace, &name).map_err(|error| of_open(&error))?;
                Ok(Arc::new(Named { queue, label }))
            });
            match kept {
                Some(Ok(named)) => queues.push(Arc::clone(named)),
                Some(Err(why)) => snapshot.give_up(Kind::Posix, Some(why)),
                None => snapshot.give_up(Kind::Posix, None),
            }
        }
        self.posix.end();
        snapshot.figures = parallel::map(&queues, SHARE, |named| {
            Figures::posix(Arc::clone(&named.label), &named.queue.glance())
        });
        Ok(())
    }

    fn scrape_sysv(&mut self, namespace: &Namespace, snapshot: &mut Snapshot) -> Result {
        let ids = sysv::ids(namespace);
        let ids = ids.map_err(|error| Failure::new(Code::Failed, error.explain()))?;
        self.sysv.begin();
        let mut queues = Vec::new();
        for (id, key) in ids {
            let label = match key {
                sysv::PRIVATE => Label::Id(id),
                key => Label::Key(key, Notation::Hex(8)),
            };
            let label = label.canonical();
            if self.admit(Kind::Sysv, &label, snapshot) != Some(true) {
                continue;
            }
            let kept = self.sysv.queue(&id, 0, || {
                let mut options = sysv::OpenOptions::new();
                let queue = options.namespace(namespace).open_id(id);
                let queue = queue.map_err(|error| of_sysv_open(&error))?;
                let label = label.as_str().into();
                Ok(Arc::new(Named { queue, label }))
            });
            match kept {
                Some(Ok(named)) => queues.push(Arc::clone(named)),
                Some(Err(why)) => snapshot.give_up(Kind::Sysv, Some(why)),
                None => snapshot.give_up(Kind::Sysv, None),
            }
        }
        self.sysv.end();
        let all = parallel::map(&queues, SHARE, |named| {
            let seen = named.queue.glance().map_err(|error| of_control(&error))?;
            Ok(Figures::sysv(Arc::clone(&named.label), &seen))
        });
        for figures in all {
            match figures {
                Ok(figures) => snapshot.figures.push(figures),
                Err(why) => snapshot.give_up(Kind::Sysv, why),
            }
        }
        Ok(())
    }

    fn scrape_rings(&mut self, namespace: &Namespace, snapshot: &mut Snapshot) -> Result {
        self.rings.begin();
        let mut rings = Vec::new();
        for (name, inode) in ring::names(namespace)? {
            let lossy = format!("{RING}{}", name.to_string_lossy());
            if self.admit(Kind::Ring, &lossy, snapshot) != Some(true) {
                continue;
            }
            let kept = self.rings.queue(name.as_os_str(), inode, || {
                name.to_str().ok_or(Some(Reason::Name))?;
                let label = lossy.as_str().into();
                let queue = Observer::open_in(namespace, &name);
                let queue = queue.map_err(|error| of_ring(&error))?;
                Ok(Arc::new(Named { queue, label }))
            });
            match kept {
                Some(Ok(named)) => rings.push(Arc::clone(named)),
                Some(Err(why)) => snapshot.give_up(Kind::Ring, Some(why)),
                None => snapshot.give_up(Kind::Ring, None),
            }
        }
        self.rings.end();
        snapshot
            .figures
            .extend(parallel::map(&rings, SHARE, |named| {
                Figures::ring(Arc::clone(&named.label), &named.queue.look().status)
            }));
        Ok(())
    }
}

/// Opens a queue for receiving, or for sending: each of the two permissions is enough to read its state. The handle does not count as a user of the
/// queue, and this opening removes no unused queue.
fn open_posix(namespace: &Namespace, name: &OsString) -> Result<posix::Queue, OpenError> {
    let open = |read, write| {
        let mut options = OpenOptions::new();
        options.read(read).write(write).counted(false);
        options.remove_unused(false).namespace(namespace).open(name)
    };
    match open(true, false) {
        Err(OpenError::PermissionDenied) => open(false, true),
        other => other,
    }
}

/// Returns the reason why a queue has no metrics; None if it has gone.
fn of_open(error: &OpenError) -> Option<Reason> {
    match error {
        OpenError::NotFound => None,
        OpenError::PermissionDenied => Some(Reason::Permission),
        OpenError::Segment(error) => Some(of_segment(error)),
        OpenError::Queue(error) => Some(of_queue(error)),
        _ => Some(Reason::Unusable),
    }
}

fn of_sysv_open(error: &sysv::OpenError) -> Option<Reason> {
    match error {
        sysv::OpenError::NotFound | sysv::OpenError::NoSuchId => None,
        sysv::OpenError::PermissionDenied => Some(Reason::Permission),
        sysv::OpenError::Segment(error) => Some(of_segment(error)),
        sysv::OpenError::Queue(error) => Some(of_queue(error)),
        _ => Some(Reason::Unusable),
    }
}

fn of_control(error: &ControlError) -> Option<Reason> {
    match error {
        ControlError::Removed => None,
        ControlError::PermissionDenied => Some(Reason::Permission),
        ControlError::Open(error) => of_sysv_open(error),
        ControlError::Queue(error) => Some(of_queue(error)),
        _ => Some(Reason::Unusable),
    }
}

fn of_ring(error: &RingError) -> Option<Reason> {
    match error {
        RingError::NotFound => None,
        RingError::Open(error) => of_open(error),
        _ => Some(Reason::Unusable),
    }
}

fn of_segment(error: &SegmentError) -> Reason {
    match error {
        SegmentError::Damaged(_) => Reason::Corrupted,
        _ => Reason::Unusable,
    }
}

fn of_queue(error: &QueueError) -> Reason {
    match error {
        QueueError::Damaged => Reason::Corrupted,
        _ => Reason::Unusable,
    }
}
