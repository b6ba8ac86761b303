//! The file system of the machine: an archive of cpio(5) in the format newc, which the kernel unpacks into memory when it starts.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::build::Built;
use super::fetch::Debian;
use super::needs;
use crate::failure::{Context as _, Failure, Result};
use crate::workspace::Workspace;

/// The script that the kernel starts as the first program.
const INIT: &str = include_str!("init.sh");

/// Directories that init mounts file systems on, and that programs expect.
const DIRECTORIES: [&str; 10] = [
    "dev", "proc", "sys", "run", "root", "var", "home", "mnt", "opt", "srv",
];
/// The users and groups that programs look up.
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";

/// install(1) in the form in which the tests use it: install -m MODE FROM TO. Debian's BusyBox does not have this program.
const INSTALL: &str = "#!/bin/sh\ncp \"$3\" \"$4\" && chmod \"$2\" \"$4\"\n";

/// Directories of the checkout that tests read: files of earlier versions, and the sources with the named points.
const READ: [&str; 4] = [
    "crates/umsg-shm/src",
    "crates/umsg/src",
    "crates/umsg/tests",
    "docs",
];

/// Types of a file, as in stat(2).
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTERS: u32 = 0o020_000;

/// Writes the archive of the machine's file system.
pub fn write(
    workspace: &Workspace,
    archive: &Path,
    debian: &Debian,
    built: &Built,
    script: &str,
) -> Result<()> {
    let mut image = Image::create(archive)?;
    image.entry("tmp", DIRECTORY | 0o1777, &[], (0, 0))?;
    for directory in DIRECTORIES {
        image.directory(directory)?;
    }
    // The kernel opens this device for the first program.
    image.entry("dev/console", CHARACTERS | 0o600, &[], (5, 1))?;
    image.entry("dev/null", CHARACTERS | 0o666, &[], (1, 3))?;
    image.text("etc/passwd", 0o644, PASSWD)?;
    image.text("etc/group", 0o644, GROUP)?;
    image.text("init", 0o755, INIT)?;
    image.text("usr/bin/install", 0o755, INSTALL)?;
    image.text("tests.sh", 0o644, script)?;
    image.file_as(&debian.busybox, "bin/busybox")?;
    for name in needs::LIBRARIES {
        let path = needs::library(name);
        let path = path.ok_or_else(|| Failure::new(format!("{name} is missing")))?;
        image.file_as(&path, &format!("lib/{name}"))?;
    }
    for file in &built.files {
        image.file(file)?;
    }
    for (from, to) in &built.others {
        image.tree_as(from, to)?;
    }
    for directory in &built.directories {
        image.directory(&directory.to_string_lossy())?;
    }
    for directory in READ {
        image.tree(&workspace.root.join(directory))?;
    }
    image.finish()
}

/// An archive that is being written.
struct Image {
    out: BufWriter<File>,
    written: usize,
    entries: u32,
    /// The names of the entries so far, without a slash at the beginning.
    names: BTreeSet<String>,
}

impl Image {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).context(path.display())?;
        Ok(Self {
            out: BufWriter::with_capacity(1 << 20, file),
            written: 0,
            entries: 0,
            names: BTreeSet::new(),
        })
    }

    /// Adds a directory and its parents.
    fn directory(&mut self, path: &str) -> Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() || self.names.contains(path) {
            return Ok(());
        }
        self.parent(path)?;
        self.entry(path, DIRECTORY | 0o755, &[], (0, 0))
    }

    fn parent(&mut self, path: &str) -> Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.directory(parent),
            None => Ok(()),
        }
    }

    /// Adds a file, at the path that the file has on the host.
    fn file(&mut self, path: &Path) -> Result<()> {
        self.file_as(path, &path.to_string_lossy())
    }

    fn file_as(&mut self, from: &Path, to: &str) -> Result<()> {
        let to = to.trim_matches('/');
        let bytes = fs::read(from).context(from.display())?;
        let metadata = fs::metadata(from).context(from.display())?;
        self.parent(to)?;
        self.entry(
            to,
            REGULAR | (metadata.permissions().mode() & 0o777),
            &bytes,
            (0, 0),
        )
    }

    fn text(&mut self, to: &str, mode: u32, text: &str) -> Result<()> {
        self.parent(to)?;
        self.entry(to, REGULAR | mode, text.as_bytes(), (0, 0))
    }

    /// Adds a directory with all its contents, a file or a symbolic link, at its path on the host.
    fn tree(&mut self, path: &Path) -> Result<()> {
        self.tree_as(path, &path.to_string_lossy())
    }

    fn tree_as(&mut self, path: &Path, name: &str) -> Result<()> {
        let metadata = fs::symlink_metadata(path).context(path.display())?;
        let name = name.trim_matches('/');
        if metadata.is_symlink() {
            let target = fs::read_link(path).context(path.display())?;
            self.parent(name)?;
            let target = target.to_string_lossy();
            return self.entry(name, LINK | 0o777, target.as_bytes(), (0, 0));
        }
        if metadata.is_file() {
            return self.file_as(path, name);
        }
        self.directory(name)?;
        for entry in fs::read_dir(path).context(path.display())? {
            let entry = entry.context(path.display())?;
            let inside = format!("{name}/{}", entry.file_name().to_string_lossy());
            self.tree_as(&entry.path(), &inside)?;
        }
        Ok(())
    }

    /// Adds an entry, unless the archive already has an entry of this name.
    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8], device: (u32, u32)) -> Result<()> {
        if !self.names.insert(name.to_owned()) {
            return Ok(());
        }
        self.entries += 1;
        let length = u32::try_from(bytes.len()).context(name)?;
        let header = header(self.entries, mode, length, device, name);
        self.write(&header)?;
        self.write(bytes)
    }

    /// Writes bytes, and zeroes up to a multiple of four.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.written += bytes.len() + padding;
        self.out
            .write_all(bytes)
            .and_then(|()| self.out.write_all(&[0; 3][..padding]))
            .context("the file system of the machine")
    }

    fn finish(mut self) -> Result<()> {
        self.entry("TRAILER!!!", 0, &[], (0, 0))?;
        self.out.flush().context("the file system of the machine")
    }
}

/// Returns the header of an entry with its name, up to a multiple of four bytes.
fn header(inode: u32, mode: u32, length: u32, device: (u32, u32), name: &str) -> Vec<u8> {
    let name_length = name.len() as u32 + 1;
    // Inode, mode, user, group, links, time, length, device of the file system, device, length of the name, checksum.
    let fields = [
        inode,
        mode,
        0,
        0,
        1,
        0,
        length,
        0,
        0,
        device.0,
        device.1,
        name_length,
        0,
    ];
    let mut header = b"070701".to_vec();
    for field in fields {
        header.extend(format!("{field:08X}").bytes());
    }
    header.extend(name.bytes());
    header.push(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_begin_at_multiples_of_four_and_parents_come_first() {
        let directory = tempfile::tempdir().unwrap();
        let archive = directory.path().join("files.cpio");
        let mut image = Image::create(&archive).unwrap();
        image.text("a/b/c.txt", 0o644, "hello").unwrap();
        image.text("a/b/d", 0o755, "").unwrap();
        image.finish().unwrap();
        let bytes = fs::read(&archive).unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let (mut at, mut names) = (0, Vec::new());
        while at < bytes.len() {
            let field = |index: usize| {
                let begin = at + 6 + 8 * index;
                let digits = std::str::from_utf8(&bytes[begin..begin + 8]).unwrap();
                usize::from_str_radix(digits, 16).unwrap()
            };
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (length, name_length) = (field(6), field(11));
            let name = &bytes[at + 110..at + 110 + name_length - 1];
            names.push(String::from_utf8(name.to_vec()).unwrap());
            at += (110 + name_length).next_multiple_of(4) + length.next_multiple_of(4);
        }
        assert_eq!(names, ["a", "a/b", "a/b/c.txt", "a/b/d", "TRAILER!!!"]);
    }
}
