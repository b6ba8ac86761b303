//! The program behind `umsg bridge`.

use std::process::ExitCode;

fn main() -> ExitCode {
    umsg_bridge::cli::main()
}
