//! `cargo xtask layers`: checks that no module of a crate imports a module of a higher floor, and that ARCHITECTURE.md names each file
//! ([`index`]).
//!
//! ARCHITECTURE.md declares the floors of a crate ([`floors`]), and the sources are parsed for the imports ([`imports`]). A module is a top-level
//! module of the crate, with its submodules. The crate root is above all floors and is not checked.
//!
//! Items that only exist in tests or under loom are left out, unless `--tests` is given: `#[cfg(test)]`, `#[cfg(loom)]`, and the modules with one of
//! these attributes.

mod floors;
mod imports;
mod index;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use self::floors::Floors;
use self::imports::Import;
use crate::failure::{Context as _, Failure, Result};
use crate::workspace::Workspace;

/// The options of the command.
#[derive(Clone, Copy, clap::Args)]
pub struct Options {
    /// List all arrows between modules, with the number of imports
    #[arg(long)]
    arrows: bool,
    /// Check the imports of unit tests and of loom's models, too
    #[arg(long)]
    tests: bool,
    /// Print arrows and problems as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Checks the files that ARCHITECTURE.md names, and every crate for which it declares floors.
pub fn run(workspace: &Workspace, options: Options) -> Result<()> {
    let page = workspace.root.join("ARCHITECTURE.md");
    let page = fs::read_to_string(&page).context(page.display())?;
    let mut values = Vec::new();
    let mut count = 0;
    for floors in Floors::all_of(&page)? {
        let checked = Checked::new(workspace, floors, options.tests)?;
        count += checked.problems.len();
        if options.json {
            values.push(checked.as_json());
        } else {
            checked.print(options.arrows);
        }
    }
    let unnamed = unnamed(workspace, &page)?;
    if options.json {
        println!("{:#}", json!({ "crates": values, "tables": unnamed }));
    } else {
        for problem in &unnamed {
            println!("{problem}");
        }
    }
    let mut wrong = Vec::new();
    if count > 0 {
        wrong.push(format!(
            "floors that ARCHITECTURE.md declares, problems: {count}. Move the code to a lower floor, or pass the value as a parameter."
        ));
    }
    if !unnamed.is_empty() {
        wrong.push(format!(
            "tables of ARCHITECTURE.md, problems: {}. Add a row beside those of the same subject, or mend the row.",
            unnamed.len()
        ));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(wrong.join("\n"))),
    }
}

/// Returns the problems of the tables of ARCHITECTURE.md.
fn unnamed(workspace: &Workspace, page: &str) -> Result<Vec<String>> {
    let mut files = workspace.files("*.rs")?;
    files.extend(workspace.files("*.py")?);
    let read = |file: &str| fs::read_to_string(workspace.root.join(file)).context(file);
    let files = files.iter().map(String::as_str).collect();
    index::problems(page, &index::Sources { files, read })
}

/// A crate, and the result of its check.
struct Checked {
    floors: Floors,
    imports: Vec<Import>,
    problems: Vec<String>,
}

impl Checked {
    fn new(workspace: &Workspace, floors: Floors, tests: bool) -> Result<Self> {
        let folder = workspace.root.join(&floors.folder);
        let (modules, imports) = imports::read(&folder.join("src"), tests)?;
        let problems = problems(&floors, &modules, &imports);
        Ok(Self {
            floors,
            imports,
            problems,
        })
    }

    fn print(&self, arrows: bool) {
        let folder = &self.floors.folder;
        if arrows {
            for ((from, to), count) in counted(&self.imports) {
                println!("{from} -> {to} ({count})");
            }
        }
        for problem in &self.problems {
            println!("{folder}: {problem}");
        }
        println!(
            "{folder}: {} floors, {} arrows between modules, {} problems",
            self.floors.levels.len(),
            counted(&self.imports).len(),
            self.problems.len()
        );
    }

    fn as_json(&self) -> Value {
        let arrows: Vec<Value> = self
            .imports
            .iter()
            .map(|import| {
                json!({
                    "from": import.from, "to": import.to, "file": import.file, "line": import.line,
                    "upward": self.floors.is_upward(&import.from, &import.to),
                })
            })
            .collect();
        json!({
            "crate": self.floors.folder, "floors": self.floors.levels, "arrows": arrows, "problems": self.problems,
        })
    }
}

/// Returns the number of imports of each arrow between two modules.
fn counted(imports: &[Import]) -> BTreeMap<(&str, &str), usize> {
    let mut arrows = BTreeMap::new();
    for import in imports {
        *arrows
            .entry((import.from.as_str(), import.to.as_str()))
            .or_default() += 1;
    }
    arrows
}

/// Returns the problems, one line each.
fn problems(floors: &Floors, modules: &BTreeSet<String>, imports: &[Import]) -> Vec<String> {
    let without_floor = modules
        .iter()
        .filter(|module| floors.level_of(module).is_none())
        .map(|module| format!("{module}: no floor names this module"));
    let without_module = floors
        .levels
        .iter()
        .flatten()
        .filter(|module| !modules.contains(*module))
        .map(|module| {
            format!("{module}: a floor names this module, but the module does not exist")
        });
    let upward = imports
        .iter()
        .filter(|import| floors.is_upward(&import.from, &import.to))
        .map(|import| {
            format!(
                "src/{}:{}: {} imports {} of a higher floor",
                import.file, import.line, import.from, import.to
            )
        });
    let mut problems: Vec<String> = without_floor.chain(without_module).chain(upward).collect();
    problems.extend(cycles(floors, imports));
    problems
}

/// Returns the modules of a floor that import each other in a circle, a line for each floor.
fn cycles(floors: &Floors, imports: &[Import]) -> Vec<String> {
    let arrows = counted(imports);
    let on_floor = |level: &BTreeSet<String>| {
        let mut reached: BTreeSet<(&str, &str)> = arrows
            .keys()
            .copied()
            .filter(|(from, to)| level.contains(*from) && level.contains(*to))
            .collect();
        loop {
            let longer: Vec<(&str, &str)> = reached
                .iter()
                .flat_map(|&(from, by)| {
                    let next = reached.iter().filter(move |&&(start, _)| start == by);
                    next.map(move |&(_, to)| (from, to))
                })
                .filter(|pair| !reached.contains(pair))
                .collect();
            if longer.is_empty() {
                break;
            }
            reached.extend(longer);
        }
        let in_cycle = reached.iter().filter(|(from, to)| from == to);
        in_cycle.map(|(from, _)| *from).collect::<Vec<_>>()
    };
    floors
        .levels
        .iter()
        .map(on_floor)
        .filter(|names| !names.is_empty())
        .map(|names| {
            format!(
                "{}: modules of one floor import each other",
                names.join(", ")
            )
        })
        .collect()
}

#[cfg(test)]
mod tests;
