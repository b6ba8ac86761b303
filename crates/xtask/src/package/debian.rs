//! Debian packages: umsg, libumsg0, libumsg-dev and umsg-bridge.
//!
//! dpkg-shlibdeps finds the dependencies, dpkg-deb writes the archives. Both are Debian's own tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{self, text};
use super::tree::{Tree, succeed};
use super::{Build, Files, VERSION, licences, missing};
use crate::c;
use crate::dist;
use crate::failure::{Context as _, Result};
use crate::interrupt;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The name and address in the packages, unless DEBFULLNAME and DEBEMAIL are set.
const MAINTAINER: (&str, &str) = ("The umsg authors", "umsg@localhost");

/// The crate of the bridge. It has many dependencies, so tests take its programs from the usual build.
const BRIDGE: &str = "umsg-bridge";

/// The crates in the packages. One command builds all of them, so that their common dependencies are built once.
pub const CRATES: [&str; 3] = ["umsg-cli", "umsg-preload", "umsg-c"];

/// The compression of a release. One thread: the bytes must not depend on the number of processors.
const SMALL: [&str; 2] = ["-Zxz", "--threads-max=1"];
/// The compression for tests.
const QUICK: [&str; 2] = ["-Zgzip", "-z1"];

/// The facts that the packages share.
struct Packages<'a> {
    workspace: &'a Workspace,
    architecture: String,
    /// The directory of libraries below /usr: `lib/x86_64-linux-gnu`.
    libraries: String,
    maintainer: String,
    epoch: String,
    /// Options of dpkg-deb.
    compression: [&'static str; 2],
    staging: PathBuf,
}

/// Builds the programs and the packages.
pub fn make(
    workspace: &Workspace,
    quick: bool,
    files: &mut Files,
    steps: &mut Steps,
) -> Result<()> {
    let packages = Packages::new(workspace, quick)?;
    let (build, mut command) = if quick {
        (Build::usual(workspace)?, workspace.build_release())
    } else {
        let build = Build::of_this_machine(workspace)?;
        let command = build.of(&CRATES);
        (build, command)
    };
    steps.need("Debian: command, drop-in and C library", &mut command)?;
    let (bridge, mut command) = bridge(workspace, quick, &build);
    steps.need("Debian: bridge", &mut command)?;
    println!("\n==> Debian: packages");
    let bridge = packages.bridge(&bridge)?;
    let command = packages.command(&build)?;
    let (library, development) = packages.c_library(&build)?;
    for (name, tree) in [
        ("umsg", command),
        ("libumsg0", library),
        ("libumsg-dev", development),
        ("umsg-bridge", bridge),
    ] {
        packages.pack(name, &tree, files)?;
    }
    Ok(())
}

/// Returns the path of the bridge's program, and the command that builds this program. With `quick`, the program is the debug build that the tests of
/// umsg-bridge use.
fn bridge(workspace: &Workspace, quick: bool, build: &Build) -> (PathBuf, Command) {
    if !quick {
        return (build.file(BRIDGE), build.of(&[BRIDGE]));
    }
    let mut command = workspace.cargo(&["build", "--locked", "--features", "crash-points"]);
    command.args(["--package", BRIDGE]);
    (workspace.target.join("debug").join(BRIDGE), command)
}

impl<'a> Packages<'a> {
    fn new(workspace: &'a Workspace, quick: bool) -> Result<Self> {
        let ask = |program: &str, argument: &str, package: &str| {
            let answer = text(workspace.command(program).arg(argument));
            let answer = answer.map_err(|_| missing(program, package))?;
            Ok(answer.trim().to_owned())
        };
        ask("dpkg-shlibdeps", "--version", "dpkg-dev")?;
        let named = |variable: &str, usual: &str| {
            std::env::var(variable).unwrap_or_else(|_| usual.to_owned())
        };
        let (name, address) = MAINTAINER;
        let (name, address) = (named("DEBFULLNAME", name), named("DEBEMAIL", address));
        Ok(Self {
            workspace,
            architecture: ask("dpkg", "--print-architecture", "dpkg")?,
            libraries: format!("lib/{}", ask("cc", "-print-multiarch", "gcc")?),
            maintainer: format!("{name} <{address}>"),
            epoch: build::epoch(workspace)?,
            compression: if quick { QUICK } else { SMALL },
            staging: super::directory(workspace).join("debian"),
        })
    }

    fn tree(&self, name: &str) -> Result<Tree> {
        Tree::new(self.staging.join(name))
    }

    fn text_of(&self, file: &str) -> PathBuf {
        self.workspace.root.join("packaging").join(file)
    }

    /// Returns the files of the package umsg: the command, the drop-in, and their documentation.
    fn command(&self, build: &Build) -> Result<Tree> {
        let tree = self.tree("umsg")?;
        let umsg = build.file("umsg");
        tree.stripped(&umsg, "usr/bin/umsg", "--strip-all")?;
        let drop_in = build.file("libumsg_preload.so");
        let installed = "usr/lib/umsg/libumsg_preload.so";
        tree.stripped(&drop_in, installed, "--strip-unneeded")?;
        let pages = self.staging.join("man1");
        let made = Tree::new(pages.clone())?;
        succeed(Command::new(&umsg).arg("man").arg(&made.root))?;
        tree.compressed_directory(&pages, "usr/share/man/man1")?;
        for (shell, file) in [
            ("bash", "usr/share/bash-completion/completions/umsg"),
            ("fish", "usr/share/fish/vendor_completions.d/umsg.fish"),
            ("zsh", "usr/share/zsh/vendor-completions/_umsg"),
        ] {
            tree.write(file, dist::completions(self.workspace, &umsg, shell)?)?;
        }
        let tmpfiles = text(Command::new(&umsg).args(["setup", "--print-tmpfiles"]))?;
        tree.write("usr/lib/tmpfiles.d/umsg.conf", tmpfiles)?;
        for unit in ["umsg-gc.service", "umsg-gc.timer"] {
            let from = self.text_of("systemd").join(unit);
            tree.file(&from, &format!("usr/lib/systemd/system/{unit}"))?;
        }
        let readme = self.workspace.root.join("README.md");
        tree.file(&readme, "usr/share/doc/umsg/README.md")?;
        self.add_documents(&tree, "umsg", &["umsg-cli", "umsg-preload"])?;
        Ok(tree)
    }

    /// Returns the files of the package umsg-bridge: the bridge to NATS, its unit and its user.
    fn bridge(&self, program: &Path) -> Result<Tree> {
        let tree = self.tree(BRIDGE)?;
        tree.stripped(program, "usr/bin/umsg-bridge", "--strip-all")?;
        let pages = self.staging.join("man1-bridge");
        let made = Tree::new(pages.clone())?;
        succeed(Command::new(program).arg("man").arg(&made.root))?;
        // The package of the command has the page of `umsg bridge`.
        let whole = pages.join("umsg-bridge.1");
        fs::remove_file(&whole).context(whole.display())?;
        tree.compressed_directory(&pages, "usr/share/man/man1")?;
        for (shell, file) in [
            ("bash", "usr/share/bash-completion/completions/umsg-bridge"),
            (
                "fish",
                "usr/share/fish/vendor_completions.d/umsg-bridge.fish",
            ),
            ("zsh", "usr/share/zsh/vendor-completions/_umsg-bridge"),
        ] {
            let made = text(Command::new(program).args(["completions", shell]))?;
            tree.write(file, made)?;
        }
        for (from, to) in [
            (
                "systemd/umsg-bridge.service",
                "usr/lib/systemd/system/umsg-bridge.service",
            ),
            (
                "systemd/umsg-bridge.sysusers",
                "usr/lib/sysusers.d/umsg-bridge.conf",
            ),
            (
                "systemd/bridge.toml",
                "usr/share/doc/umsg-bridge/examples/bridge.toml",
            ),
        ] {
            tree.file(&self.text_of(from), to)?;
        }
        self.add_documents(&tree, BRIDGE, &[BRIDGE])?;
        Ok(tree)
    }

    /// Returns the files of the packages libumsg0 and libumsg-dev: the shared library, and the files for compiling programs with it.
    fn c_library(&self, build: &Build) -> Result<(Tree, Tree)> {
        let all = self.tree("c")?;
        let layout = c::Layout {
            root: &all.root,
            libraries: &self.libraries,
            prefix: "/usr",
            compiler: c::compiler(),
        };
        c::lay_out(self.workspace, &build.file("libumsg_c.a"), &layout)?;
        let library = self.tree("libumsg0")?;
        let development = self.tree("libumsg-dev")?;
        for file in all.files()? {
            let from = all.root.join(&file);
            let to = format!("usr/{file}");
            let is_shared = file.contains("libumsg.so.");
            let tree = if is_shared { &library } else { &development };
            if let Ok(target) = fs::read_link(&from) {
                tree.link(&target.display().to_string(), &to)?;
            } else if is_shared {
                tree.stripped(&from, &to, "--strip-unneeded")?;
            } else if file.ends_with(".a") {
                tree.stripped(&from, &to, "--strip-debug")?;
            } else if !file.starts_with("share/man/") {
                tree.file(&from, &to)?;
            }
        }
        let pages = all.root.join("share/man/man3");
        development.compressed_directory(&pages, "usr/share/man/man3")?;
        let examples = self.workspace.root.join("examples/c");
        for entry in fs::read_dir(&examples).context(examples.display())? {
            let from = entry.context(examples.display())?.path();
            if let Some(name) = from.file_name().filter(|_| from.is_file()) {
                let name = name.to_string_lossy();
                development.file(&from, &format!("usr/share/doc/libumsg-dev/examples/{name}"))?;
            }
        }
        self.add_documents(&library, "libumsg0", &["umsg-c"])?;
        self.add_documents(&development, "libumsg-dev", &["umsg-c"])?;
        Ok((library, development))
    }

    /// Adds the licences and the changes to a tree, in the places that Debian's policy names.
    fn add_documents(&self, tree: &Tree, name: &str, crates: &[&str]) -> Result<()> {
        let directory = format!("usr/share/doc/{name}");
        let copyright = self.text_of("debian/copyright");
        tree.file(&copyright, &format!("{directory}/copyright"))?;
        let changes = self.workspace.root.join("CHANGELOG.md");
        let changes = fs::read(&changes).context(changes.display())?;
        tree.compressed(&format!("{directory}/changelog"), changes)?;
        let licences = licences::text(self.workspace, crates)?;
        tree.compressed(&format!("{directory}/third-party.txt"), licences)
    }

    /// Adds the control files to a tree, and writes the package.
    fn pack(&self, name: &str, tree: &Tree, files: &mut Files) -> Result<()> {
        let installed = tree.files()?;
        let depends = self.dependencies(tree, &installed)?;
        let size = installed.iter().map(|file| {
            let length = fs::symlink_metadata(tree.root.join(file)).map(|data| data.len());
            length.unwrap_or(0).div_ceil(1024)
        });
        let template = self.text_of(&format!("debian/{name}.control"));
        let control = fs::read_to_string(&template).context(template.display())?;
        let control = control
            .replace("@version@", VERSION)
            .replace("@architecture@", &self.architecture)
            .replace("@maintainer@", &self.maintainer)
            .replace("@size@", &size.sum::<u64>().to_string())
            .replace("@depends@", &depends);
        tree.write("DEBIAN/control", control)?;
        let sums = Command::new("md5sum")
            .current_dir(&tree.root)
            .args(
                installed
                    .iter()
                    .filter(|file| !tree.root.join(file).is_symlink()),
            )
            .output();
        tree.write("DEBIAN/md5sums", sums.context("md5sum")?.stdout)?;
        for kind in ["postinst", "prerm", "postrm"] {
            let script = self.text_of(&format!("debian/{name}.{kind}"));
            if script.exists() {
                tree.program(&script, &format!("DEBIAN/{kind}"))?;
            }
        }
        if name == "libumsg0" {
            tree.write("DEBIAN/triggers", "activate-noawait ldconfig\n")?;
            let symbols = self.text_of("debian/libumsg0.symbols");
            tree.file(&symbols, "DEBIAN/symbols")?;
            let shlibs = format!("libumsg 0 libumsg0 (>= {VERSION})\n");
            tree.write("DEBIAN/shlibs", shlibs)?;
        }
        let package = files.add(format!("{name}_{VERSION}_{}.deb", self.architecture));
        let mut pack = Command::new("dpkg-deb");
        pack.arg("--root-owner-group")
            .args(self.compression)
            .arg("--build")
            .arg(&tree.root)
            .arg(package)
            .env("SOURCE_DATE_EPOCH", &self.epoch);
        succeed(&mut pack)
    }

    /// Returns the packages that the programs and libraries of a tree need.
    fn dependencies(&self, tree: &Tree, files: &[String]) -> Result<String> {
        let is_binary = |file: &&String| {
            file.starts_with("usr/bin/") || file.contains(".so") && !file.contains("/man")
        };
        let binaries: Vec<PathBuf> = files
            .iter()
            .filter(is_binary)
            .map(|file| tree.root.join(file))
            .filter(|file| !file.is_symlink())
            .collect();
        if binaries.is_empty() {
            return Ok(String::new());
        }
        // dpkg-shlibdeps looks for the description of a source package.
        let source = self.staging.join("source");
        let control = source.join("debian/control");
        fs::create_dir_all(source.join("debian")).context(source.display())?;
        let any = "Source: umsg\n\nPackage: umsg\nArchitecture: any\n";
        fs::write(&control, any).context(control.display())?;
        shared_libraries(&source, &binaries)
    }
}

fn shared_libraries(source: &Path, binaries: &[PathBuf]) -> Result<String> {
    let mut command = Command::new("dpkg-shlibdeps");
    command.current_dir(source).arg("-O").args(binaries);
    let answer = text(&mut command)?;
    interrupt::check()?;
    let depends = answer.trim().strip_prefix("shlibs:Depends=");
    Ok(depends.unwrap_or_default().to_owned())
}
