//! `cargo xtask hostile`: an attacker that overwrites queues in use, for a given time.

use std::process::Command;

use crate::failure::Result;
use crate::steps::Steps;
use crate::toolchain::{self, Nightly};
use crate::workspace::Workspace;

/// The default time of the attack, in seconds.
pub const SECONDS: u64 = 60;

/// Attacks queues of all kinds; with `asan` in a build that reports each access outside its object.
pub fn run(workspace: &Workspace, seconds: u64, asan: bool) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    if !asan {
        return steps.need("hostile", &mut attack(workspace, seconds));
    }
    let what = "hostile, AddressSanitizer";
    match Nightly::find() {
        Some(nightly) => steps.need(what, &mut with_asan(workspace, &nightly, seconds)),
        None => {
            steps.skip(what, toolchain::REMEDY);
            Ok(())
        }
    }
}

/// Returns the command that attacks queues in a release build.
pub fn attack(workspace: &Workspace, seconds: u64) -> Command {
    let mut attack = workspace.cargo(&["test", "-p", "umsg", "--release"]);
    arguments(&mut attack, seconds);
    attack
}

/// Returns the command that attacks queues with AddressSanitizer and the checks of a debug build. The build has a separate target directory.
fn with_asan(workspace: &Workspace, nightly: &Nightly, seconds: u64) -> Command {
    let mut attack = nightly.cargo(workspace, &["test", "-p", "umsg"]);
    attack.args(["--target", &nightly.host]);
    arguments(&mut attack, seconds);
    attack
        .env("RUSTFLAGS", "-Zsanitizer=address")
        // Memory that a child has not freed at its end is no leak; and the test needs its own handler of SIGBUS.
        .env("ASAN_OPTIONS", "detect_leaks=0:handle_sigbus=0")
        .env("UMSG_HOSTILE_UNLIMITED", "1")
        .env("CARGO_TARGET_DIR", workspace.target.join("asan"));
    attack
}

fn arguments(attack: &mut Command, seconds: u64) {
    attack.args(["--test", "hostile", "--", "--nocapture"]);
    attack.env("UMSG_HOSTILE_SECONDS", seconds.to_string());
}
