//! `cargo xtask aarch64`: tests on an emulated aarch64 machine.
//!
//! QEMU emulates a machine with two cores. It runs a kernel of Debian with a file system in memory: the cross-built test programs, the drop-in, the C
//! library, C programs compiled beforehand, glibc, and BusyBox. All files of the build have the same paths on the machine as on the host, so a test
//! finds its files at the paths that were known when it was built.
//!
//! ```text
//! target/aarch64-machine/debian/vmlinuz, busybox    fetched once
//!                        files.cpio                 the file system
//!                        console.log                all that the machine has printed
//! ```
//!
//! Emulation by user-mode QEMU is not possible: it refuses set_robust_list(2), without which umsg refuses to work. The emulated cores access memory
//! in the strong order of the host's processor. The models under loom check orderings.

mod build;
mod fetch;
mod image;
mod machine;
mod needs;
mod programs;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use self::build::Built;
use self::fetch::Debian;
use self::machine::Machine;
pub use self::programs::Program;
use self::programs::Selection;
use crate::failure::{Context as _, Result};
use crate::interrupt;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Rust's name for the platform of the machine.
const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The C compiler, which also links.
const COMPILER: &str = "aarch64-linux-gnu-gcc";

/// The default processor of the machine, by its name in QEMU.
const CPU: &str = "neoverse-n1";

/// The choices of `cargo xtask aarch64`.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Run the test programs whose names contain this text, such as umsg/crash_points or umsg-preload, instead of the default ones
    filter: Option<String>,
    /// Run only the tests whose names contain this text
    #[arg(long, value_name = "TEXT")]
    test: Option<String>,
    /// Run all test programs that need nothing but this machine, instead of the choice for CI
    #[arg(long, conflicts_with = "filter")]
    full: bool,
    /// The processor, by its name in QEMU; cortex-a72 has no atomic instructions and makes loops of exclusive loads and stores
    #[arg(long, value_name = "NAME", default_value = CPU)]
    cpu: String,
}

/// Builds the test programs and runs them on the machine. Fails if a test program fails.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    interrupt::install();
    needs::check(workspace)?;
    let begin = Instant::now();
    let selection = Selection::new(workspace, options.filter.as_deref(), options.full)?;
    let directory = directory(workspace);
    fs::create_dir_all(&directory).context(directory.display())?;
    let debian = fetch::debian(workspace, &directory)?;
    let mut steps = Steps::new(workspace.root.clone());
    let built = Built::make(workspace, &selection, &mut steps)?;
    let test = options.test.as_deref();
    println!("\n==> built after {} s", begin.elapsed().as_secs());
    start(workspace, &directory, &debian, &built, test, &options.cpu)
}

/// Runs commands on the machine, which also has Debian's Python and these files, each at the given path. Fails if a command fails.
pub fn run_with_python(
    workspace: &Workspace,
    programs: Vec<Program>,
    mut files: Vec<(PathBuf, String)>,
    variables: Vec<(&'static str, PathBuf)>,
) -> Result<()> {
    interrupt::install();
    needs::check(workspace)?;
    let directory = directory(workspace);
    fs::create_dir_all(&directory).context(directory.display())?;
    let debian = fetch::debian(workspace, &directory)?;
    files.extend(fetch::python(&directory)?);
    let built = Built {
        programs,
        files: Vec::new(),
        others: files,
        directories: Vec::new(),
        variables,
    };
    start(workspace, &directory, &debian, &built, None, CPU)
}

/// Starts the machine with these files, and runs the programs.
fn start(
    workspace: &Workspace,
    directory: &Path,
    debian: &Debian,
    built: &Built,
    test: Option<&str>,
    cpu: &str,
) -> Result<()> {
    let files = directory.join("files.cpio");
    let script = machine::script(&built.programs, &built.variables, test);
    image::write(workspace, &files, debian, built, &script)?;
    println!(
        "\n==> {} test programs on an emulated {cpu}",
        built.programs.len()
    );
    let machine = Machine {
        kernel: &debian.kernel,
        files: &files,
        cpu,
        console: directory.join("console.log"),
    };
    machine.run(&built.programs)
}

/// Returns the directory of everything that this task makes in addition to cargo's files.
fn directory(workspace: &Workspace) -> PathBuf {
    workspace.target.join("aarch64-machine")
}
