//! The Python that has posix_ipc, for the demonstration and for the tests.

use std::ffi::OsString;
use std::process::{Command, Stdio};

/// Names the interpreter to use.
pub const VARIABLE: &str = "UMSG_TEST_PYTHON";

/// An interpreter that can import posix_ipc: the one that $UMSG_TEST_PYTHON names, or the first on the PATH.
pub fn with_posix_ipc() -> Option<OsString> {
    let candidates = [std::env::var_os(VARIABLE), Some("python3".into())];
    candidates.into_iter().flatten().find(|interpreter| {
        Command::new(interpreter)
            .args(["-c", "import posix_ipc"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })
}
