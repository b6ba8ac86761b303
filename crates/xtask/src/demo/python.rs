//! A Python program on posix_ipc, a C extension from PyPI.

use std::path::{Path, PathBuf};

use super::format::grouped;
use super::rounds::{alternate, median};
use super::stage::{Stage, answer};
use crate::failure::{Failure, Result};
use crate::programs;

const ROUNDS: usize = 5;
const SECONDS: &str = "0.5";

pub fn show(stage: &Stage) -> Result<()> {
    println!("\n== 3. Python with posix_ipc, from PyPI ==");
    let Some(interpreter) = programs::python_with_posix_ipc() else {
        println!("Not installed (pip install posix_ipc): skipped.");
        return Ok(());
    };
    let interpreter: PathBuf = interpreter.into();
    let script = stage.script("posix_ipc_rate.py", include_str!("posix_ipc_rate.py"))?;
    let arguments = [script_argument(&script)?, SECONDS];
    let namespace = stage.namespace()?;
    println!("Sends and receives 64 bytes in one process; most of the time is Python's own.");
    let sides = alternate(
        stage.rounds(ROUNDS),
        || rate(&answer(&mut namespace.on_kernel(&interpreter, &arguments))?),
        || rate(&answer(&mut namespace.on_umsg(&interpreter, &arguments))?),
    )?;
    let [kernel, umsg] = [&sides.kernel, &sides.umsg].map(|side| median(side, |rate| *rate));
    println!("\n{:42}{:>12}", "", "messages/s");
    println!("{:42}{:>12}", "kernel:  python", grouped(kernel));
    println!("{:42}{:>12}", "umsg:    umsg run -- python", grouped(umsg));
    println!("{:42}{:>12.1}", "ratio", umsg / kernel);
    Ok(())
}

fn script_argument(script: &Path) -> Result<&str> {
    script
        .to_str()
        .ok_or_else(|| Failure::new(format!("{}: not UTF-8", script.display())))
}

/// Returns the number of messages a second, from the output "MESSAGES SECONDS".
fn rate(printed: &str) -> Result<f64> {
    let numbers: Vec<f64> = printed
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        [messages, seconds] => Ok(messages / seconds),
        _ => Err(Failure::new(format!("the script printed {printed:?}"))),
    }
}
