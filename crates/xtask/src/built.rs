//! The files that a command of cargo has built, read from cargo's messages.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::shell;

/// Runs a command of cargo, which has nothing left to build, and returns its messages.
pub fn messages(list: &mut Command) -> Result<Vec<Value>> {
    list.args(["--quiet", "--message-format", "json"]);
    let output = interrupt::output(list)?;
    if !output.status.success() {
        return Err(Failure::new(format!("{} failed", shell::line(list))));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok(messages.collect())
}

/// A test program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub struct TestProgram {
    /// The directory of its crate, in which cargo runs it.
    pub directory: PathBuf,
    /// The crate's name, which is also the name of the directory.
    pub of: String,
    /// The name of the program's file of tests; None for unit tests.
    pub file: Option<String>,
    /// The options of `cargo test` that select the program.
    pub options: String,
    pub executable: PathBuf,
}

impl TestProgram {
    /// Returns the test program that a message of cargo names; None if the message is about something else.
    pub fn of(message: &Value) -> Option<Self> {
        if message["profile"]["test"] != true {
            return None;
        }
        let executable = message["executable"].as_str()?.into();
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
        let of = directory.file_name()?.to_str()?;
        let target = &message["target"];
        let name = target["name"].as_str()?;
        let (options, file) = match target["kind"][0].as_str()? {
            "test" => (format!("-p {of} --test {name}"), Some(name.to_owned())),
            "bin" => (format!("-p {of} --bin {name}"), None),
            _ => (format!("-p {of} --lib"), None),
        };
        Some(Self {
            directory: directory.to_owned(),
            of: of.to_owned(),
            file,
            options,
            executable,
        })
    }

    /// Returns the crate and the file, such as `umsg/ring`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.of, self.file.as_deref().unwrap_or("unit"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn test_programs_are_told_from_other_programs() {
        let message = |kind: &str, name: &str, is_test: bool| {
            json!({
                "reason": "compiler-artifact",
                "manifest_path": "/w/crates/umsg-cli/Cargo.toml",
                "target": { "kind": [kind], "name": name },
                "profile": { "test": is_test },
                "executable": "/w/target/debug/deps/x-0",
            })
        };
        let of = |kind, name, is_test| TestProgram::of(&message(kind, name, is_test));
        let pair = |program: TestProgram| (program.name(), program.options);
        assert_eq!(
            of("test", "gc", true).map(pair),
            Some(("umsg-cli/gc".into(), "-p umsg-cli --test gc".into()))
        );
        assert_eq!(
            of("bin", "umsg", true).map(pair),
            Some(("umsg-cli/unit".into(), "-p umsg-cli --bin umsg".into()))
        );
        assert_eq!(of("bin", "umsg", false), None);
        assert_eq!(
            of("cdylib", "a", true).unwrap().options,
            "-p umsg-cli --lib"
        );
        assert_eq!(TestProgram::of(&json!({"reason": "build-finished"})), None);
    }
}
