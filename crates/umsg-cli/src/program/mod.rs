//! Checks whether LD_PRELOAD can load a library into a program. The check must precede the start: the system reports no error, and would run the
//! program without the library.

pub mod elf;
mod fault;
mod find;
mod privilege;
mod script;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use elf::{Elf, Libc};
pub use fault::{Fault, Kind};
pub use find::find;

/// The maximum number of nested interpreters that the system follows. Source: execve(2).
const MOST_INTERPRETERS: u32 = 5;
/// The interpreter of an executable file that is neither an ELF file nor names an interpreter. Source: execvp(3).
const SHELL: &str = "/bin/sh";

/// Checks that `library` can be loaded into the program, or into the interpreters of a script. An unreadable program passes the check.
pub fn check(program: &Path, library: &Elf) -> Result<(), Fault> {
    check_interpreted(program, library, MOST_INTERPRETERS)
}

fn check_interpreted(program: &Path, library: &Elf, more: u32) -> Result<(), Fault> {
    let Some(head) = head(program) else {
        return Ok(());
    };
    if elf::is_elf(&head) {
        return check_elf(program, library);
    }
    let (interpreter, named) = match script::interpreter(&head) {
        Some(line) => (line.interpreter.clone(), line.named_by_env()),
        None => (PathBuf::from(SHELL), None),
    };
    if !interpreter.exists() {
        return Err(Kind::NoInterpreter(interpreter).of(program));
    }
    if more == 0 {
        // If there are more nested interpreters, execve(2) reports the error.
        return Ok(());
    }
    check_interpreted(&interpreter, library, more - 1)?;
    // If the program does not exist, env(1) itself reports the error.
    match named.as_deref().map(find) {
        Some(Ok(path)) => check_interpreted(&path, library, more - 1),
        _ => Ok(()),
    }
}

fn check_elf(program: &Path, library: &Elf) -> Result<(), Fault> {
    let Ok(Some(elf)) = elf::read(program) else {
        return Ok(());
    };
    let checked = match check_loadable(&elf, library) {
        // A supervised program gains no privilege either, so a static program with a privilege is refused, too.
        loadable @ (Ok(()) | Err(Kind::Static)) => match privilege::gained_by(program) {
            Some(privilege) => Err(Kind::Privileged(privilege)),
            None => loadable,
        },
        other => other,
    };
    checked.map_err(|kind| kind.of(program))
}

/// Returns whether the dynamic linker of the program can load the library.
fn check_loadable(elf: &Elf, library: &Elf) -> Result<(), Kind> {
    // A library for which no C library is known is assumed to be built for the C library of this command.
    let needed = library.libc().unwrap_or(Libc::OWN);
    let (machine, library) = (elf.machine, library.machine);
    match &elf.interpreter {
        _ if machine != library => Err(Kind::OtherMachine { machine, library }),
        None => Err(Kind::Static),
        // The dynamic linker of one C library can't load a library for the other.
        Some(linker) if elf.libc() != Some(needed) => Err(Kind::OtherLibc(linker.clone())),
        Some(_) => Ok(()),
    }
}

/// Returns the C library of a program, or of the interpreter of a script. Returns None for a static or unreadable program.
pub fn libc(program: &Path) -> Option<Libc> {
    let mut program = program.to_owned();
    for _ in 0..=MOST_INTERPRETERS {
        let head = head(&program)?;
        if elf::is_elf(&head) {
            return elf::read(&program).ok()??.libc();
        }
        program = match script::interpreter(&head) {
            Some(line) => match line.named_by_env().as_deref().map(find) {
                Some(Ok(named)) => named,
                _ => line.interpreter,
            },
            None => PathBuf::from(SHELL),
        };
    }
    None
}

/// Returns the beginning of a file, as many bytes as the system inspects for `#!`.
fn head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let file = File::open(path).ok()?;
    file.take(256).read_to_end(&mut head).ok()?;
    Some(head)
}
