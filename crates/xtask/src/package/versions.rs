//! The oldest glibc that has all symbols of a library.

use std::path::Path;
use std::process::Command;

use super::build;
use crate::failure::{Failure, Result};

/// A version of glibc.
pub type Version = (u32, u32);

/// The oldest glibc for which Rust's standard library is built. Source: the platform support page of rustc's book.
pub const OLDEST: Version = (2, 17);

/// Returns the newest version among the symbols of glibc that the file needs. Fails if that version is newer than [`OLDEST`]. `objdump` is the
/// program for the processor of the file.
pub fn check(objdump: &str, file: &Path) -> Result<Version> {
    let table = build::text(Command::new(objdump).arg("-T").arg(file))?;
    let newest = needed(&table).max_by_key(|(version, _)| *version);
    let Some((version, symbol)) = newest else {
        return Err(Failure::new(format!(
            "{} needs no symbol of glibc",
            file.display()
        )));
    };
    match version <= OLDEST {
        true => Ok(version),
        false => Err(Failure::new(format!(
            "{} needs {symbol} of glibc {}.{}; the oldest supported one is {}.{}",
            file.display(),
            version.0,
            version.1,
            OLDEST.0,
            OLDEST.1
        ))),
    }
}

/// Returns the undefined symbols of glibc in objdump's table, with their versions. A weak symbol (w) may be missing.
fn needed(table: &str) -> impl Iterator<Item = (Version, &str)> {
    table.lines().filter_map(|line| {
        let symbol = line.split_whitespace().next_back()?;
        let (before, after) = line.split_once("GLIBC_")?;
        let is_weak = before.split_whitespace().nth(1) == Some("w");
        let is_needed = before.contains("*UND*") && !is_weak;
        let version = after.split([')', ' ']).next()?;
        let mut numbers = version.split('.').map_while(|number| number.parse().ok());
        let version = (numbers.next()?, numbers.next()?);
        is_needed.then_some((version, symbol))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.2.5) free
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.17) clock_gettime
0000000000000000  w   DF *UND*\t0000000000000000 (GLIBC_2.18) __cxa_thread_atexit_impl
0000000000000000  w   D  *UND*\t0000000000000000  Base        __gmon_start__
0000000000009000 g    DF .text\t0000000000000010  Base        mq_open
";

    #[test]
    fn a_table_of_symbols_tells_the_versions_that_are_needed() {
        let needed: Vec<_> = needed(TABLE).collect();
        assert_eq!(needed, [((2, 2), "free"), ((2, 17), "clock_gettime")]);
    }
}
