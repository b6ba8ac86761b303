//! iceoryx2: a crate with about a hundred dependencies. So `cargo xtask bench peers` builds it separately, into a library next to this
//! program.

use std::path::PathBuf;

use super::plug::Plug;
use super::scratch::Scratch;
use crate::failure::Failure;

const LIBRARY: &str = "libumsg_bench_iceoryx2.so";

pub const NAME: &str = "iceoryx2";

/// Loads the library for iceoryx2.
///
/// # Errors
/// Fails if the library was not built; the error says how to build it.
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

/// Finds the library next to this program, or in the directory in which `cargo xtask` builds the library.
fn built() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    // This program is target/release/umsg-bench; a test's program is one directory below.
    let above = program.ancestors().skip(1).take(3);
    let places = above.flat_map(|directory| {
        [
            directory.join(LIBRARY),
            directory.join("peers-iceoryx2/release").join(LIBRARY),
        ]
    });
    places.into_iter().find(|path| path.exists())
}
