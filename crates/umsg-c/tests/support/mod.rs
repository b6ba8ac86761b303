//! Compiles programs against the installed C library as a user would, and runs them.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test program uses some of it"
)]

pub use umsg_testkit::artefacts::c_prefix as prefix;
pub use umsg_testkit::compile::Compile;
use umsg_testkit::compile::native;
use umsg_testkit::programs;
use umsg_testkit::run::on_the_path;
pub use umsg_testkit::run::{finish, skip, succeed, text};

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory below `target/` for the files that the tests build.
pub fn workshop() -> PathBuf {
    umsg_testkit::artefacts::workshop("umsg-c")
}

/// A namespace for one test, which is removed when the value is dropped.
pub type Namespace = umsg_testkit::TestNamespace;

/// Makes a namespace.
pub fn namespace() -> Namespace {
    Namespace::new("umsg-c-test-")
}

/// The compilation of a program.
pub struct Build<'a> {
    /// The path of the source, below `tests/programs`.
    pub source: &'a str,
    /// The name of the program.
    pub output: &'a str,
    /// Further arguments for the compiler.
    pub options: &'a [&'a str],
}

/// Compiles a program with the flags that pkg-config returns.
pub fn compile(build: &Build) -> PathBuf {
    programs::of_c_library(
        native(Path::new(build.source)),
        build.source,
        &workshop(),
        build.output,
        build.options,
        &linking(),
    )
    .run()
}

/// Returns the arguments that link a program with the installed library, and let the program find that library.
pub fn linking() -> Vec<String> {
    let mut flags = flags();
    flags.push(programs::run_path(prefix()));
    flags
}

/// Returns a file below `tests/programs`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// Returns the flags that pkg-config tells a compiler; without pkg-config, the same flags made by hand.
pub fn flags() -> Vec<String> {
    let told = pkg_config(&["--cflags", "--libs", "umsg"]);
    told.unwrap_or_else(|| programs::flags(prefix()))
}

/// Returns the output of pkg-config for the installed library; None if there is no pkg-config.
pub fn pkg_config(arguments: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new(on_the_path("pkg-config")?);
    command
        .args(arguments)
        .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    let said = succeed(&mut command);
    Some(said.split_whitespace().map(str::to_owned).collect())
}

/// Returns whether a directory of PATH has this program.
pub fn is_installed(program: &str) -> bool {
    on_the_path(program).is_some()
}
