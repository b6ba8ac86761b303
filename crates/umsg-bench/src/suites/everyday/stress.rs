//! Rows that run the external program stress-ng for whole seconds.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::child::Child;
use crate::failure::Failure;
use crate::suites::neighbour::work::Neighbour;
use crate::trial::Setting;
use crate::{machine, supervisor};

pub fn sysv(setting: &Setting) -> Result<f64, Failure> {
    stress(setting, &["--msg", "2"])
}

pub fn posix(setting: &Setting) -> Result<f64, Failure> {
    stress(setting, &["--mq", "2", "--mq-size", "1"])
}

/// Runs `posix` while each CPU also runs a compiler at nice 19.
pub fn posix_beside_compile(setting: &Setting) -> Result<f64, Failure> {
    installed()?;
    let compile = Neighbour::compile()?;
    let compile_for_ever = |cpu: &usize| {
        Child::start(&[*cpu], || {
            set_nice(19);
            // SAFETY: the process has one thread.
            unsafe { std::env::remove_var("LD_PRELOAD") };
            loop {
                compile.work()?;
            }
        })
    };
    // The drop of these values after the run kills the compilers.
    let _compiles = setting
        .cpus
        .iter()
        .map(compile_for_ever)
        .collect::<Result<Vec<_>, _>>()?;
    posix(setting)
}

/// Returns the operations per second of real time.
fn stress(setting: &Setting, stressor: &[&str]) -> Result<f64, Failure> {
    installed()?;
    // The measurement itself has nice -20, which stress-ng must not inherit.
    set_nice(0);
    machine::pin_to(&setting.cpus)?;
    let parent = std::process::id();
    let mut command = Command::new("stress-ng");
    command.args(stressor).stdin(Stdio::null());
    command.args(["--timeout", &format!("{}s", setting.budget.as_secs())]);
    command.arg("--metrics-brief");
    // SAFETY: between fork and exec the closure makes two system calls, and takes no lock.
    unsafe {
        command.pre_exec(move || {
            supervisor::die_with_parent(parent);
            Ok(())
        });
    }
    let output = command.output()?;
    // The program writes its results to standard output or to standard error, depending on its version.
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let name = stressor[0].trim_start_matches('-');
    match rate(&text, name).filter(|_| output.status.success()) {
        Some(rate) => Ok(rate),
        None => Err(Failure::new(format!(
            "stress-ng failed ({}): {}",
            output.status,
            text.lines().last().unwrap_or_default()
        ))),
    }
}

fn installed() -> Result<(), Failure> {
    let mut command = Command::new("stress-ng");
    let found = command.arg("--version").stdin(Stdio::null()).output();
    match found {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(Failure::new(
            "stress-ng is not installed: apt-get install stress-ng",
        )),
    }
}

fn set_nice(nice: i32) {
    // SAFETY: the call takes three numbers; 0 is the calling process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// Returns a stressor's operations per second, from its line of metrics.
fn rate(text: &str, stressor: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let (_, metrics) = line.split_once("metrc:")?;
        let (_, metrics) = metrics.split_once(']')?;
        let fields: Vec<&str> = metrics.split_whitespace().collect();
        // The fields are name, operations, real time, user time, system time, operations a second.
        let rate = fields.get(5)?.parse().ok()?;
        (fields[0] == stressor).then_some(rate)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_stands_in_the_line_of_the_stressor() {
        let text = "stress-ng: metrc: [941] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s\n\
                    stress-ng: metrc: [941]                           (secs)    (secs)    (secs)   (real time) (usr+sys time)\n\
                    stress-ng: metrc: [941] mq               461129      1.00      0.24      1.60    460841.96      250169.81\n";
        assert_eq!(rate(text, "mq"), Some(460_841.96));
        assert_eq!(rate(text, "msg"), None);
    }
}
