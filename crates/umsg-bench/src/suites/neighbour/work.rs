//! The neighbour's work: a fixed amount, repeated.

use std::hint;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// The neighbours of the hammer.
pub enum Neighbour {
    /// A compiler, as in the published comparison, on a source text that is always the same.
    Compile(String),
    /// A walk along a ring of cache lines in random order. Each line contains the index of the next one.
    Chase(Vec<Line>),
}

/// A cache line of the ring.
#[repr(align(64))]
#[derive(Clone, Copy)]
pub struct Line {
    next: usize,
}

/// The number of functions in the source text, which takes gcc about a tenth of a second.
const FUNCTIONS: u32 = 40;
/// The number of cache lines. Together, the lines have 4 MiB: more than the cache of a core, and less than the cache that the cores of a chip share.
const LINES: usize = 1 << 16;
/// The number of steps of the walk, which takes about a tenth of a second.
const STEPS: usize = 40 * LINES;

impl Neighbour {
    pub fn compile() -> Result<Self, Failure> {
        let compiler = Command::new("cc").arg("--version").output();
        if !compiler.is_ok_and(|said| said.status.success()) {
            return Err(Failure::new(
                "there is no C compiler: apt-get install gcc libc6-dev",
            ));
        }
        Ok(Self::Compile((0..FUNCTIONS).map(function).collect()))
    }

    /// Makes one ring through all lines, by Sattolo's shuffle.
    pub fn chase() -> Self {
        let mut order: Vec<usize> = (0..LINES).collect();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for last in (1..LINES).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            order.swap(last, (state % last as u64) as usize);
        }
        Self::Chase(order.into_iter().map(|next| Line { next }).collect())
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Compile(_) => "a compile",
            Self::Chase(_) => "a pointer chase",
        }
    }

    /// Does the work once.
    pub fn work(&self) -> Result<(), Failure> {
        match self {
            Self::Compile(source) => compile(source),
            Self::Chase(lines) => {
                let end = (0..STEPS).fold(0, |at, _| lines[at].next);
                hint::black_box(end);
                Ok(())
            }
        }
    }
}

/// Compiles to assembly text, so that the compiler writes no files and starts no other programs.
fn compile(source: &str) -> Result<(), Failure> {
    let mut compiler = Command::new("cc")
        .args(["-O2", "-x", "c", "-S", "-o", "-", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    if let Some(mut input) = compiler.stdin.take() {
        input.write_all(source.as_bytes())?;
    }
    if compiler.wait()?.success() {
        Ok(())
    } else {
        Err(Failure::new("the C compiler failed: see the message above"))
    }
}

/// Returns one function of the source text, with loops, branches and calls, so that the compiler has work.
fn function(number: u32) -> String {
    let called = match number {
        0 => "x".to_owned(),
        _ => format!("f{}(x, a)", number - 1),
    };
    let multiplier = number * 7 + 3;
    format!(
        "unsigned f{number}(unsigned x, unsigned a[16]) {{\n\
         for (unsigned i = 0; i < 16; i++) {{\n\
         if ((a[i] ^ x) % {multiplier} > i) a[i] = a[i] * {multiplier} + x; else x += a[i] >> (i & 7);\n\
         switch (x & 7) {{ case 0: x ^= {called}; break; case {}: a[i]++; break; default: x = x / 3 + i; }}\n\
         }}\n\
         return x;\n}}\n",
        number % 6 + 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chase_comes_by_every_line_once() {
        let Neighbour::Chase(lines) = Neighbour::chase() else {
            unreachable!("a chase was asked for");
        };
        let mut at = 0;
        let laps = (1..=LINES).find(|_| {
            at = lines[at].next;
            at == 0
        });
        assert_eq!(laps, Some(LINES));
    }

    #[test]
    fn the_compiler_takes_the_source_text() {
        match Neighbour::compile() {
            Ok(neighbour) => neighbour.work().unwrap(),
            Err(failure) => eprintln!("left out: {failure}"),
        }
    }
}
