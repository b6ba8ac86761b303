//! Samples of all queues and rings. The queues stay mapped from one sample to the next.
//!
//! A sample lists the names, and opens only queues that the last sample did not have. A replaced queue has another inode number, or, if it is a
//! System V queue, another identifier. Reading a mapped queue takes neither a lock nor a system call.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use glob::Pattern;
use umsg::posix::{self, OpenError, OpenOptions};
use umsg::ring::{self, Observer, RingError};
use umsg::sysv::{self, ControlError};
use umsg::{Namespace, QueueError, SegmentError};

use super::figures::{Counted, Figures, Kind, Label, Reason};
use super::kept::Kept;
use super::parallel;
use crate::address::{self, Notation, RING};
use crate::cli::Cli;
use crate::failure::{Code, Explain, Failure, Result};
use crate::place;

/// The least number of queues for an additional thread. For fewer queues, the start of a thread takes longer than the thread saves.
pub const SHARE: usize = 256;

/// The state of a namespace at one time.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub figures: Vec<Figures>,
    /// The numbers of queues and rings that match the patterns, by kind.
    pub found: [u64; Kind::ALL.len()],
    /// The numbers of queues without figures, by kind and reason.
    pub left_out: [[u64; Reason::ALL.len()]; Kind::ALL.len()],
    /// The directory of the namespace.
    pub namespace: PathBuf,
    /// The queues that can't be read, without the queues beyond the maximum number.
    pub refused: Vec<Refused>,
    /// The time that the sample took, in seconds.
    pub seconds: f64,
    /// The number of queues that have figures, or will have them if they can be read.
    admitted: usize,
}

/// A queue that can't be read.
#[derive(Clone, Debug)]
pub struct Refused {
    pub kind: Kind,
    /// The queue's name, in the form of [`Figures::queue`]; bytes that are not UTF-8 are replaced.
    pub queue: String,
    pub why: Reason,
}

/// The queues of a namespace, kept between two samples.
pub struct Gatherer<'a> {
    cli: &'a Cli,
    patterns: &'a [Pattern],
    most: usize,
    posix: Kept<OsString, Arc<Named<posix::Queue>>>,
    sysv: Kept<i32, Arc<Named<sysv::Queue>>>,
    rings: Kept<OsString, Arc<Named<Observer>>>,
}

/// An open queue, its label, and its counters at the previous sample.
struct Named<Q> {
    queue: Q,
    label: Label,
    counted: Mutex<Counted>,
}

impl<Q> Named<Q> {
    fn new(queue: Q, label: Label) -> Arc<Named<Q>> {
        let counted = Mutex::default();
        Arc::new(Named {
            queue,
            label,
            counted,
        })
    }

    /// Returns the figures with counters that do not fall by moving messages.
    fn steady(&self, mut figures: Figures) -> Figures {
        // No other thread samples the same queue.
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.steady(&mut figures);
        figures
    }
}

impl Snapshot {
    fn leave_out(&mut self, kind: Kind, why: Reason) {
        self.left_out[kind as usize][why as usize] += 1;
    }

    /// Counts a queue that has no figures by its reason, and no longer as admitted. Without a reason, the queue was removed after the names were
    /// read.
    fn give_up(&mut self, kind: Kind, queue: &str, why: Option<Reason>) {
        self.admitted -= 1;
        match why {
            Some(why) => {
                self.leave_out(kind, why);
                let queue = queue.to_owned();
                self.refused.push(Refused { kind, queue, why });
            }
            None => self.found[kind as usize] -= 1,
        }
    }
}

impl<'a> Gatherer<'a> {
    /// Makes a gatherer without queues. `most` is the largest number of queues with figures. A queue that could not be opened is tried again after
    /// `retry`.
    pub fn new(
        cli: &'a Cli,
        patterns: &'a [Pattern],
        most: usize,
        retry: Duration,
    ) -> Gatherer<'a> {
        Gatherer {
            cli,
            patterns,
            most,
            posix: Kept::new(retry),
            sysv: Kept::new(retry),
            rings: Kept::new(retry),
        }
    }

    /// Takes a sample of the namespace.
    ///
    /// # Errors
    /// Fails if there is no namespace, or if the namespace can't be read.
    pub fn sample(&mut self) -> Result<Snapshot> {
        let begin = Instant::now();
        let namespace = place::existing(self.cli)?;
        let mut snapshot = Snapshot::default();
        self.sample_posix(&namespace, &mut snapshot)?;
        self.sample_sysv(&namespace, &mut snapshot)?;
        self.sample_rings(&namespace, &mut snapshot)?;
        snapshot.namespace = namespace.path().to_owned();
        snapshot.seconds = begin.elapsed().as_secs_f64();
        Ok(snapshot)
    }

    /// Counts up to `most` messages of a queue by priority (the highest first) or by type (the lowest first). Returns None for a ring, which has
    /// neither.
    pub fn ranks(&self, figures: &Figures, most: usize) -> Option<Vec<(i64, u64)>> {
        match (figures.kind, figures.id) {
            (Kind::Posix, _) => {
                let named = self.posix.known(OsStr::new(&*figures.queue))?;
                let found = named.queue.glance_at_priorities(most).into_iter();
                Some(found.map(|(of, count)| (of.into(), count)).collect())
            }
            (Kind::Sysv, Some(id)) => {
                let found = self.sysv.known(&id)?.queue.glance_at_types(most).ok()?;
                let found = found.into_iter();
                Some(found.map(|(of, count)| (of, count.into())).collect())
            }
            _ => None,
        }
    }

    /// Counts a queue. Returns whether the maximum number of queues allows its figures. Returns None if the queue's name does not match the patterns.
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

    fn sample_posix(&mut self, namespace: &Namespace, snapshot: &mut Snapshot) -> Result {
        self.posix.begin();
        let mut queues = Vec::new();
        for (name, inode) in posix::names(namespace)? {
            let lossy = name.to_string_lossy();
            if self.admit(Kind::Posix, &lossy, snapshot) != Some(true) {
                continue;
            }
            let kept = self.posix.queue(name.as_os_str(), inode, || {
                let name = name.as_os_str();
                let label = Label::new(Kind::Posix, name.to_str().ok_or(Some(Reason::Name))?);
                let queue = open_posix(namespace, name).map_err(|error| of_open(&error))?;
                Ok(Named::new(queue, label))
            });
            match kept {
                Some(Ok(named)) => queues.push(Arc::clone(named)),
                Some(Err(why)) => snapshot.give_up(Kind::Posix, &lossy, Some(why)),
                None => snapshot.give_up(Kind::Posix, &lossy, None),
            }
        }
        self.posix.end();
        snapshot.figures = parallel::map(&mut queues, SHARE, |named| {
            let queue = &named.queue;
            let seen = queue.glance();
            named.steady(Figures::posix(named.label.clone(), queue.identity(), &seen))
        });
        Ok(())
    }

    fn sample_sysv(&mut self, namespace: &Namespace, snapshot: &mut Snapshot) -> Result {
        let ids = sysv::ids(namespace);
        let ids = ids.map_err(|error| Failure::new(Code::Failed, error.explain()))?;
        self.sysv.begin();
        let mut queues = Vec::new();
        for (id, key) in ids {
            let label = match key {
                sysv::PRIVATE => address::Label::Id(id),
                key => address::Label::Key(key, Notation::Hex(8)),
            };
            let label = label.canonical();
            if self.admit(Kind::Sysv, &label, snapshot) != Some(true) {
                continue;
            }
            let kept = self.sysv.queue(&id, 0, || {
                let mut options = sysv::OpenOptions::new();
                let queue = options.namespace(namespace).open_id(id);
                let queue = queue.map_err(|error| of_sysv_open(&error))?;
                let label = Label::new(Kind::Sysv, &label);
                Ok(Named::new(queue, label))
            });
            match kept {
                Some(Ok(named)) => queues.push(Arc::clone(named)),
                Some(Err(why)) => snapshot.give_up(Kind::Sysv, &label, Some(why)),
                None => snapshot.give_up(Kind::Sysv, &label, None),
            }
        }
        self.sysv.end();
        let all = parallel::map(&mut queues, SHARE, |named| {
            let seen = named.queue.glance().map_err(|error| of_control(&error))?;
            Ok(named.steady(Figures::sysv(named.label.clone(), &seen)))
        });
        for (figures, named) in all.into_iter().zip(&queues) {
            match figures {
                Ok(figures) => snapshot.figures.push(figures),
                Err(why) => snapshot.give_up(Kind::Sysv, &named.label.queue, why),
            }
        }
        Ok(())
    }

    fn sample_rings(&mut self, namespace: &Namespace, snapshot: &mut Snapshot) -> Result {
        self.rings.begin();
        let mut rings = Vec::new();
        for (name, inode) in ring::names(namespace)? {
            let lossy = format!("{RING}{}", name.to_string_lossy());
            if self.admit(Kind::Ring, &lossy, snapshot) != Some(true) {
                continue;
            }
            let kept = self.rings.queue(name.as_os_str(), inode, || {
                name.to_str().ok_or(Some(Reason::Name))?;
                let label = Label::new(Kind::Ring, &lossy);
                let queue = Observer::open_in(namespace, &name);
                let queue = queue.map_err(|error| of_ring(&error))?;
                Ok(Named::new(queue, label))
            });
            match kept {
                Some(Ok(named)) => rings.push(Arc::clone(named)),
                Some(Err(why)) => snapshot.give_up(Kind::Ring, &lossy, Some(why)),
                None => snapshot.give_up(Kind::Ring, &lossy, None),
            }
        }
        self.rings.end();
        snapshot
            .figures
            .extend(parallel::map(&mut rings, SHARE, |named| {
                named.steady(Figures::ring(named.label.clone(), &named.queue.look()))
            }));
        Ok(())
    }
}

/// Opens a queue for receiving, or else for sending: either permission is enough to read the state. The handle does not count as a user of the queue.
/// The call does not remove an unused queue.
fn open_posix(namespace: &Namespace, name: &OsStr) -> Result<posix::Queue, OpenError> {
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

/// Returns the reason why a queue has no figures. Returns None if the queue no longer exists.
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
