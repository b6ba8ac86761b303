//! What is printed: for people by default, for programs with `--json`.

pub mod base64;
pub mod json;
pub mod message;
pub mod owner;
pub mod table;
pub mod text;
pub mod time;

use std::io::{self, BufWriter, StdoutLock};

/// Standard output, written out when full or flushed: a failure of the last flush must not be lost, so who uses it
/// flushes it.
pub fn standard() -> BufWriter<StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

/// Commands that print something take this.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Format {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}
