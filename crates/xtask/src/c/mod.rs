//! The C library's header, manual pages and installation, made from its source.

mod ctype;
mod doc;
mod header;
mod install;
mod manual;
mod model;
mod roff;

use std::path::Path;

use crate::failure::Result;
use crate::workspace::Workspace;

pub use install::{Layout, compiler, install, install_built, lay_out};

/// Does the work of `cargo xtask c-header`.
pub fn header(workspace: &Workspace, check: bool) -> Result<()> {
    if check {
        header::check(&workspace.root)
    } else {
        header::write(&workspace.root)
    }
}

/// Does the work of `cargo xtask c-man`.
pub fn manual(workspace: &Workspace, directory: Option<&Path>) -> Result<()> {
    let dist = workspace.target.join("dist/share/man/man3");
    manual::write(&workspace.root, directory.unwrap_or(&dist))
}
