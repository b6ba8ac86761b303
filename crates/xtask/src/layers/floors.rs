//! The floors of a crate, as ARCHITECTURE.md declares them.
//!
//! A fenced block with the info string `floors FOLDER` belongs to the crate in that folder. Each line names the modules of a floor,
//! separated by spaces, the lowest floor first.

use std::collections::BTreeSet;

use crate::failure::{Failure, Result};

/// The beginning of a block.
const FENCE: &str = "```floors ";

/// The floors of one crate.
pub struct Floors {
    /// The folder of the crate, below the workspace.
    pub folder: String,
    /// The modules of each floor, the lowest floor first.
    pub levels: Vec<BTreeSet<String>>,
}

impl Floors {
    /// Returns all blocks of a page.
    ///
    /// # Errors
    /// If there is no block, a block has no end, or a block names a module twice.
    pub fn all_of(page: &str) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            if let Some(folder) = line.strip_prefix(FENCE) {
                all.push(Self::parse(folder.trim(), &mut lines)?);
            }
        }
        if all.is_empty() {
            return Err(Failure::new("ARCHITECTURE.md declares no floors"));
        }
        Ok(all)
    }

    fn parse<'a>(folder: &str, lines: &mut impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut levels: Vec<BTreeSet<String>> = Vec::new();
        for line in lines {
            if line == "```" {
                let folder = folder.to_owned();
                return Ok(Self { folder, levels });
            }
            if line.trim().is_empty() {
                continue;
            }
            let mut level = BTreeSet::new();
            for module in line.split_whitespace() {
                let is_known = levels.iter().any(|lower| lower.contains(module));
                if is_known || !level.insert(module.to_owned()) {
                    let sentence = format!("{folder}: {module} is listed on two floors");
                    return Err(Failure::new(sentence));
                }
            }
            levels.push(level);
        }
        Err(Failure::new(format!(
            "{folder}: the block of its floors has no end"
        )))
    }

    /// Returns the floor of a module; 0 is the lowest.
    pub fn level_of(&self, module: &str) -> Option<usize> {
        self.levels.iter().position(|level| level.contains(module))
    }

    /// Returns whether an arrow between two modules runs to a higher floor.
    pub fn is_upward(&self, from: &str, to: &str) -> bool {
        match (self.level_of(from), self.level_of(to)) {
            (Some(from), Some(to)) => to > from,
            _ => false,
        }
    }
}
