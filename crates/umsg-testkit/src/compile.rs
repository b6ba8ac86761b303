//! Compiles C programs.

use crate::run::{finish, succeed};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that is set on a machine without a compiler. It says that the programs were compiled beforehand.
pub const COMPILED: &str = "UMSG_TEST_COMPILED";

/// A call of the C compiler, or of the C++ compiler for sources that end with `.cpp`.
#[derive(Debug)]
pub struct Compile {
    compiler: Command,
    output: PathBuf,
    unfinished: PathBuf,
}

/// Returns the compiler of this machine for a source file.
pub fn native(source: &Path) -> Command {
    let is_cpp = source.extension().is_some_and(|ending| ending == "cpp");
    Command::new(if is_cpp { "c++" } else { "cc" })
}

impl Compile {
    /// Compiles a source file into a program or library.
    pub fn new(source: &Path, output: impl Into<PathBuf>) -> Compile {
        Compile::by(native(source), source, output)
    }

    /// Compiles a source file with this compiler.
    pub fn by(mut compiler: Command, source: &Path, output: impl Into<PathBuf>) -> Compile {
        let output = output.into();
        // The output first gets another name, because another process may compile the same program at the same time.
        let mut unfinished = output.clone().into_os_string();
        unfinished.push(format!(".{}", std::process::id()));
        compiler.arg(source).arg("-o").arg(&unfinished);
        Compile {
            compiler,
            output,
            unfinished: unfinished.into(),
        }
    }

    /// Adds the warnings that the project's own programs must not cause, and the data that a debugger needs.
    #[must_use]
    pub fn strict(self) -> Compile {
        self.args(["-Wall", "-Wextra", "-Werror", "-g", "-O1"])
    }

    /// Adds arguments after the source file, where libraries belong.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Compile {
        self.compiler.args(arguments);
        self
    }

    /// Compiles, and returns the program. Fails the test if the compiler fails. If the variable [`COMPILED`] is set, the program must already exist.
    pub fn run(mut self) -> PathBuf {
        if std::env::var_os(COMPILED).is_some() {
            let program = self.output.display();
            assert!(self.output.exists(), "{program} was not compiled for this");
            return self.output;
        }
        succeed(&mut self.compiler);
        self.name()
    }

    /// Does the same as [`run`](Self::run), but returns None if the compiler fails.
    pub fn try_run(mut self) -> Option<PathBuf> {
        let is_compiled = finish(&mut self.compiler).status.success();
        is_compiled.then(|| self.name())
    }

    fn name(self) -> PathBuf {
        std::fs::rename(&self.unfinished, &self.output).unwrap();
        self.output
    }
}
