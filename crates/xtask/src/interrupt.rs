//! Turns Ctrl-C and similar signals into an ordinary failure, so that temporary files are removed.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use crate::failure::{Context as _, Failure, Result};
use crate::shell;

/// The interval at which a waiting task checks for a signal: long enough not to disturb a measurement.
const LOOK: Duration = Duration::from_millis(20);

/// The signal that came, or 0.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    // Relaxed: no other data depend on the signal's number.
    SIGNAL.store(signal, Ordering::Relaxed);
}

/// From this call on, a signal that would end the process is only recorded. Children start with the default action, because exec resets handlers.
#[allow(
    unsafe_code,
    reason = "installing a handler has no safe form without a further crate"
)]
pub fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores to an atomic and does nothing else, which a handler may; it has the type that
        // signal() asks for.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

/// Fails if a signal came.
pub fn check() -> Result<()> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(Failure::Interrupted(signal)),
    }
}

/// Runs a command to its end. After a signal, kills and reaps the command's process.
pub fn run(command: &mut Command) -> Result<ExitStatus> {
    let mut child = spawn(command.stdin(Stdio::null()))?;
    wait(&mut child)
}

/// Runs a command as `run` does, and returns its output. The output goes through files, because no process reads during the wait.
pub fn output(command: &mut Command) -> Result<Output> {
    let mut files = [temporary()?, temporary()?];
    command.stdin(Stdio::null());
    command.stdout(twin(&files[0])?).stderr(twin(&files[1])?);
    let mut child = spawn(command)?;
    let status = wait(&mut child)?;
    let [stdout, stderr] = files.each_mut().map(contents);
    Ok(Output {
        status,
        stdout: stdout?,
        stderr: stderr?,
    })
}

fn temporary() -> Result<File> {
    tempfile::tempfile().context("a temporary file")
}

fn twin(file: &File) -> Result<File> {
    file.try_clone().context("a temporary file")
}

fn contents(file: &mut File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .context("a temporary file")?;
    Ok(bytes)
}

fn spawn(command: &mut Command) -> Result<Child> {
    check()?;
    command.spawn().context(shell::line(command))
}

fn wait(child: &mut Child) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().context("wait")? {
            check()?;
            return Ok(status);
        }
        if let Err(interrupted) = check() {
            // Each call fails only if the child has already ended.
            let _ = child.kill();
            let _ = child.wait();
            return Err(interrupted);
        }
        std::thread::sleep(LOOK);
    }
}
