//! The time of `import umsg`.

use super::environment::Environment;
use crate::failure::{Failure, Result};
use crate::interrupt;

const ROUNDS: usize = 20;
/// The largest permitted median, in microseconds. A quiet machine needs 2,000.
const MOST: u64 = 10_000;

/// Measures the import in new processes, and prints the median. Fails if the median is more than 10 ms.
pub fn check(environment: &Environment) -> Result<()> {
    println!("\n==> time of import umsg");
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let mut python = environment.command("python");
        python.args(["-X", "importtime", "-c", "import umsg"]);
        let output = interrupt::output(&mut python)?;
        let report = String::from_utf8_lossy(&output.stderr);
        times.push(of_package(&report).ok_or_else(|| Failure::new("no time of umsg"))?);
    }
    times.sort_unstable();
    let (least, median) = (times[0], times[ROUNDS / 2]);
    println!("median {median} µs, least {least} µs, {ROUNDS} processes");
    match median <= MOST {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "the median of import umsg is {median} µs, more than {MOST}"
        ))),
    }
}

/// Returns the number CUMULATIVE of the line "import time: SELF | CUMULATIVE | umsg".
fn of_package(report: &str) -> Option<u64> {
    report.lines().find_map(|line| {
        let mut fields = line.rsplit('|').map(str::trim);
        (fields.next() == Some("umsg")).then(|| fields.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_time_of_the_package_has_that_of_its_modules() {
        let report = "\
import time: self [us] | cumulative | imported package
import time:       428 |        428 |     umsg._errors
import time:       980 |       2835 | umsg
";
        assert_eq!(super::of_package(report), Some(2835));
    }
}
