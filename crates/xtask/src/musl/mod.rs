//! `cargo xtask musl`: the drop-in for musl, under the C programs of its tests, compiled for musl.
//!
//! The programs run on musl's dynamic linker, in a mount namespace where the other programs that they start are static. The answers are
//! compared with the kernel's, as in the tests for glibc.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::package::{missing, text};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The target of programs for musl.
pub const TARGET: &str = "x86_64-unknown-linux-musl";
/// The path of musl's libc, from Debian's package musl.
const LIBC: &str = "/usr/lib/x86_64-linux-musl/libc.so";
/// The path of BusyBox, from Debian's package busybox-static.
pub const BUSYBOX: &str = "/bin/busybox";

/// The compiler, with the directories of the kernel's headers, which musl-gcc does not search.
pub const COMPILER: &str =
    "musl-gcc -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu";

/// The path, in the checkout, of the script that prepares the mount namespace and enters it.
const ENTER: &str = "crates/xtask/src/musl/enter.sh";

/// The tests whose programs can run with musl. Three tests need glibc: `symbols` (names of glibc), `stack` (makecontext), `sandboxed` (glibc's
/// loader).
const TESTS: [&str; 19] = [
    "cancellation",
    "descriptor",
    "epoll",
    "exhaustion",
    "handlers",
    "layout",
    "messages",
    "nonblocking",
    "notify",
    "numbers",
    "open",
    "poll",
    "processes",
    "random_polling",
    "recycle",
    "sysv",
    "threads",
    "timer",
    "users",
];

/// Builds the drop-in, and runs the tests.
pub fn run(workspace: &Workspace) -> Result<()> {
    interrupt::install();
    need_target(workspace)?;
    need_busybox(workspace)?;
    let mut steps = Steps::new(workspace.root.clone());
    let directory = workspace.target.join("musl");
    let flags = shared_library(workspace, &directory, Panics::Abort)?.join("\x1f");
    let mut build = workspace.cargo(&["build", "--target", TARGET, "-p", "umsg-preload"]);
    build
        .env("CARGO_TARGET_DIR", &directory)
        .env("CARGO_ENCODED_RUSTFLAGS", flags);
    steps.need("drop-in for musl", &mut build)?;
    let mut build = tests(workspace.cargo(&["test", "--no-run"]));
    steps.need("the tests", &mut build)?;
    let mut enter = workspace.command("unshare");
    enter.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        enter.args(["--user", "--map-root-user", "--map-auto"]);
    }
    enter.args(["sh", ENTER]);
    enter.arg(workspace.cargo(&[]).get_program());
    enter.args(["test", "--no-fail-fast"]);
    let library = directory.join(TARGET).join("debug/libumsg_preload.so");
    enter
        .env("UMSG_PRELOAD_LIBRARY", library)
        .env("UMSG_TEST_CC", COMPILER);
    steps.run("C programs for musl", &mut tests(enter))?;
    steps.finish()
}

fn tests(mut cargo: Command) -> Command {
    cargo.args(["-p", "umsg-preload"]);
    for test in TESTS {
        cargo.args(["--test", test]);
    }
    cargo
}

/// Fails if Rust has no standard library for musl.
pub fn need_target(workspace: &Workspace) -> Result<()> {
    let sysroot = text(workspace.command("rustc").args(["--print", "sysroot"]))?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET);
    match libraries.exists() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "Rust's standard library for {TARGET} is missing; rustup target add {TARGET}"
        ))),
    }
}

/// Fails if BusyBox is missing or needs a dynamic linker.
pub fn need_busybox(workspace: &Workspace) -> Result<()> {
    if !Path::new(BUSYBOX).exists() {
        return Err(missing(BUSYBOX, "busybox-static"));
    }
    let linked = text(workspace.command("ldd").arg(BUSYBOX)).unwrap_or_default();
    match linked.contains("libc.so.6") {
        false => Ok(()),
        true => Err(Failure::new(format!(
            "{BUSYBOX} needs glibc; apt-get install busybox-static"
        ))),
    }
}

/// The effect of a panic in a library that is linked with musl's libc.so.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Panics {
    /// A panic ends the process.
    Abort,
    Unwind,
}

/// Returns the flags of rustc for a library that is linked with musl's libc.so. Writes a linker script below `directory`.
pub fn shared_library(
    workspace: &Workspace,
    directory: &Path,
    panics: Panics,
) -> Result<Vec<String>> {
    if text(workspace.command("musl-gcc").arg("--version")).is_err() {
        return Err(missing("musl-gcc", "musl-tools"));
    }
    // The target asks for libgcc_s, which Alpine has and musl-gcc has not. The library needs only functions of libgcc_s that libgcc.a and libgcc_eh.a
    // also have. To unwind, this libgcc_eh.a needs a function of glibc, and Rust's unwinder for musl does not.
    let (name, unwinder) = match panics {
        Panics::Abort => ("libgcc", "-lgcc_eh".to_owned()),
        Panics::Unwind => ("libunwind", unwinder(workspace)?.display().to_string()),
    };
    let directory: PathBuf = directory.join(name);
    fs::create_dir_all(&directory).context(directory.display())?;
    let script = directory.join("libgcc_s.so");
    fs::write(&script, format!("INPUT({unwinder} -lgcc)\n")).context(script.display())?;
    let search = format!("-Lnative={}", directory.display());
    Ok(vec![
        "-Ctarget-feature=-crt-static".to_owned(),
        "-Clinker=musl-gcc".to_owned(),
        search,
    ])
}

/// Returns the path of the unwinder of the standard library for musl.
fn unwinder(workspace: &Workspace) -> Result<PathBuf> {
    let mut ask = workspace.command("rustc");
    let libraries = text(ask.args(["--print", "target-libdir", "--target", TARGET]))?;
    let unwinder = Path::new(libraries.trim()).join("self-contained/libunwind.a");
    match unwinder.exists() {
        true => Ok(unwinder),
        false => Err(Failure::new(format!(
            "{} is missing; rustup target add {TARGET}",
            unwinder.display()
        ))),
    }
}

/// Returns the symbols that a file needs and that musl's libc.so does not have, apart from the symbols of Python. A missing weak symbol is no error.
pub fn absent_symbols(workspace: &Workspace, file: &Path) -> Result<Vec<String>> {
    let symbols = |which: &str, file: &Path| {
        let mut nm = workspace.command("nm");
        text(nm.args(["-D", "--format=posix", which]).arg(file))
    };
    let provided = symbols("--defined-only", Path::new(LIBC))?;
    let provided: HashSet<_> = provided
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let needed = symbols("--undefined-only", file)?;
    let needed = needed.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let name = fields.next()?;
        (fields.next() == Some("U")).then_some(name)
    });
    let is_pythons = |name: &str| name.starts_with("Py") || name.starts_with("_Py");
    Ok(needed
        .filter(|name| !is_pythons(name) && !provided.contains(name))
        .map(str::to_owned)
        .collect())
}
