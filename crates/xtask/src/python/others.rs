//! Wheels for other systems: Linux with glibc 2.17 or later, on x86-64 and aarch64, and Linux with musl.
//!
//! The native module has the stable interface of Python 3.9, so a system needs one wheel for all versions of Python.

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::wheel::{self, Added};
use super::{Package, empty, only};
use crate::failure::{Failure, Result};
use crate::musl::{self, Panics};
use crate::package::portable::{self, Zig, musl_libraries};
use crate::package::{Build, GLIBC, text, versions};
use crate::steps::Steps;

/// A system that gets a wheel.
pub struct System {
    pub name: &'static str,
    /// Rust's name for the platform of the system.
    target: &'static str,
    /// The tag of the wheel; those of manylinux name the oldest glibc.
    tag: &'static str,
    /// The beginning of the names of the tools that read and strip the wheel's files.
    tools: &'static str,
}

const MANYLINUX: &str = "manylinux2014";

/// The systems for which wheels are made. aarch64 with musl is left out, because no distribution has a standard library for it; only rustup has one.
pub const SYSTEMS: [System; 3] = [
    System {
        name: "glibc, x86-64",
        target: GLIBC,
        tag: MANYLINUX,
        tools: "",
    },
    System {
        name: "musl, x86-64",
        target: musl::TARGET,
        tag: "musllinux_1_2",
        tools: "",
    },
    System {
        name: "glibc, aarch64",
        target: "aarch64-unknown-linux-gnu",
        tag: MANYLINUX,
        tools: "aarch64-linux-gnu-",
    },
];

impl System {
    fn has_glibc(&self) -> bool {
        self.tag == MANYLINUX
    }

    /// Builds the wheel, and returns its path.
    pub fn make(
        &self,
        package: &Package,
        environment: &Environment,
        source: &Path,
        files: &Path,
        steps: &mut Steps,
    ) -> Result<PathBuf> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Failure::new("the wheels are built on x86-64 only"));
        }
        let bare = self.module(package, environment, source, steps)?;
        let added = self.programs(package, steps)?;
        println!("\n==> wheel for {}: command and drop-in", self.name);
        let wheel = wheel::complete(package, environment, &bare, &added, self.tools, files)?;
        self.check(package, environment, &wheel)?;
        Ok(wheel)
    }

    /// Builds the native module, as a wheel without the command.
    fn module(
        &self,
        package: &Package,
        environment: &Environment,
        source: &Path,
        steps: &mut Steps,
    ) -> Result<PathBuf> {
        let bare = package.directory.join("bare");
        empty(&bare)?;
        let mut command = environment.command("maturin");
        command.current_dir(source);
        command.args(["build", "--locked", "--profile", "release"]);
        command.args(["--target", self.target, "--compatibility", self.tag]);
        command.arg("--out").arg(&bare);
        let build = if self.has_glibc() {
            command.arg("--zig");
            Zig::install(package.workspace, steps)?.lend(&mut command)?;
            Build::new(package.workspace, "build-wheels", Some(self.target))?
        } else {
            musl_libraries(package.workspace, "build-wheels-musl", Panics::Unwind)?
        };
        build.lend(&mut command);
        let what = format!("wheel for {}: native module", self.name);
        steps.need(&what, &mut command)?;
        only(&bare, ".whl")
    }

    fn programs(&self, package: &Package, steps: &mut Steps) -> Result<Added> {
        let workspace = package.workspace;
        if !self.has_glibc() {
            return Ok(Added {
                command: portable::static_command(workspace, steps)?,
                drop_in: portable::drop_in_for_musl(workspace, steps)?,
            });
        }
        let zig = Zig::install(workspace, steps)?;
        let build = Build::new(workspace, "build-glibc", Some(self.target))?;
        let mut command = zig.of(&build, self.target, &["umsg-cli", "umsg-preload"])?;
        let what = format!("command and drop-in for {}", self.name);
        steps.need(&what, &mut command)?;
        Ok(Added::of(&build))
    }

    /// Fails if a file of the wheel needs a newer glibc than the tag says, or, in a wheel for musl, a symbol that musl lacks.
    fn check(&self, package: &Package, environment: &Environment, wheel: &Path) -> Result<()> {
        let objdump = format!("{}objdump", self.tools);
        let tree = wheel::unpack(package, environment, wheel, self.tools)?;
        for name in tree.files()? {
            let is_compiled = name.ends_with(".so") || name.ends_with("/scripts/umsg");
            if !is_compiled {
                continue;
            }
            let file = tree.root.join(&name);
            if self.has_glibc() {
                let (major, minor) = versions::check(&objdump, &file)?;
                println!("{name}: glibc {major}.{minor}");
                continue;
            }
            let headers = text(package.workspace.command(&objdump).arg("-p").arg(&file))?;
            let needed = headers
                .lines()
                .filter_map(|line| line.trim().strip_prefix("NEEDED"))
                .map(str::trim);
            let foreign: Vec<_> = needed.filter(|library| *library != "libc.so").collect();
            if !foreign.is_empty() {
                return Err(Failure::new(format!("{name} needs {}", foreign.join(", "))));
            }
            let mut read = package.workspace.command("readelf");
            let dynamic = text(read.arg("--dynamic").arg(&file))?;
            if name.ends_with(".so") && dynamic.contains("STATIC_TLS") {
                return Err(Failure::new(format!(
                    "{name} has thread-local storage that musl gives no library which a running program loads"
                )));
            }
            let missing = musl::absent_symbols(package.workspace, &file)?;
            if !missing.is_empty() {
                return Err(Failure::new(format!(
                    "{name} needs {}, which musl does not have",
                    missing.join(", ")
                )));
            }
            println!("{name}: musl alone");
        }
        Ok(())
    }
}
