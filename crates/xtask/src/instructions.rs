//! `cargo xtask instructions`: counts the instructions of sends and receives, and compares them with the counts that were accepted.
//!
//! gungraun runs `crates/umsg/benches/instructions.rs` under callgrind. A count depends on the code, the compiler and the features of the processor
//! by which libc chooses its functions, not on the load of the machine. With another compiler than that of the accepted counts, the command only
//! advises.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::failure::{Context as _, Failure, Result};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The accepted counts.
const ACCEPTED: &str = "docs/instructions.json";
/// The version of gungraun in `crates/umsg/Cargo.toml`: library and runner must agree.
const RUNNER: &str = "0.20.0";
/// The environment variable that names the drop-in. If the variable is not set, this task builds the drop-in.
const DROP_IN: &str = "UMSG_PRELOAD_LIBRARY";
/// The permitted growth of a count, in percent.
const GROWTH: u64 = 3;

/// The options of the command.
#[derive(Clone, Copy, clap::Args)]
pub struct Options {
    /// Accept the counts of this run: write docs/instructions.json
    #[arg(long)]
    accept: bool,
    /// Print the counts as JSON on standard output, and nothing else
    #[arg(long)]
    json: bool,
}

/// The instructions of each call, and the compiler.
struct Counts {
    compiler: String,
    calls: BTreeMap<String, u64>,
}

/// Counts the instructions and compares the counts with the accepted ones. Fails if a count has grown by more than 3 %.
pub fn run(workspace: &Workspace, options: Options) -> Result<()> {
    let counts = Counts::measure(workspace)?;
    if options.json {
        println!("{:#}", counts.as_json());
    }
    let page = workspace.root.join(ACCEPTED);
    if options.accept {
        let text = format!("{:#}\n", counts.as_json());
        return fs::write(&page, text).context(page.display());
    }
    let accepted = Counts::read(&page)?;
    if !counts.calls.keys().eq(accepted.calls.keys()) {
        return Err(Failure::new(format!(
            "{ACCEPTED} has other calls than the benchmark. Run cargo xtask instructions --accept."
        )));
    }
    let grown = counts.compare(&accepted, !options.json);
    if grown.is_empty() {
        return Ok(());
    }
    let calls = grown.join(", ");
    if counts.compiler != accepted.compiler {
        eprintln!(
            "{calls}: more than {GROWTH} % above the accepted counts, which are of another compiler ({}).",
            accepted.compiler
        );
        return Ok(());
    }
    Err(Failure::new(format!(
        "{calls}: more than {GROWTH} % above {ACCEPTED}. Shorten the path, or run cargo xtask instructions --accept and say why in the commit."
    )))
}

impl Counts {
    fn measure(workspace: &Workspace) -> Result<Self> {
        let runner = runner(workspace)?;
        let results = workspace.target.join("instructions");
        let mut steps = Steps::new(workspace.root.clone());
        let drop_in = match std::env::var_os(DROP_IN) {
            Some(drop_in) => drop_in.into(),
            None => {
                let build = ["build", "--release", "--package", "umsg-preload"];
                steps.need("drop-in", &mut workspace.cargo(&build))?;
                workspace.release("libumsg_preload.so")
            }
        };
        let mut bench = workspace.cargo(&["bench", "--package", "umsg", "--bench", "instructions"]);
        bench.env("GUNGRAUN_RUNNER", runner);
        bench.env("GUNGRAUN_HOME", &results);
        bench.env("GUNGRAUN_SAVE_SUMMARY", "json");
        bench.env(DROP_IN, drop_in);
        if results.exists() {
            fs::remove_dir_all(&results).context(results.display())?;
        }
        steps.need("counting", &mut bench)?;
        let calls: BTreeMap<_, _> = summaries(&results)?.into_iter().collect();
        match calls.is_empty() {
            true => Err(Failure::new(format!("{} has no counts", results.display()))),
            false => Ok(Self {
                compiler: compiler(workspace)?,
                calls,
            }),
        }
    }

    fn read(page: &Path) -> Result<Self> {
        let text = fs::read_to_string(page).context(page.display())?;
        let value: Value = serde_json::from_str(&text).context(page.display())?;
        Self::from_json(&value)
            .ok_or_else(|| Failure::new(format!("{}: no compiler or no counts", page.display())))
    }

    fn from_json(value: &Value) -> Option<Self> {
        let count = |(call, count): (&String, &Value)| Some((call.clone(), count.as_u64()?));
        let calls: Option<_> = value["instructions"]
            .as_object()?
            .iter()
            .map(count)
            .collect();
        Some(Self {
            compiler: value["compiler"].as_str()?.to_owned(),
            calls: calls?,
        })
    }

    fn as_json(&self) -> Value {
        json!({ "compiler": self.compiler, "instructions": self.calls })
    }

    /// Returns the calls whose counts have grown too much. Both sets of counts have the same calls.
    fn compare(&self, accepted: &Self, prints: bool) -> Vec<&str> {
        let mut grown = Vec::new();
        for (call, &count) in &self.calls {
            let before = accepted.calls[call];
            if has_grown(before, count) {
                grown.push(call.as_str());
            }
            if prints {
                println!("{call:<20} {count:>6} instructions, accepted {before:>6}");
            }
        }
        grown
    }
}

fn has_grown(before: u64, now: u64) -> bool {
    now * 100 > before * (100 + GROWTH)
}

/// Returns the compiler's version, on which the code depends.
fn compiler(workspace: &Workspace) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = workspace.command(rustc).arg("--version").output();
    let output = output.context("rustc --version")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns gungraun's runner. Installs it in the target directory if it is not there.
fn runner(workspace: &Workspace) -> Result<PathBuf> {
    let root = workspace.target.join("gungraun-runner").join(RUNNER);
    let runner = root.join("bin/gungraun-runner");
    if !runner.exists() {
        let mut steps = Steps::new(workspace.root.clone());
        // A debug build: it takes a third of the time, and the runner only starts valgrind.
        let mut install = workspace.cargo(&["install", "gungraun-runner", "--locked", "--debug"]);
        install.args(["--version", RUNNER, "--root"]).arg(&root);
        steps.need("installing gungraun-runner", &mut install)?;
    }
    Ok(runner)
}

/// Returns the name and the instructions of each benchmark whose summary lies below a directory.
fn summaries(directory: &Path) -> Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).context(directory.display())? {
        let path = entry.context(directory.display())?.path();
        if path.is_dir() {
            found.extend(summaries(&path)?);
        } else if path.file_name().is_some_and(|name| name == "summary.json") {
            let text = fs::read_to_string(&path).context(path.display())?;
            let summary: Value = serde_json::from_str(&text).context(path.display())?;
            let count = instructions(&summary);
            let count =
                count.ok_or_else(|| Failure::new(format!("{}: no count", path.display())))?;
            found.push(count);
        }
    }
    Ok(found)
}

/// Returns the name of a benchmark, and its count of executed instructions (callgrind's event Ir).
fn instructions(summary: &Value) -> Option<(String, u64)> {
    let name = summary["function_name"].as_str()?.to_owned();
    let part = summary.pointer("/profiles/0/data/parts/0/metrics/Ir/values/new")?;
    Some((name, part.as_u64()?))
}

#[cfg(test)]
mod tests {
    use super::{Counts, has_grown, instructions};
    use serde_json::json;

    #[test]
    fn three_percent_is_no_growth() {
        assert!(!has_grown(300, 309));
        assert!(has_grown(300, 310));
        assert!(!has_grown(300, 200));
    }

    #[test]
    fn a_page_without_a_compiler_or_with_a_bad_count_is_refused() {
        let page = json!({ "compiler": "rustc", "instructions": { "mq_send": 1 } });
        assert_eq!(Counts::from_json(&page).unwrap().calls["mq_send"], 1);
        assert!(Counts::from_json(&json!({ "instructions": { "mq_send": 1 } })).is_none());
        let bad = json!({ "compiler": "rustc", "instructions": { "mq_send": "1" } });
        assert!(Counts::from_json(&bad).is_none());
    }

    #[test]
    fn a_summary_has_a_name_and_a_count() {
        let metrics = json!({ "Ir": { "values": { "new": 360 } } });
        let data = json!({ "parts": [{ "metrics": metrics }] });
        let summary = json!({ "function_name": "mq_send", "profiles": [{ "data": data }] });
        assert_eq!(instructions(&summary), Some(("mq_send".into(), 360)));
        assert_eq!(instructions(&json!({})), None);
    }
}
