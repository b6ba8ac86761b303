//! The named points at which workers die by themselves: mostly points that other workers of their kind have passed, and preferably points with few
//! deaths. A signal at a random time hits these points too rarely while other workers run.

use super::Work;
use crate::chaos::journal::Kind;
use crate::chaos::points;
use crate::support::Random;
use std::sync::atomic::Ordering::SeqCst;
use umsg_shm::crash::POINTS;

/// The points of an API, and how many workers have died at each.
pub(super) struct Aim {
    points: Vec<Point>,
}

struct Point {
    name: &'static str,
    /// The index of the point among the points of all APIs.
    number: usize,
    deaths: u64,
}

/// The death of a worker: at the `nth` pass of a point.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    /// The index of the point among the points of the API.
    point: usize,
    name: &'static str,
    nth: u32,
}

impl Aim {
    pub(super) fn new<W: Work>(work: &W) -> Aim {
        let of_face = points::of(work.face());
        let points = POINTS.iter().enumerate();
        let points = points.filter(|(_, (_, name, _))| of_face.contains(*name));
        let points = points.map(|(number, (_, name, _))| Point {
            name,
            number,
            deaths: 0,
        });
        Aim {
            points: points.collect(),
        }
    }

    /// Chooses the point at which the next worker of a kind kills itself. Returns None for half of the workers, which do not kill themselves.
    pub(super) fn next(&self, kind: &Kind, random: &mut Random) -> Option<Mark> {
        if random.below(2) == 0 {
            return None;
        }
        let met: Vec<usize> = (0..self.points.len())
            .filter(|&point| is_met(kind, self.points[point].number))
            .collect();
        let any = |random: &mut Random| random.below(self.points.len() as u64) as usize;
        // Sometimes any point is chosen: a point that no process was seen to pass may be one that no process survives.
        let point = match met.is_empty() || random.below(4) == 0 {
            true => any(random),
            false => {
                let one = met[random.below(met.len() as u64) as usize];
                let other = met[random.below(met.len() as u64) as usize];
                std::cmp::min_by_key(one, other, |&point| self.points[point].deaths)
            }
        };
        // The worker dies when it passes the point for the n-th time. In its short life, a worker passes some points only once or a few times, so n
        // is often small.
        let passes = [1, 4, 60][random.below(3) as usize];
        Some(Mark {
            point,
            name: self.points[point].name,
            nth: 1 + random.below(passes) as u32,
        })
    }

    /// Records that a worker has died at its point.
    pub(super) fn hit(&mut self, mark: Mark) {
        self.points[mark.point].deaths += 1;
    }
}

fn is_met(kind: &Kind, number: usize) -> bool {
    kind.passed[number / 64].load(SeqCst) & 1 << (number % 64) != 0
}

/// Makes this process die at the point of `mark`, if the crash points are compiled in.
pub(super) fn arm(mark: Option<Mark>) {
    #[cfg(feature = "crash-points")]
    {
        // The worker has inherited the record of the points that the supervisor passed before the fork.
        umsg_shm::crash::forget();
        if let Some(mark) = mark {
            umsg_shm::crash::arm(mark.name, mark.nth);
        }
    }
    let _ = mark.map(|mark| (mark.name, mark.nth));
}

/// Records the points that this process has passed.
pub(super) fn tell(kind: &Kind) {
    #[cfg(feature = "crash-points")]
    for (word, passed) in kind.passed.iter().enumerate() {
        passed.fetch_or(umsg_shm::crash::passed(word), SeqCst);
    }
    let _ = kind;
}
