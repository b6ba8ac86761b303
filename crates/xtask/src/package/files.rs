//! The finished packages.

use std::fs;
use std::path::{Path, PathBuf};

use super::build;
use crate::failure::{Context as _, Failure, Result};
use crate::workspace::Workspace;

/// The directory of the finished packages, and their names.
pub struct Files {
    pub directory: PathBuf,
    names: Vec<String>,
    workspace_root: PathBuf,
}

impl Files {
    /// Empties the directory of the packages, or makes it.
    pub fn new(workspace: &Workspace) -> Result<Self> {
        let directory = super::directory(workspace).join("files");
        if directory.exists() {
            fs::remove_dir_all(&directory).context(directory.display())?;
        }
        fs::create_dir_all(&directory).context(directory.display())?;
        Ok(Self {
            directory,
            names: Vec::new(),
            workspace_root: workspace.root.clone(),
        })
    }

    /// Adds the name of a package. Returns the path for the file of this package.
    pub fn add(&mut self, name: String) -> PathBuf {
        let path = self.directory.join(&name);
        self.names.push(name);
        path
    }

    /// Returns the path of the first package whose name begins with `start`.
    pub fn find(&self, start: &str) -> Result<PathBuf> {
        let name = self.names.iter().find(|name| name.starts_with(start));
        name.map(|name| self.directory.join(name))
            .ok_or_else(|| Failure::new(format!("there is no package {start}*")))
    }

    /// Returns the packages of the same names in another directory.
    pub fn in_directory(&self, directory: PathBuf) -> Self {
        Self {
            directory,
            names: self.names.clone(),
            workspace_root: self.workspace_root.clone(),
        }
    }

    /// Prints size, SHA-256 and name of each package.
    pub fn print(&self) -> Result<()> {
        println!("\n{}:", self.directory.display());
        for (name, hash) in self.hashes()? {
            let path = self.directory.join(&name);
            let size = fs::metadata(&path).context(path.display())?.len();
            println!("{size:>10}  {hash}  {name}");
        }
        Ok(())
    }

    /// Returns name and SHA-256 of each package.
    pub fn hashes(&self) -> Result<Vec<(String, String)>> {
        let hash = |name: &String| {
            let hash = sha256(&self.workspace_root, &self.directory.join(name))?;
            Ok((name.clone(), hash))
        };
        self.names.iter().map(hash).collect()
    }
}

fn sha256(root: &Path, path: &Path) -> Result<String> {
    let mut sum = std::process::Command::new("sha256sum");
    let line = build::text(sum.arg(path).current_dir(root))?;
    let hash = line.split_whitespace().next();
    Ok(hash.unwrap_or_default().to_owned())
}
