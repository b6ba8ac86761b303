//! iceoryx2: a crate that brings about a hundred others along, and so is built apart, by `cargo xtask bench peers`, into a library
//! beside this program.

use std::path::PathBuf;

use super::plug::Plug;
use super::scratch::Scratch;
use crate::failure::Failure;

const LIBRARY: &str = "libumsg_bench_iceoryx2.so";

pub const NAME: &str = "iceoryx2";

/// Loads it, if it was built.
///
/// # Errors
/// If it was not, with how that is done.
pub fn find(scratch: &Scratch) -> Result<Plug<'_>, Failure> {
    let Some(library) = built() else {
        return Err(Failure::new(
            "not built: `cargo xtask bench peers` fetches and builds it (crates/umsg-bench/peers-iceoryx2), and measures",
        ));
    };
    let how = "publish and subscribe by copy, nothing overwritten, the sender tries again while there is no room; asleep: with an event \
               for each message, on which the receiver sleeps";
    Plug::load(NAME, how, &library, scratch)
}

/// Beside the program, or where `cargo xtask` has it built.
fn built() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    // target/release/umsg-bench, and a test's program a directory below.
    let above = program.ancestors().skip(1).take(3);
    let places = above.flat_map(|directory| {
        [
            directory.join(LIBRARY),
            directory.join("peers-iceoryx2/release").join(LIBRARY),
        ]
    });
    places.into_iter().find(|path| path.exists())
}
