//! The reasons why a program was not run.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::elf::Machine;
use super::privilege::Privilege;
use crate::failure::Code;

/// A fault of a file: the program, or the interpreter of a script.
#[derive(Debug)]
pub struct Fault {
    pub file: PathBuf,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    /// PATH has no such program, or the file does not exist.
    NotFound,
    NotExecutable,
    NotAFile,
    NoInterpreter(PathBuf),
    /// execve(2) failed.
    NotExecuted(io::Error),
    Static,
    Privileged(Privilege),
    OtherMachine {
        machine: Machine,
        library: Machine,
    },
    /// The program is loaded by this dynamic linker, which belongs to another C library than the drop-in.
    OtherLibc(PathBuf),
}

impl Kind {
    pub fn of(self, file: impl Into<PathBuf>) -> Fault {
        let file = file.into();
        Fault { file, kind: self }
    }

    pub fn code(&self) -> Code {
        match self {
            Kind::NotFound => Code::NotFound,
            Kind::NotExecutable
            | Kind::NotAFile
            | Kind::NoInterpreter(_)
            | Kind::NotExecuted(_) => Code::NotExecutable,
            Kind::Static | Kind::Privileged(_) | Kind::OtherMachine { .. } | Kind::OtherLibc(_) => {
                Code::NotInterceptable
            }
        }
    }

    /// Returns whether a supervisor can intercept the program's calls if the library can't.
    pub fn is_supervisable(&self) -> bool {
        matches!(self, Kind::Static)
    }

    /// Returns whether the program would run without the library, so that `--force` may start it.
    pub fn is_harmless(&self) -> bool {
        self.code() == Code::NotInterceptable
    }
}

/// Formats the text that follows the file's name as the subject, such as "is not executable".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::NotFound => write!(
                f,
                "was not found; check the name, or give the path of the file"
            ),
            Kind::NotExecutable => write!(f, "is not executable; make it executable with chmod +x"),
            Kind::NotAFile => write!(f, "is not a file; give the path of a program"),
            Kind::NoInterpreter(path) => write!(
                f,
                "needs the interpreter {}, which does not exist; install the interpreter, or correct the script's first line",
                path.display()
            ),
            Kind::NotExecuted(error) => write!(f, "can't be executed: {error}"),
            Kind::Static => write!(
                f,
                "is statically linked, so no library can be preloaded; use --raw-syscalls=auto, or link the program dynamically"
            ),
            Kind::Privileged(privilege) => write!(
                f,
                "{privilege}, so the system ignores LD_PRELOAD; run a copy without this privilege"
            ),
            Kind::OtherMachine { machine, library } => write!(
                f,
                "is for {machine}, and this umsg is for {library}; use a umsg built for {machine}"
            ),
            Kind::OtherLibc(linker) => write!(
                f,
                "needs {}, the dynamic linker of another C library; use a umsg built for that library",
                linker.display()
            ),
        }
    }
}
