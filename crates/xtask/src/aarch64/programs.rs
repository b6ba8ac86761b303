//! The test programs that run on the machine.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::suite::FEATURES;
use crate::workspace::Workspace;

/// The crates with tests for the machine.
pub const CRATES: [&str; 6] = [
    "umsg-shm",
    "umsg",
    "umsg-preload",
    "umsg-c",
    "umsg-cli",
    "umsg-conformance",
];

/// The name of a crate's unit tests, used in place of a file's name.
pub const UNIT: &str = "unit";

/// The choice for CI: each crate's assembly and layouts, system calls and C structures. The rest of the tests is about code that is the same on each
/// processor.
const CHOICE: &[&str] = &[
    "umsg-shm/unit",
    "umsg/unit",
    "umsg/clocks",
    "umsg/compatibility",
    "umsg/crash_policies",
    "umsg/ring",
    "umsg/semantics",
    "umsg/signals",
    "umsg/truncation",
    "umsg-preload/unit",
    "umsg-preload/by_number",
    "umsg-preload/cancellation",
    "umsg-preload/descriptor",
    "umsg-preload/messages",
    "umsg-preload/processes",
    "umsg-preload/stack",
    "umsg-c/programs",
    "umsg-cli/sysv",
    "umsg-conformance/preloaded",
    "umsg-conformance/sysv_preloaded",
];

/// The parts of programs that CI runs: descriptors in other programs, and structures. The tests that end a thread at any instruction run with
/// `--full` only: on this machine, two of about twenty runs of these tests ended with SIGSEGV, for an unknown reason.
const PARTS: &[(&str, &[&str])] = &[
    (
        "umsg-preload/cancellation",
        &[
            "cancelled",
            "no_cancellation_points",
            "where_cancellation",
            "the_type_of_cancellation",
        ],
    ),
    (
        "umsg-conformance/preloaded",
        &["fork::", "getattr_setattr::"],
    ),
    ("umsg-conformance/sysv_preloaded", &["control::"]),
];

/// Programs that can't run on the machine, or whose results mean nothing on the machine; each with the reason.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "umsg-preload/symbols",
        "needs nm, and names versions of symbols of x86-64",
    ),
    ("umsg-c/examples", "compiles programs"),
    ("umsg-c/installed", "compiles programs"),
];

/// The programs of which only some tests run, with these tests.
const ONLY: &[(&str, &[&str])] = &[("umsg-c/programs", &["in_c11"])];

/// The programs of which some tests do not run, with these tests: they use script(1), which BusyBox does not have.
const NOT: &[(&str, &[&str])] = &[
    (
        "umsg-cli/dump_load",
        &["a_dump_is_not_printed_on_a_terminal"],
    ),
    (
        "umsg-cli/messages",
        &["a_message_cant_control_the_terminal_that_shows_it"],
    ),
    (
        "umsg-cli/queues",
        &["names_in_a_pipe_are_those_that_the_queues_have"],
    ),
];

/// The time that a program may take.
const LIMIT: Duration = Duration::from_secs(600);

/// A test program.
pub struct Program {
    /// The crate and the file, such as `umsg/crash_points`.
    pub name: String,
    /// The directory of the crate, in which cargo would run the program.
    pub directory: PathBuf,
    pub executable: PathBuf,
    pub arguments: Vec<String>,
    pub limit: Duration,
}

impl Program {
    /// Creates a test program, with the arguments that choose its tests.
    pub fn new(
        name: String,
        directory: PathBuf,
        executable: PathBuf,
        selection: &Selection,
    ) -> Self {
        let of = |table: &'static [(&str, &'static [&'static str])]| {
            let row = table.iter().find(|(program, _)| *program == name);
            row.map_or(&[][..], |(_, tests)| *tests)
        };
        let mut arguments: Vec<String> = of(ONLY).iter().map(|test| (*test).to_owned()).collect();
        if selection.is_choice {
            arguments.extend(of(PARTS).iter().map(|part| (*part).to_owned()));
        }
        for test in of(NOT) {
            arguments.extend(["--skip".to_owned(), (*test).to_owned()]);
        }
        Self {
            arguments,
            name,
            directory,
            executable,
            limit: LIMIT,
        }
    }
}

/// The selected programs, by name.
pub struct Selection {
    names: Vec<String>,
    /// True if these are the programs for CI.
    is_choice: bool,
}

impl Selection {
    /// Selects the programs whose names contain the filter, all programs, or the programs for CI.
    pub fn new(workspace: &Workspace, filter: Option<&str>, is_full: bool) -> Result<Self> {
        let mut names = all(workspace)?;
        match filter {
            Some(text) => names.retain(|name| name.contains(text)),
            None if is_full => {}
            None => {
                if let Some(unknown) = CHOICE
                    .iter()
                    .find(|one| !names.iter().any(|name| name == *one))
                {
                    return Err(Failure::new(format!(
                        "the list of programs names {unknown}, which is not a test program"
                    )));
                }
                names.retain(|name| CHOICE.contains(&name.as_str()));
            }
        }
        names.retain(|name| {
            let reason = LEFT_OUT.iter().find(|(program, _)| program == name);
            if let (Some((_, reason)), true) = (reason, is_full || filter.is_some()) {
                println!("skipped: {name}: {reason}");
            }
            reason.is_none()
        });
        match names.is_empty() {
            true => Err(Failure::new(
                "no test program has a name that contains this text",
            )),
            false => Ok(Self {
                names,
                is_choice: filter.is_none() && !is_full,
            }),
        }
    }

    /// Returns whether a program is selected.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|one| one == name)
    }

    /// Returns the selected programs of a crate, each without the name of the crate.
    pub fn of_crate(&self, name: &str) -> Vec<&str> {
        let parts = self.names.iter().filter_map(|one| one.split_once('/'));
        let of_crate = parts.filter(|(of, _)| *of == name);
        of_crate.map(|(_, program)| program).collect()
    }

    /// Returns the position of a selected program in the order of the crates and their files.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|one| one == name)
    }
}

/// Returns the names of all test programs of the crates.
fn all(workspace: &Workspace) -> Result<Vec<String>> {
    let metadata = workspace.metadata()?;
    let packages = metadata["packages"].as_array();
    let package = |name: &str| {
        let found = packages?.iter().find(|package| package["name"] == name)?;
        found["targets"].as_array().cloned()
    };
    let mut names = Vec::new();
    for name in CRATES {
        let targets = package(name).unwrap_or_default();
        let of = |target: &Value| Some(format!("{name}/{}", target_name(target)?));
        let mut of_crate: Vec<_> = targets.iter().filter_map(of).collect();
        // The unit tests come first.
        of_crate.sort_by_key(|name| (!name.ends_with(UNIT), name.clone()));
        names.extend(of_crate);
    }
    Ok(names)
}

/// Returns the name of a target's tests; None if the target has no tests for the machine.
pub fn target_name(target: &Value) -> Option<&str> {
    let kinds = target["kind"].as_array()?;
    let is = |kind: &str| kinds.iter().any(|one| one == kind);
    if is("test") {
        let features = target["required-features"].as_array();
        let has = |feature: &Value| {
            feature
                .as_str()
                .is_some_and(|name| FEATURES.iter().any(|known| known.ends_with(name)))
        };
        let is_built = features.is_none_or(|features| features.iter().all(has));
        return target["name"].as_str().filter(|_| is_built);
    }
    let is_library = ["lib", "cdylib", "staticlib"].into_iter().any(is);
    is_library.then_some(UNIT)
}

/// A C program of the drop-in's tests: the source, the output, and further arguments for the compiler.
pub type Compiled = (&'static str, &'static str, &'static [&'static str]);

/// The C programs of a test program of the drop-in, apart from the C program of the same name that is compiled with the usual arguments.
pub const OF_DROP_IN: &[(&str, &[Compiled])] = &[
    (
        "handlers",
        &[("allocator", "liballocator.so", &["-shared", "-fPIC"])],
    ),
    ("sandboxed", &[("sandbox", "sandbox", &[])]),
    (
        "stack",
        &[("stack", "stack", &["-Wl,-z,now", "-Wno-format-truncation"])],
    ),
];

/// The programs of the C library's tests.
pub const OF_C_LIBRARY: [&str; 14] = [
    "open",
    "messages",
    "batch",
    "log",
    "look",
    "threads",
    "in_place",
    "pollfd",
    "snapshot",
    "notify",
    "typed",
    "ring",
    "exhaustion",
    "handlers",
];
