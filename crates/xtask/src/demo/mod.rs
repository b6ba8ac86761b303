//! `cargo xtask demo`: programs that know nothing of umsg, on the kernel's queues and on umsg's.
//!
//! ```text
//! Stage ─┬─ programs: C, compiled here by cc; pmqtest and Python's posix_ipc if they are installed
//!        ├─ umsg, libumsg_preload.so
//!        └─ Namespace: a directory of queues in /dev/shm, of the caller or of an unprivileged user
//! ```
//!
//! All files are in temporary directories, which are removed with the stage: at the end, on a failure and on Ctrl-C.

mod deep;
mod format;
mod pmqtest;
mod python;
mod rate;
mod rounds;
mod stage;

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::shell;
use crate::workspace::Workspace;

use stage::Stage;

/// Builds the bridge and runs its demonstration, which is an example of the bridge's crate.
pub fn bridge(workspace: &Workspace) -> Result<()> {
    interrupt::install();
    let mut build = workspace.cargo(&["build", "-p", "umsg-bridge", "--bins", "--example", "demo"]);
    println!("Building: {}", shell::line(&build));
    if !interrupt::run(&mut build)?.success() {
        return Err(Failure::new("the build failed"));
    }
    let program = workspace.target.join("debug/examples/demo");
    match interrupt::run(&mut workspace.command(program))?.success() {
        true => Ok(()),
        false => Err(Failure::new("the demo of the bridge failed")),
    }
}

/// Builds the command and the drop-in, and runs the demonstrations with them. With `quick`, uses the files of `target/release` if both exist, and
/// measures one round each.
pub fn run(workspace: &Workspace, quick: bool) -> Result<()> {
    interrupt::install();
    if !(quick && stage::is_built(workspace)) {
        let mut build =
            workspace.cargo(&["build", "--release", "-p", "umsg-cli", "-p", "umsg-preload"]);
        println!("Building: {}", shell::line(&build));
        if !interrupt::run(&mut build)?.success() {
            return Err(Failure::new("the build failed"));
        }
    }
    let stage = Stage::new(workspace, quick)?;
    rate::show(&stage)?;
    pmqtest::show(&stage)?;
    python::show(&stage)?;
    deep::show(&stage)
}
