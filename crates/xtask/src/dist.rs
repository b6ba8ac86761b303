//! `cargo xtask dist`: the files of an installation, laid out as below /usr/local.
//!
//! ```text
//! target/dist/bin/umsg
//!             lib/libumsg_preload.so
//!             lib/libumsg.so, .a, pkgconfig/umsg.pc and include/umsg.h, umsg/*.h
//!             share/man/man1/umsg*.1, man3/umsg_*.3
//!             share/bash-completion/completions/umsg
//!             share/fish/vendor_completions.d/umsg.fish
//!             share/zsh/site-functions/_umsg
//! ```

use std::fs;
use std::path::Path;

use crate::c;
use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::shell;
use crate::workspace::Workspace;

/// The directories in which each shell looks for completions.
pub const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/umsg"),
    ("fish", "share/fish/vendor_completions.d/umsg.fish"),
    ("zsh", "share/zsh/site-functions/_umsg"),
];

/// Builds target/dist again.
pub fn run(workspace: &Workspace) -> Result<()> {
    let mut build =
        workspace.cargo(&["build", "--release", "-p", "umsg-cli", "-p", "umsg-preload"]);
    succeed(&mut build)?;
    let dist = workspace.target.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).context(dist.display())?;
    }
    install(&workspace.release("umsg"), &dist.join("bin/umsg"))?;
    let library = "libumsg_preload.so";
    install(&workspace.release(library), &dist.join("lib").join(library))?;
    c::install(workspace, &dist, true)?;

    let umsg = workspace.release("umsg");
    let mut man = workspace.command(&umsg);
    succeed(man.arg("man").arg(dist.join("share/man/man1")))?;
    for (shell, file) in COMPLETIONS {
        let completions = completions(workspace, &umsg, shell)?;
        let file = dist.join(file);
        make_parent(&file)?;
        fs::write(&file, completions).context(file.display())?;
    }
    println!(
        "{} is laid out as below /usr/local; to install it there: cp -r {}/. /usr/local/",
        dist.display(),
        dist.display()
    );
    Ok(())
}

/// Returns the completions of the command for a shell, as the command prints them.
pub fn completions(workspace: &Workspace, umsg: &Path, shell: &str) -> Result<Vec<u8>> {
    let mut completions = workspace.command(umsg);
    let output = interrupt::output(completions.args(["completions", shell]))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(failed(&completions)),
    }
}

fn install(from: &Path, to: &Path) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).context(from.display())?;
    Ok(())
}

fn make_parent(file: &Path) -> Result<()> {
    match file.parent() {
        Some(parent) => fs::create_dir_all(parent).context(parent.display()),
        None => Ok(()),
    }
}

fn succeed(command: &mut std::process::Command) -> Result<()> {
    match interrupt::run(command)?.success() {
        true => Ok(()),
        false => Err(failed(command)),
    }
}

fn failed(command: &std::process::Command) -> Failure {
    Failure::new(format!("{} failed", shell::line(command)))
}
