//! The native module under valgrind: no invalid access, no use of uninitialised memory, and no leak in calls of its functions.

use std::fs;
use std::path::Path;

use super::environment::Environment;
use super::{Package, empty};
use crate::failure::{Context as _, Failure, Result};
use crate::package::{missing, text};
use crate::steps::Steps;

/// The tests that run under valgrind, each in one process. Tests with many processes, and with random input, would take minutes more.
const TESTS: [&str; 4] = [
    "tests/test_leases.py",
    "tests/test_queue.py",
    "tests/test_rings.py",
    "tests/test_sysv.py",
];

/// Python's own list of reports that valgrind suppresses, in Debian's package python3-dev or libpython3-dev.
const SUPPRESSIONS: &str = "/usr/lib/valgrind/python3.supp";

const MODULE: &str = "/_umsg.";

/// The function that runs the initialisation of a module. Memory that this function allocates for a class is in use until the process ends.
const IMPORT: &str = "PyModule_ExecDef";

/// Runs the tests. Fails if valgrind reports something with the module on the stack.
pub fn check(package: &Package, environment: &Environment, steps: &mut Steps) -> Result<()> {
    if text(package.workspace.command("valgrind").arg("--version")).is_err() {
        return Err(missing("valgrind", "valgrind"));
    }
    let reports = package.directory.join("valgrind");
    empty(&reports)?;
    let mut command = package.workspace.command("valgrind");
    command.current_dir(&package.source);
    command.args(["--leak-check=full", "--show-leak-kinds=definite"]);
    command.args(["--num-callers=50", "--child-silent-after-fork=no"]);
    command.arg(format!("--log-file={}/%p", reports.display()));
    if Path::new(SUPPRESSIONS).exists() {
        command.arg(format!("--suppressions={SUPPRESSIONS}"));
    }
    command.arg(environment.program("python"));
    command.args(["-m", "pytest", "-p", "no:cacheprovider"]);
    // Each object is an allocation of its own, which valgrind watches.
    command.env("PYTHONMALLOC", "malloc").args(TESTS);
    steps.need("tests under valgrind", &mut command)?;
    let mut count = 0;
    let mut found = Vec::new();
    for entry in fs::read_dir(&reports).context(reports.display())? {
        let path = entry.context(reports.display())?.path();
        let report = fs::read_to_string(&path).context(path.display())?;
        count += 1;
        found.extend(of_module(&report));
    }
    println!(
        "{count} processes, {} reports with the module on the stack",
        found.len()
    );
    match (count, found.is_empty()) {
        (0, _) => Err(Failure::new("valgrind has written no report")),
        (_, true) => Ok(()),
        (_, false) => Err(Failure::new(format!(
            "valgrind reports:\n\n{}",
            found.join("\n\n")
        ))),
    }
}

/// Returns the parts of a report with the module on the stack, apart from the allocations of its import.
fn of_module(report: &str) -> Vec<String> {
    let lines = report.lines().map(|line| {
        // A line of the report has the form "==123== text".
        let text = line
            .strip_prefix("==")
            .and_then(|rest| rest.split_once("=="));
        text.map_or("", |(_, text)| text.trim_end())
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    text.split("\n\n")
        .filter(|part| part.contains(MODULE))
        .filter(|part| !(part.contains("definitely lost") && part.contains(IMPORT)))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
==7== Memcheck, a memory error detector
==7== 
==7== Invalid read of size 8
==7==    at 0x1: ??? (in /venv/lib/python3.11/site-packages/umsg/_umsg.abi3.so)
==7==    by 0x2: PyObject_Call (call.c:1)
==7== 
==7== 80 bytes in 1 blocks are definitely lost in loss record 558 of 855
==7==    at 0x3: malloc (in /usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so)
==7==    by 0x4: ??? (in /venv/lib/python3.11/site-packages/umsg/_umsg.abi3.so)
==7==    by 0x5: PyModule_ExecDef (moduleobject.c:489)
==7== 
==7== 16 bytes in 1 blocks are definitely lost in loss record 1 of 855
==7==    at 0x3: malloc (in /usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so)
==7==    by 0x4: ??? (in /venv/lib/python3.11/site-packages/umsg/_umsg.abi3.so)
==7== 
==7== Conditional jump or move depends on uninitialised value(s)
==7==    at 0x6: ??? (in /usr/bin/python3.11)
==7== 
";

    #[test]
    fn reports_of_the_module_are_found() {
        let found = of_module(REPORT);
        let firsts: Vec<_> = found
            .iter()
            .filter_map(|part| part.lines().next())
            .collect();
        assert_eq!(
            firsts,
            [
                " Invalid read of size 8",
                " 16 bytes in 1 blocks are definitely lost in loss record 1 of 855"
            ]
        );
    }
}
