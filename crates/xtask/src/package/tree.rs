//! A directory with the files of one package, with modes that do not depend on the user's umask.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::shell;

const FILE: u32 = 0o644;
const PROGRAM: u32 = 0o755;

/// The files of one package.
pub struct Tree {
    pub root: PathBuf,
    /// The program that strips files for their processor.
    strip: String,
}

impl Tree {
    /// Creates an empty tree in this directory.
    pub fn new(root: PathBuf) -> Result<Self> {
        if root.exists() {
            fs::remove_dir_all(&root).context(root.display())?;
        }
        let tree = Self::of(root);
        tree.make(&tree.root)?;
        Ok(tree)
    }

    /// Returns a tree with the files that a directory already has.
    pub fn of(root: PathBuf) -> Self {
        Self::with_tools(root, "")
    }

    /// Uses the tools of a cross compiler, whose names begin with `prefix`.
    pub fn with_tools(root: PathBuf, prefix: &str) -> Self {
        let strip = format!("{prefix}strip");
        Self { root, strip }
    }

    /// Copies a file, without execute permission.
    pub fn file(&self, from: &Path, to: &str) -> Result<()> {
        let bytes = fs::read(from).context(from.display())?;
        self.write(to, bytes)
    }

    /// Copies a program or script.
    pub fn program(&self, from: &Path, to: &str) -> Result<()> {
        let bytes = fs::read(from).context(from.display())?;
        self.put(to, &bytes, PROGRAM)
    }

    /// Copies a program or library without the sections that only a debugger reads.
    pub fn stripped(&self, from: &Path, to: &str, option: &str) -> Result<()> {
        self.file(from, to)?;
        let path = self.root.join(to);
        let mut strip = Command::new(&self.strip);
        strip.args(["--enable-deterministic-archives", option]);
        succeed(strip.arg(&path))?;
        let is_program = to.contains("bin/") || to.contains("/scripts/");
        set_mode(&path, if is_program { PROGRAM } else { FILE })
    }

    /// Writes a file.
    pub fn write(&self, to: &str, contents: impl AsRef<[u8]>) -> Result<()> {
        self.put(to, contents.as_ref(), FILE)
    }

    /// Writes a file in gzip's format, without time and name.
    pub fn compressed(&self, to: &str, contents: impl AsRef<[u8]>) -> Result<()> {
        self.write(to, contents)?;
        gzip([self.root.join(to)])
    }

    /// Copies the files of a directory, each of them compressed.
    pub fn compressed_directory(&self, from: &Path, to: &str) -> Result<()> {
        let mut copies = Vec::new();
        for entry in fs::read_dir(from).context(from.display())? {
            let entry = entry.context(from.display())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let name = format!("{to}/{name}");
            self.file(&entry.path(), &name)?;
            copies.push(self.root.join(name));
        }
        gzip(copies)
    }

    /// Makes a symbolic link.
    pub fn link(&self, target: &str, name: &str) -> Result<()> {
        let name = self.root.join(name);
        self.make(name.parent().unwrap_or(&self.root))?;
        symlink(target, &name).context(name.display())
    }

    /// Returns the paths of all files, relative and in order.
    pub fn files(&self) -> Result<Vec<String>> {
        files_below(&self.root)
    }

    fn put(&self, to: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let path = self.root.join(to);
        self.make(path.parent().unwrap_or(&self.root))?;
        fs::write(&path, bytes).context(path.display())?;
        set_mode(&path, mode)
    }

    /// Makes a directory of the tree and its parents.
    fn make(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).context(directory.display())?;
        let inside = directory.ancestors();
        for one in inside.take_while(|one| one.starts_with(&self.root)) {
            set_mode(one, PROGRAM)?;
        }
        Ok(())
    }
}

/// Returns the paths of all files below a directory, relative to it and in order.
pub fn files_below(directory: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    collect(directory, directory, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(directory).context(directory.display())? {
        let path = entry.context(directory.display())?.path();
        if path.is_dir() && !path.is_symlink() {
            collect(root, &path, files)?;
        } else {
            let name = path.strip_prefix(root).context(path.display())?;
            files.push(name.display().to_string());
        }
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).context(path.display())
}

fn gzip(files: impl IntoIterator<Item = PathBuf>) -> Result<()> {
    let mut gzip = Command::new("gzip");
    succeed(gzip.args(["-9", "--no-name", "--"]).args(files))
}

/// Runs a command, which has to succeed.
pub fn succeed(command: &mut Command) -> Result<()> {
    match interrupt::run(command)?.success() {
        true => Ok(()),
        false => Err(Failure::new(format!("{} failed", shell::line(command)))),
    }
}
