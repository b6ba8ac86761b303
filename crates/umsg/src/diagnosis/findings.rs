//! The wrong bytes of a segment.

use std::fmt::Display;
use umsg_shm::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Ordering};

/// A place in a queue's file with bytes that no operation can have written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The rule that the word should follow, as a sentence.
    pub check: &'static str,
    /// The offset of the word in the file, in bytes.
    pub offset: u64,
    /// The value that the word should have.
    pub expected: String,
    /// The value that the word has.
    pub found: String,
}

/// A word of a copy, which no process writes.
pub(crate) trait CopiedWord {
    type Value: Display + PartialEq;

    fn value(&self) -> Self::Value;
}

macro_rules! copied_words {
    ($($word:ty: $value:ty, $read:expr;)*) => {$(
        impl CopiedWord for $word {
            type Value = $value;

            fn value(&self) -> $value {
                $read(self)
            }
        }
    )*};
}

// Relaxed: no process writes a copy.
copied_words! {
    AtomicU32: u32, |word: &AtomicU32| word.load(Ordering::Relaxed);
    AtomicU64: u64, |word: &AtomicU64| word.load(Ordering::Relaxed);
    Guarded32: u32, Guarded32::get;
    Guarded64: u64, Guarded64::get;
}

/// The maximum number of findings that are described. Further findings are only counted.
const MOST: usize = 64;

/// All findings of a segment whose bytes begin at `base`.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    base: usize,
    list: Vec<Finding>,
    more: usize,
}

impl Findings {
    /// Makes an empty list of findings for a segment in memory that begins at this address.
    pub(crate) fn at(base: usize) -> Findings {
        Findings {
            base,
            ..Findings::default()
        }
    }

    /// Adds a finding: `word` differs from the expected value.
    pub(crate) fn add<T>(
        &mut self,
        check: &'static str,
        word: &T,
        expected: impl Display,
        found: impl Display,
    ) {
        let offset = std::ptr::from_ref(word).addr().wrapping_sub(self.base);
        self.add_at(check, offset as u64, expected, found);
    }

    /// Does the same as [`add`](Self::add) for a word that is known by its place in the file.
    pub(crate) fn add_at(
        &mut self,
        check: &'static str,
        offset: u64,
        expected: impl Display,
        found: impl Display,
    ) {
        if self.list.len() == MOST {
            self.more += 1;
            return;
        }
        self.list.push(Finding {
            check,
            offset,
            expected: expected.to_string(),
            found: found.to_string(),
        });
    }

    /// Adds a finding if the word does not hold this value.
    pub(crate) fn holds<W: CopiedWord>(
        &mut self,
        check: &'static str,
        word: &W,
        expected: W::Value,
    ) {
        self.equal(check, word, expected, word.value());
    }

    /// Adds a finding unless the two values are equal.
    pub(crate) fn equal<T, V: Display + PartialEq>(
        &mut self,
        check: &'static str,
        word: &T,
        expected: V,
        found: V,
    ) {
        if expected != found {
            self.add(check, word, expected, found);
        }
    }

    /// Does the same as [`equal`](Self::equal) for a word that is known by its place in the file.
    pub(crate) fn equal_at<V: Display + PartialEq>(
        &mut self,
        check: &'static str,
        offset: u64,
        expected: V,
        found: V,
    ) {
        if expected != found {
            self.add_at(check, offset, expected, found);
        }
    }

    /// Returns the number of findings.
    pub(crate) fn count(&self) -> usize {
        self.list.len() + self.more
    }

    /// Keeps only the findings that `other` has, too.
    pub(crate) fn keep_common(&mut self, other: &Findings) {
        self.list.retain(|finding| other.list.contains(finding));
        self.more = self.more.min(other.more);
    }

    pub(crate) fn append(&mut self, other: Findings) {
        self.list.extend(other.list);
        self.more += other.more;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns the kept findings, and the number of findings that were only counted.
    pub(crate) fn into_parts(self) -> (Vec<Finding>, usize) {
        (self.list, self.more)
    }
}
