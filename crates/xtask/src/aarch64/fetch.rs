//! The kernel and BusyBox of Debian 12 for arm64. apt-get fetches them with lists and settings of its own, and checks their signatures; no second
//! architecture is added to this system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::directory;
use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::shell;
use crate::workspace::Workspace;

/// Debian 12, and newer packages for it, such as the kernel of Debian 13: Linux 6.12. Linux 6.1 is too old: it lacks system calls that tests of umsg
/// need (cachestat, descriptors of threads).
const SUITES: [&str; 2] = ["bookworm", "bookworm-backports"];
/// The package that depends on the current kernel package.
const KERNEL: &str = "linux-image-cloud-arm64/bookworm-backports";
const BUSYBOX: &str = "busybox-static";
/// Python, and the libraries that it needs besides glibc.
const PYTHON: [&str; 6] = [
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libexpat1",
    "libffi8",
    "zlib1g",
];

/// The environment variable that names another mirror of Debian.
const MIRROR: &str = "UMSG_TEST_DEBIAN_MIRROR";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The paths of Debian's kernel and BusyBox on this machine.
pub struct Debian {
    pub kernel: PathBuf,
    pub busybox: PathBuf,
}

/// Returns whether Debian's kernel and BusyBox were already fetched.
pub fn is_done(workspace: &Workspace) -> bool {
    let debian = Debian::below(&directory(workspace));
    debian.kernel.exists() && debian.busybox.exists()
}

/// Returns Debian's kernel and BusyBox. The first call fetches them.
pub fn debian(workspace: &Workspace, directory: &Path) -> Result<Debian> {
    let debian = Debian::below(directory);
    if is_done(workspace) {
        return Ok(debian);
    }
    println!("\n==> kernel and BusyBox of Debian 12 for arm64: 22 MB, and 9 MB of lists");
    let apt = Apt::new(directory.join("apt"))?;
    apt.run("apt-get", &["--quiet", "update"])?;
    let kernel = apt.kernel_package()?;
    apt.run("apt-get", &["--quiet", "download", BUSYBOX, &kernel])?;
    let unpacked = apt.unpack(&[BUSYBOX, &kernel])?;
    let version = kernel.trim_start_matches("linux-image-");
    let kept = directory.join("debian");
    fs::create_dir_all(&kept).context(kept.display())?;
    let image = unpacked.join(format!("boot/vmlinuz-{version}"));
    fs::rename(&image, &debian.kernel).context(image.display())?;
    let busybox = unpacked.join("bin/busybox");
    fs::rename(&busybox, &debian.busybox).context(busybox.display())?;
    fs::remove_dir_all(&apt.directory).context(apt.directory.display())?;
    Ok(debian)
}

impl Debian {
    fn below(directory: &Path) -> Self {
        let kept = directory.join("debian");
        Self {
            kernel: kept.join("vmlinuz"),
            busybox: kept.join("busybox"),
        }
    }
}

/// Returns the files of Debian's Python with their places on the machine. The first call fetches them.
pub fn python(directory: &Path) -> Result<Vec<(PathBuf, String)>> {
    let kept = directory.join("debian/python");
    if !kept.exists() {
        println!("\n==> Python of Debian 12 for arm64: 7 MB, and 9 MB of lists");
        let apt = Apt::new(directory.join("apt"))?;
        apt.run("apt-get", &["--quiet", "update"])?;
        let download = [&["--quiet", "download"], &PYTHON[..]].concat();
        apt.run("apt-get", &download)?;
        let unpacked = apt.unpack(&PYTHON)?;
        fs::rename(&unpacked, &kept).context(unpacked.display())?;
        fs::remove_dir_all(&apt.directory).context(apt.directory.display())?;
    }
    let mut files = Vec::new();
    for place in ["usr/bin", "usr/lib/python3.11"] {
        files.push((kept.join(place), place.to_owned()));
    }
    let python = kept.join("usr/bin/python3.11");
    files.push((python, "usr/bin/python3".to_owned()));
    // The dynamic linker of the machine searches this directory alone.
    for place in ["lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu"] {
        let place = kept.join(place);
        for entry in fs::read_dir(&place).context(place.display())? {
            let entry = entry.context(place.display())?;
            if let (Some(name), true) = (entry.file_name().to_str(), entry.path().exists()) {
                files.push((entry.path(), format!("lib/{name}")));
            }
        }
    }
    Ok(files)
}

/// apt with a directory of its own.
struct Apt {
    directory: PathBuf,
}

impl Apt {
    fn new(directory: PathBuf) -> Result<Self> {
        if directory.exists() {
            fs::remove_dir_all(&directory).context(directory.display())?;
        }
        for part in ["lists/partial", "cache/archives/partial", "parts"] {
            let part = directory.join(part);
            fs::create_dir_all(&part).context(part.display())?;
        }
        let mirror = std::env::var(MIRROR).unwrap_or("http://deb.debian.org/debian".into());
        let source = |suite| format!("deb [signed-by={KEYS}] {mirror} {suite} main\n");
        let sources = SUITES.map(source).concat();
        let list = directory.join("sources.list");
        fs::write(&list, sources).context(list.display())?;
        Ok(Self { directory })
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let at = |name: &str| self.directory.join(name).display().to_string();
        let mut command = Command::new(program);
        command.current_dir(&self.directory).args(arguments);
        for option in [
            "APT::Architecture=arm64".to_owned(),
            "APT::Architectures=arm64".to_owned(),
            // apt must not change to its own user `_apt`, because the directory belongs to the calling user.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            format!("Dir::State::Lists={}", at("lists")),
            format!("Dir::Cache={}", at("cache")),
            format!("Dir::Etc::SourceList={}", at("sources.list")),
            format!("Dir::Etc::SourceParts={}", at("parts")),
            "Dir::State::status=/dev/null".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let mut command = self.command(program, arguments);
        match interrupt::run(&mut command)?.success() {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "{} failed. Set {MIRROR} to use another mirror of Debian.",
                shell::line(&command)
            ))),
        }
    }

    /// Returns the package of the current kernel.
    fn kernel_package(&self) -> Result<String> {
        let output = interrupt::output(&mut self.command("apt-cache", &["depends", KERNEL]))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let package = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
        package
            .map(|version| format!("linux-image-{version}"))
            .ok_or_else(|| Failure::new(format!("{KERNEL} depends on no kernel")))
    }

    /// Unpacks the fetched packages, and returns the directory of their files.
    fn unpack(&self, packages: &[&str]) -> Result<PathBuf> {
        let into = self.directory.join("files");
        let entries = fs::read_dir(&self.directory).context(self.directory.display())?;
        for entry in entries {
            let file = entry.context(self.directory.display())?.path();
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let is_one = |package: &&str| name.starts_with(&format!("{package}_"));
            if !packages.iter().any(is_one) {
                continue;
            }
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("--extract").arg(&file).arg(&into);
            if !interrupt::run(&mut unpack)?.success() {
                return Err(Failure::new(format!("{} failed", shell::line(&unpack))));
            }
        }
        Ok(into)
    }
}
