//! The C programs in `tests/programs` of the drop-in and of the C library, and how they are compiled: natively by the tests, and beforehand for a
//! machine without a compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compile::Compile;

/// Returns the directory of a crate of this workspace.
fn of_crate(name: &str) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.unwrap_or(Path::new("/")).join(name)
}

/// Compiles `NAME.c` of the drop-in into `workshop/OUTPUT`, with further arguments for the compiler.
pub fn of_drop_in<S: AsRef<str>>(
    compiler: Command,
    name: &str,
    workshop: &Path,
    output: &str,
    arguments: &[S],
) -> Compile {
    let source = of_crate("umsg-preload").join(format!("tests/programs/{name}.c"));
    Compile::by(compiler, &source, workshop.join(output))
        .strict()
        .args(["-std=gnu11"])
        .args(arguments.iter().map(AsRef::as_ref))
        .args(["-pthread", "-ldl"])
}

/// Compiles a source of the C library's tests into `workshop/OUTPUT`. The flags in `linking` find the installed library.
pub fn of_c_library<S: AsRef<str>>(
    compiler: Command,
    source: &str,
    workshop: &Path,
    output: &str,
    options: &[S],
    linking: &[String],
) -> Compile {
    let source = of_crate("umsg-c").join("tests/programs").join(source);
    Compile::by(compiler, &source, workshop.join(output))
        .strict()
        .args(["-pedantic"])
        .args(options.iter().map(AsRef::as_ref))
        .args(linking)
        .args(["-pthread"])
}

/// Returns the flags by which a program is compiled and linked with the C library below `prefix`.
pub fn flags(prefix: &Path) -> Vec<String> {
    let prefix = prefix.display();
    vec![
        format!("-I{prefix}/include"),
        format!("-L{prefix}/lib"),
        "-lumsg".into(),
    ]
}

/// Returns the flag by which a program finds the C library below `prefix` when it runs.
pub fn run_path(prefix: &Path) -> String {
    format!("-Wl,-rpath,{}", prefix.join("lib").display())
}
