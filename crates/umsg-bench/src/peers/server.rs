//! Message servers that the measurement starts. Each server writes into the measurement's directory, and ends with the measurement.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::scratch::Scratch;
use crate::clock;
use crate::failure::Failure;
use crate::{machine, supervisor};

/// The maximum time of a server's start.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that the measurement has started.
pub struct Server {
    process: Child,
    log: PathBuf,
    version: String,
}

impl Server {
    /// Starts the server on these CPUs. `arguments` gets the server's own directory and adds the arguments to the command.
    ///
    /// # Errors
    /// Fails if the server is not installed; the error names the package that has it.
    pub fn start(
        program: &str,
        scratch: &Scratch,
        cpus: Vec<usize>,
        arguments: impl FnOnce(&mut Command, &std::path::Path),
    ) -> Result<Self, Failure> {
        let (program, version) = installed(program)?;
        let directory = scratch
            .path()
            .join(program.rsplit('/').next().unwrap_or("server"));
        fs::create_dir(&directory)?;
        let log = directory.join("log");
        let file = File::create(&log)?;
        let mut command = Command::new(program);
        arguments(&mut command, &directory);
        command
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stderr(file.try_clone()?)
            .stdout(file);
        ends_with_us(&mut command);
        // SAFETY: between fork and exec, the closure makes one system call with a set on its stack, and takes no lock.
        unsafe {
            command.pre_exec(move || {
                machine::pin_to(&cpus).map_err(|_| std::io::Error::last_os_error())
            });
        }
        Ok(Self {
            process: command.spawn()?,
            log,
            version,
        })
    }

    /// Repeats the attempt until the server answers.
    pub fn wait_for<T>(
        &mut self,
        mut attempt: impl FnMut(u32) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let end = Instant::now() + PATIENCE;
        loop {
            match attempt(self.process.id()) {
                Ok(done) => return Ok(done),
                Err(failure) if Instant::now() > end || self.process.try_wait()?.is_some() => {
                    let log = fs::read_to_string(&self.log).unwrap_or_default();
                    let says = log.lines().last().unwrap_or("nothing").trim().to_owned();
                    return Err(Failure::new(format!(
                        "the server did not start: {failure}. The server's output: {says}"
                    )));
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Returns the version that the server reports.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the CPU time that the server has taken so far, in nanoseconds.
    pub fn cpu(&self) -> u64 {
        clock::cpu_of(self.process.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended by itself. Its data is not needed any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes the kernel end a program when the measuring process dies in any way.
pub fn ends_with_us(command: &mut Command) {
    let us = std::process::id();
    // SAFETY: between fork and exec, the closure makes two system calls that access no memory, and takes no lock.
    unsafe {
        command.pre_exec(move || {
            supervisor::die_with_parent(us);
            Ok(())
        });
    }
}

/// Returns the path of the program and the version that the program reports. Servers may be in directories that only root's PATH has.
fn installed(program: &str) -> Result<(String, String), Failure> {
    for path in [program.to_owned(), format!("/usr/sbin/{program}")] {
        match Command::new(&path).arg("--version").output() {
            Ok(output) => {
                let says = String::from_utf8_lossy(&output.stdout);
                return Ok((path, version(&says)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::new(format!("{path}: {error}"))),
        }
    }
    Err(Failure::new(format!(
        "no {program}: apt-get install {program}"
    )))
}

/// Returns the first word that begins as a version does: "7.0.15" of "Redis server v=7.0.15 sha=...".
fn version(says: &str) -> String {
    let words = says.split_whitespace();
    let mut versions = words.map(|word| word.trim_start_matches(['v', '=']));
    let found = versions.find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    found.unwrap_or("of unknown version").to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Owned;
    use super::*;

    #[test]
    fn versions_are_found_in_what_servers_say() {
        assert_eq!(version("Redis server v=7.0.15 sha=00000000:0"), "7.0.15");
        assert_eq!(version("nats-server: v2.9.10\n"), "2.9.10");
    }

    #[test]
    fn a_server_that_is_not_there_is_missed_with_its_package() {
        let owned = Owned::new().unwrap();
        let started = Server::start("no-such-server", owned.scratch(), vec![0], |_, _| {});
        let says = started.err().unwrap().to_string();
        assert_eq!(says, "no no-such-server: apt-get install no-such-server");
    }

    #[test]
    fn a_server_that_ends_at_once_is_quoted() {
        let owned = Owned::new().unwrap();
        let mut server = Server::start("ls", owned.scratch(), vec![0], |command, _| {
            command.arg("/no/such/directory");
        })
        .unwrap();
        let waited = server.wait_for(|_| Err::<(), _>(Failure::new("silence")));
        let says = waited.unwrap_err().to_string();
        assert!(
            says.contains("silence") && says.contains("/no/such/directory"),
            "{says}"
        );
    }
}
