//! Empty systems: a directory of files, entered by chroot in namespaces of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::build::text;
use super::super::missing;
use crate::failure::{Context as _, Failure, Result};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The script that enters a root, in the checkout.
const ENTER: &str = "crates/xtask/src/package/test/enter.sh";

/// The user of a test.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum User {
    Root,
    /// An ordinary user, with the ids 1000.
    Ann,
}

/// A system in a directory of its own.
pub struct Root<'a> {
    workspace: &'a Workspace,
    pub directory: PathBuf,
}

impl<'a> Root<'a> {
    /// Returns a new Debian 12 with these packages and the packages that apt needs. mmdebstrap makes the first system, which is kept in the target
    /// directory.
    pub fn debian(
        workspace: &'a Workspace,
        name: &str,
        packages: &[&str],
        steps: &mut Steps,
    ) -> Result<Self> {
        if text(workspace.command("mmdebstrap").arg("--version")).is_err() {
            return Err(missing("mmdebstrap", "mmdebstrap"));
        }
        let roots = super::super::directory(workspace).join("roots");
        fs::create_dir_all(&roots).context(roots.display())?;
        let kept = roots.join(format!("{name}.tar"));
        let list = roots.join(format!("{name}.packages"));
        let wanted = packages.join(",");
        // If other packages are wanted, the system is made again.
        let is_kept = fs::read_to_string(&list).is_ok_and(|list| list == wanted) && kept.exists();
        if !is_kept {
            let mut make = workspace.command("mmdebstrap");
            make.args(["--quiet", "--variant=apt"]);
            if !packages.is_empty() {
                make.args(["--include", &wanted]);
            }
            // A system for tests needs no sync of each file. apt must not change to its own user `_apt`, which can't write to the directory of the
            // system.
            make.args([
                "--dpkgopt=force-unsafe-io",
                "--aptopt=APT::Sandbox::User \"root\"",
            ]);
            make.args(["bookworm"]).arg(&kept);
            steps.need(&format!("a new system: {name}"), &mut make)?;
            fs::write(&list, wanted).context(list.display())?;
        }
        Self::of_archive(workspace, name, &kept, steps)
    }

    /// Returns an old Debian with the packages that apt needs and the given packages, made as [`debian`](Self::debian) makes its system. Old releases
    /// have no updates.
    pub fn old_debian(
        workspace: &'a Workspace,
        release: &str,
        packages: &[&str],
        steps: &mut Steps,
    ) -> Result<Self> {
        let mut places = workspace.command("apt-get");
        let places = text(places.args(["indextargets", "--format", "$(REPO_URI)"]))?;
        let Some(place) = places.lines().find(|place| place.ends_with("/debian/")) else {
            return Err(Failure::new("the sources of apt name no mirror of Debian"));
        };
        let roots = super::super::directory(workspace).join("roots");
        fs::create_dir_all(&roots).context(roots.display())?;
        let name = [&["debian", release], packages].concat().join("-");
        let kept = roots.join(format!("{name}.tar"));
        if !kept.exists() {
            let unfinished = kept.with_extension("unfinished.tar");
            let mut make = workspace.command("mmdebstrap");
            make.args(["--quiet", "--variant=essential"]);
            if !packages.is_empty() {
                make.arg(format!("--include={}", packages.join(",")));
            }
            make.args([
                "--dpkgopt=force-unsafe-io",
                "--aptopt=APT::Sandbox::User \"root\"",
            ]);
            make.arg(release).arg(&unfinished);
            make.arg(format!("deb {place} {release} main"));
            steps.need(&format!("an empty Debian ({release})"), &mut make)?;
            fs::rename(&unfinished, &kept).context(kept.display())?;
        }
        Self::of_archive(workspace, &name, &kept, steps)
    }

    /// Returns the system that an archive of tar contains.
    pub fn of_archive(
        workspace: &'a Workspace,
        name: &str,
        archive: &Path,
        steps: &mut Steps,
    ) -> Result<Self> {
        let root = Self::empty(workspace, name)?;
        let mut unpack = root.in_namespace();
        unpack.args(["tar", "--extract", "--exclude=./dev/*", "--file"]);
        unpack.arg(archive).arg("--directory").arg(&root.directory);
        steps.need(&format!("a copy of {}", archive.display()), &mut unpack)?;
        Ok(root)
    }

    /// Returns a system without files.
    pub fn empty(workspace: &'a Workspace, name: &str) -> Result<Self> {
        let directory = super::super::directory(workspace).join("roots").join(name);
        let root = Self {
            workspace,
            directory,
        };
        // Files of a system belong to the users of the namespace.
        let mut remove = root.in_namespace();
        super::super::tree::succeed(remove.args(["rm", "-rf"]).arg(&root.directory))?;
        fs::create_dir_all(&root.directory).context(root.directory.display())?;
        Ok(root)
    }

    /// Returns the command that runs a script of sh(1) in the system. The script ends at the first command that fails.
    pub fn script(&self, user: User, script: &str) -> Command {
        let mut command = self.in_namespace();
        command.args(["sh", ENTER]);
        command.arg(&self.directory);
        let (ids, home) = match user {
            User::Root => ("0:0", "/root"),
            User::Ann => ("1000:1000", "/home/ann"),
        };
        command.arg(ids);
        command.args(["/bin/sh", "-euc", script]);
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin",
            )
            .env("HOME", home)
            .env("LC_ALL", "C.UTF-8")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Returns the path on this machine of a file in the system.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.directory.join(inside.trim_start_matches('/'))
    }

    /// Copies a file into the system, readable and executable by all.
    pub fn put(&self, from: &Path, inside: &str) -> Result<()> {
        let mut install = self.in_namespace();
        install.args(["install", "-D", "-m", "755"]).arg(from);
        super::super::tree::succeed(install.arg(self.path(inside)))
    }

    /// Copies a directory into the system, with all that it contains.
    pub fn put_directory(&self, from: &Path, inside: &str) -> Result<()> {
        let mut copy = self.in_namespace();
        copy.args(["cp", "--recursive"]).arg(from);
        super::super::tree::succeed(copy.arg(self.path(inside)))
    }

    /// Returns the beginning of a command in new namespaces. Root makes the namespaces itself; another user makes them with its range of user ids.
    fn in_namespace(&self) -> Command {
        let mut command = self.workspace.command("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--ipc"]);
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user", "--map-auto"]);
        }
        command.arg("--");
        command
    }
}

impl Drop for Root<'_> {
    fn drop(&mut self) {
        let mut remove = self.in_namespace();
        // The next run removes the rest.
        let _ = remove.args(["rm", "-rf"]).arg(&self.directory).status();
    }
}
