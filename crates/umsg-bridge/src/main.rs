//! The program `umsg-bridge`, which `umsg bridge` executes.

use std::process::ExitCode;

fn main() -> ExitCode {
    umsg_bridge::cli::main()
}
