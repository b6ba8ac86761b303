//! The emulated machine: its start, its output, and its end.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::programs::Program;
use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::shell;
use crate::steps::{Output, Tests};

/// The maximum time for the start of the machine.
const TO_START: Duration = Duration::from_secs(120);
/// The maximum time from a program's limit until the machine has killed the program.
const TO_KILL: Duration = Duration::from_secs(60);
/// The interval at which a wait for the machine's output checks for an interrupt.
const LOOK: Duration = Duration::from_millis(100);
/// The beginning of each line that init.sh itself prints.
const MARK: &str = "@umsg ";

/// Returns the commands that run the programs, for init.sh.
pub fn script(
    programs: &[Program],
    variables: &[(&'static str, PathBuf)],
    test: Option<&str>,
) -> String {
    let run = |program: &Program| {
        let mut words = vec![
            "run".to_owned(),
            program.name.clone(),
            program.directory.display().to_string(),
            program.limit.as_secs().to_string(),
        ];
        words.push(program.executable.display().to_string());
        words.extend(program.arguments.iter().cloned());
        words.extend(test.map(str::to_owned));
        words
            .iter()
            .map(|word| quoted(word))
            .collect::<Vec<_>>()
            .join(" ")
            + "\n"
    };
    let export = |(name, value): &(&str, PathBuf)| {
        format!("export {name}={}\n", quoted(&value.to_string_lossy()))
    };
    let exports = variables.iter().map(export);
    exports.chain(programs.iter().map(run)).collect()
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A machine that is to run the programs.
pub struct Machine<'a> {
    pub kernel: &'a Path,
    pub files: &'a Path,
    pub cpu: &'a str,
    /// The file that keeps all that the machine prints.
    pub console: PathBuf,
}

/// QEMU's process, which is killed when this value is dropped.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        // Each call fails only if QEMU has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine<'_> {
    /// Starts the machine, and reports each program as it ends. Fails if a program has failed, or the machine stops before the last program.
    pub fn run(&self, programs: &[Program]) -> Result<()> {
        let mut command = self.command();
        let mut child = command.spawn().context(shell::line(&command))?;
        let printed = child.stdout.take();
        let qemu = Qemu(child);
        let printed = printed.ok_or_else(|| Failure::new("qemu has no output"))?;
        let mut session = Session {
            console: File::create(&self.console).context(self.console.display())?,
            programs,
            begun: 0,
            program: None,
            deadline: Instant::now() + TO_START,
            tests: Tests::default(),
            failed: Vec::new(),
            is_over: false,
            start: Instant::now(),
        };
        let ended = session.follow(&lines(printed));
        drop(qemu);
        let outcome = ended.and_then(|()| session.finish());
        outcome.map_err(|failure| match failure {
            Failure::Failed(sentence) => Failure::new(format!(
                "{sentence}. See the machine's output in {}.",
                self.console.display()
            )),
            interrupted => interrupted,
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("qemu-system-aarch64");
        command
            .args(["-machine", "virt", "-cpu", self.cpu, "-smp", "2"])
            .args(["-accel", "tcg,thread=multi", "-m", "2048"])
            .args(["-nodefaults", "-nographic", "-no-reboot"])
            .args(["-serial", "stdio"])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.files)
            .args(["-append", "console=ttyAMA0 loglevel=4 panic=-1"]);
        // QEMU gets a process group of its own, so that Ctrl-C reaches only this task, which then kills QEMU.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }
}

/// Reads lines in a thread, so that the wait for a line can time out.
fn lines(printed: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(printed)
            .split(b'\n')
            .map_while(|line| line.ok())
        {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// The progress of the machine.
struct Session<'a> {
    console: File,
    programs: &'a [Program],
    /// The number of programs that have begun.
    begun: usize,
    program: Option<Running>,
    /// The time at which the machine is reported as stuck.
    deadline: Instant,
    tests: Tests,
    failed: Vec<String>,
    is_over: bool,
    start: Instant,
}

/// The running program.
struct Running {
    name: String,
    start: Instant,
    output: Output,
    text: String,
}

impl Session<'_> {
    /// Reads the output of the machine, to its end.
    fn follow(&mut self, lines: &Receiver<Vec<u8>>) -> Result<()> {
        loop {
            interrupt::check()?;
            match lines.recv_timeout(LOOK) {
                Ok(line) => self.read(&line)?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if Instant::now() > self.deadline => {
                    let what = self
                        .program
                        .as_ref()
                        .map_or("init", |running| &running.name);
                    return Err(Failure::new(format!("the machine is stuck in {what}")));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn read(&mut self, line: &[u8]) -> Result<()> {
        self.console
            .write_all(line)
            .and_then(|()| self.console.write_all(b"\n"))
            .context("console.log")?;
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches('\r');
        if let Some(mark) = line.strip_prefix(MARK) {
            let (word, rest) = mark.split_once(' ').unwrap_or((mark, ""));
            match word {
                "booted" => println!("Linux {rest}, {} s", self.start.elapsed().as_secs()),
                "begin" => self.begin(rest),
                "end" => self.end(rest),
                _ => self.is_over = true,
            }
        } else if let Some(running) = &mut self.program {
            running.output.add(line);
            running.text.push_str(line);
            running.text.push('\n');
        }
        Ok(())
    }

    fn begin(&mut self, name: &str) {
        let limit = self.programs.get(self.begun).map(|program| program.limit);
        self.deadline = Instant::now() + limit.unwrap_or_default() + TO_KILL;
        self.begun += 1;
        print!("{:>3} of {}: {name}: ", self.begun, self.programs.len());
        let _ = std::io::stdout().flush();
        self.program = Some(Running {
            name: name.to_owned(),
            start: Instant::now(),
            output: Output::default(),
            text: String::new(),
        });
    }

    /// Reports the end of a program. `rest` is "STATUS NAME".
    fn end(&mut self, rest: &str) {
        let Some(running) = self.program.take() else {
            return;
        };
        let status = rest.split(' ').next().unwrap_or_default();
        let tests = running.output.tests;
        self.tests.add(tests);
        let took = running.start.elapsed().as_secs_f64();
        println!("{} passed, {took:.1} s", tests.passed);
        let told = |line: &&str| line.starts_with("skipped: ") || line.starts_with("left behind: ");
        running
            .text
            .lines()
            .filter(told)
            .for_each(|line| println!("    {line}"));
        if status == "0" {
            return;
        }
        let how = match status {
            "137" => "was killed: its time was over, or it ran out of memory",
            _ => "FAILED",
        };
        println!(
            "{}    {} {how} (status {status})",
            running.text, running.name
        );
        self.failed.push(running.name);
    }

    fn finish(&self) -> Result<()> {
        let all = self.tests;
        let is_good = self.failed.is_empty() && self.is_over;
        println!(
            "\ntest result: {}. {} passed; {} failed; {} ignored; 0 measured; {} filtered out; finished in {:.2}s",
            if is_good { "ok" } else { "FAILED" },
            all.passed,
            all.failed,
            all.ignored,
            all.filtered,
            self.start.elapsed().as_secs_f64()
        );
        if !self.failed.is_empty() {
            let (count, names) = (self.failed.len(), self.failed.join(", "));
            return Err(Failure::new(format!(
                "{count} test programs failed: {names}"
            )));
        }
        match self.is_over {
            true => Ok(()),
            false => Err(Failure::new(
                "the machine has stopped before the last test program",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_runs_each_program_in_its_directory() {
        let program = Program {
            name: "umsg/ring".into(),
            directory: "/src/crates/umsg".into(),
            executable: "/target/deps/ring-0".into(),
            arguments: vec!["--skip".into(), "it's".into()],
            limit: Duration::from_secs(9),
        };
        assert_eq!(
            script(&[program], &[("UMSG_X", "/a b".into())], Some("full")),
            "export UMSG_X='/a b'\n\
             'run' 'umsg/ring' '/src/crates/umsg' '9' '/target/deps/ring-0' '--skip' 'it'\\''s' 'full'\n"
        );
    }
}
