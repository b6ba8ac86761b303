//! The packages in use: installed in empty systems, by ordinary users, together with programs that are compiled in these systems.

mod debian;
mod musl;
mod root;

pub use self::debian::OLD as OLD_DEBIAN;
pub use self::musl::ALPINE;
pub use self::root::{Root, User};
use super::{Files, Kind, Options};
use crate::failure::Result;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Tests the packages that were made.
pub fn run(
    workspace: &Workspace,
    options: &Options,
    files: &Files,
    steps: &mut Steps,
) -> Result<()> {
    if options.has(Kind::Debian) {
        debian::run(workspace, files, steps)?;
    }
    if options.has(Kind::Tarball) {
        debian::run_tarball(workspace, files, steps)?;
        debian::run_old(workspace, files, steps)?;
        musl::run(workspace, files, steps)?;
    }
    Ok(())
}
