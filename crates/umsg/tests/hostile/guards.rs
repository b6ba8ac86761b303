//! Pages around a mapping that must not be touched: a process that accesses memory outside of the mapping, even a gigabyte away, dies.

use std::path::Path;
use std::ptr::without_provenance_mut;

/// The length of the guard on each side of a mapping, in bytes.
const LEN: usize = 256 << 20;

/// Reserved addresses. Released when dropped.
struct Reserved {
    start: usize,
    len: usize,
}

impl Reserved {
    /// Reserves addresses at `start`, which have to be free; for 0, at any place.
    fn new(start: usize, len: usize) -> Option<Reserved> {
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        if start != 0 {
            flags |= libc::MAP_FIXED_NOREPLACE;
        }
        // SAFETY: the flags ensure that the mapping replaces no other mapping.
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
        // SAFETY: `new` made the mapping, and nothing uses it any more.
        unsafe { libc::munmap(without_provenance_mut(self.start), self.len) };
    }
}

/// The surroundings of one mapping.
pub struct Guards {
    _all: Vec<Reserved>,
    /// True if guards enclose the mapping on both sides.
    pub are_complete: bool,
}

impl Guards {
    /// Maps a file with `map`, and puts guards around the mapping. The kernel mostly places a new mapping just below an existing mapping.
    pub fn around<T>(file: &Path, map: impl FnOnce() -> T) -> (T, Guards) {
        let above = Reserved::new(0, LEN);
        let lowest = above.as_ref().map_or(0, |above| above.start);
        let fillers = fill_holes(lowest);
        let mut all = below_each(lowest);
        all.extend(above);
        let mapped = map();
        drop(fillers);
        let Some(Place { start, end, gaps }) = Place::of(file) else {
            let are_complete = false;
            return (
                mapped,
                Guards {
                    _all: all,
                    are_complete,
                },
            );
        };
        all.retain(|guard| guard.start == end);
        let is_above = !all.is_empty();
        let below = Reserved::new(start - gaps.0, gaps.0);
        let closer = Reserved::new(end, gaps.1);
        let are_complete = below.is_some() && (is_above || closer.is_some());
        all.extend(below.into_iter().chain(closer));
        (
            mapped,
            Guards {
                _all: all,
                are_complete,
            },
        )
    }
}

/// Reserves the addresses just below each mapping that is not above `highest`: the heap of a thread would be no guard.
fn below_each(highest: usize) -> Vec<Reserved> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut end = 0;
    let mut reserved = Vec::new();
    for (start, next_end) in maps.lines().filter_map(range) {
        let gap = (start - end).min(LEN);
        if start <= highest && gap > 0 {
            reserved.extend(Reserved::new(start - gap, gap));
        }
        end = next_end;
    }
    reserved
}

/// The largest hole that is filled. The first reservation has left no larger hole above its own addresses.
const LARGEST: usize = LEN / 2;
/// The smallest hole that is filled: no file of a queue fits into less.
const SMALLEST: usize = 64 << 10;

/// The maximum number of holes that are filled: a process needs some addresses below its limit for its own mappings.
const HOLES: usize = 1024;

/// Reserves the free addresses above an address, the largest holes first, so that the next mapping is below the address. A mapping that just fits
/// into a hole would have neighbours, and no room for guards.
fn fill_holes(lowest: usize) -> Vec<Reserved> {
    let sizes = std::iter::successors(Some(LARGEST), |size| Some(size / 2));
    let sizes = sizes.take_while(|&size| size >= SMALLEST);
    let next = |size| Reserved::new(0, size).filter(|reserved| reserved.start > lowest);
    let fill = |size| std::iter::from_fn(move || next(size));
    sizes.flat_map(fill).take(HOLES).collect()
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

/// Returns the addresses in a line of /proc/self/maps.
fn range(line: &str) -> Option<(usize, usize)> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}
