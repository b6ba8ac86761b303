//! Pages around a mapping that must not be touched: a process that leaves the mapping, be it by a gigabyte, dies.

use std::path::Path;
use std::ptr::without_provenance_mut;

/// Bytes on either side.
const LEN: usize = 256 << 20;

/// Reserved addresses. Released when dropped.
struct Reserved {
    start: usize,
    len: usize,
}

impl Reserved {
    /// At `start`, where nothing may be; anywhere for 0.
    fn new(start: usize, len: usize) -> Option<Reserved> {
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        if start != 0 {
            flags |= libc::MAP_FIXED_NOREPLACE;
        }
        // SAFETY: a mapping that replaces no other, by its flags.
        let place = unsafe {
            let start = without_provenance_mut(start);
            libc::mmap(start, len, libc::PROT_NONE, flags, -1, 0)
        };
        (place != libc::MAP_FAILED).then(|| Reserved {
            start: place.addr(),
            len,
        })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which no process uses.
        unsafe { libc::munmap(without_provenance_mut(self.start), self.len) };
    }
}

/// The surroundings of one mapping.
pub struct Guards {
    _all: [Option<Reserved>; 3],
    /// Returns whether the mapping has no neighbours.
    pub are_complete: bool,
}

impl Guards {
    /// Maps a file with `map`, and puts guards around it. The kernel mostly places mappings one below another.
    pub fn around<T>(file: &Path, map: impl FnOnce() -> T) -> (T, Guards) {
        let above = Reserved::new(0, LEN);
        let fillers = above
            .as_ref()
            .map_or_else(Vec::new, |above| fill_holes(above.start));
        let mapped = map();
        drop(fillers);
        let Some(Place { start, end, gaps }) = Place::of(file) else {
            let guards = Guards {
                _all: [above, None, None],
                are_complete: false,
            };
            return (mapped, guards);
        };
        let is_above = above.as_ref().is_some_and(|above| above.start == end);
        let below = Reserved::new(start - gaps.0, gaps.0);
        let closer = Reserved::new(end, gaps.1);
        let guards = Guards {
            are_complete: below.is_some() && (is_above || closer.is_some()),
            _all: [above, below, closer],
        };
        (mapped, guards)
    }
}

/// Bytes of the smallest hole that a queue's file may fit into.
const HOLE: usize = 4 << 20;

/// So many holes are filled at most: a process that maps needs addresses below its limit.
const HOLES: usize = 256;

/// Reserves the free addresses above an address, so that the next mapping is below it.
fn fill_holes(lowest: usize) -> Vec<Reserved> {
    let next = || Reserved::new(0, HOLE).filter(|reserved| reserved.start > lowest);
    std::iter::from_fn(next).take(HOLES).collect()
}

/// The mappings of a file in this process, and the free addresses next to them, up to a limit.
struct Place {
    start: usize,
    end: usize,
    gaps: (usize, usize),
}

impl Place {
    fn of(file: &Path) -> Option<Place> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let file = file.to_str()?;
        let lines: Vec<&str> = maps.lines().collect();
        let at = lines.iter().position(|line| line.ends_with(file))?;
        let (start, end) = range(lines[at])?;
        let before = at.checked_sub(1).and_then(|at| range(lines[at]));
        let after = lines.get(at + 1).and_then(|line| range(line));
        let below = start - before.map_or(0, |(_, end)| end);
        let above = after.map_or(usize::MAX, |(start, _)| start) - end;
        Some(Place {
            start,
            end,
            gaps: (below.min(LEN), above.min(LEN)),
        })
    }
}

/// The addresses in a line of /proc/self/maps.
fn range(line: &str) -> Option<(usize, usize)> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}
