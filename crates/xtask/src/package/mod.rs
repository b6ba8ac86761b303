//! `cargo xtask package`: the files that users install, built so that two builds give the same bytes.
//!
//! ```text
//! target/packages/files/umsg_V_ARCH.deb, libumsg0_V_ARCH.deb, libumsg-dev_V_ARCH.deb, umsg-bridge_V_ARCH.deb
//!                       umsg-V-linux-MACHINE.tar.gz    the static command and bridge, the drop-ins for glibc and for musl
//!                       umsg-shm-V.crate, umsg-V.crate, umsg-carry-V.crate, umsg-trace-V.crate, umsg-preload-V.crate, umsg-cli-V.crate, umsg-bridge-V.crate
//!                 build*/                               the builds
//!                 roots/                                empty systems for the tests
//!                 tools/                                the linker for old versions of glibc
//! ```
//!
//! The texts of the packages are in `packaging/`.

mod build;
mod compare;
mod crates;
mod debian;
mod files;
pub mod licences;
pub mod portable;
mod tarball;
mod test;
mod tree;
pub mod versions;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub use self::build::{Build, epoch, text};
pub use self::crates::CRATES;
pub use self::debian::CRATES as OF_DEBIAN;
use self::files::Files;
pub use self::test::{ALPINE, OLD_DEBIAN, Root, User};
pub use self::tree::{Tree, files_below, succeed};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The choices of `cargo xtask package`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The kinds of packages, if not all
    #[arg(value_enum)]
    kinds: Vec<Kind>,
    /// Install the packages in empty systems, and use them there as an ordinary user
    #[arg(long)]
    test: bool,
    /// Take the programs of Debian's packages from target/release, and do not compile the crates again: for tests, not for a release
    #[arg(long)]
    quick: bool,
    /// Build again from a copy of the last commit, with another directory, umask, locale and time, and compare the bytes
    #[arg(long, conflicts_with = "test")]
    twice: bool,
}

/// A kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// umsg, libumsg0, libumsg-dev and umsg-bridge for Debian
    Debian,
    /// An archive for any Linux: the static command and bridge, the drop-ins for glibc and for musl
    Tarball,
    /// The crates, as for crates.io
    Crates,
}

impl Options {
    /// Returns the options that build the packages of all kinds, and run no tests.
    pub fn all() -> Self {
        Self {
            kinds: Vec::new(),
            test: false,
            quick: false,
            twice: false,
        }
    }

    fn has(&self, kind: Kind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }
}

/// Builds the packages, lists them, and tests them with `--test`.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    interrupt::install();
    let mut steps = Steps::new(workspace.root.clone());
    let files = make(workspace, options, &mut steps)?;
    files.print()?;
    if options.test {
        test::run(workspace, options, &files, &mut steps)?;
    }
    if options.twice {
        compare::with_another_directory(workspace, options, &files, &mut steps)?;
    }
    steps.finish()
}

/// Builds the packages.
pub fn make(workspace: &Workspace, options: &Options, steps: &mut Steps) -> Result<Files> {
    let mut files = Files::new(workspace)?;
    if options.has(Kind::Debian) {
        debian::make(workspace, options.quick, &mut files, steps)?;
    }
    if options.has(Kind::Tarball) {
        tarball::make(workspace, &mut files, steps)?;
    }
    if options.has(Kind::Crates) {
        crates::make(workspace, options.quick, &mut files, steps)?;
    }
    Ok(files)
}

/// Returns the directory of everything that this task makes.
fn directory(workspace: &Workspace) -> PathBuf {
    workspace.target.join("packages")
}

/// The target of programs for glibc.
pub const GLIBC: &str = "x86_64-unknown-linux-gnu";

/// The version of all packages.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the error for a missing program, which names the package that has the program.
pub fn missing(program: &str, package: &str) -> Failure {
    Failure::new(format!("{program} is missing; apt-get install {package}"))
}
