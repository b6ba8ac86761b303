//! External programs for the demonstration and for the tests, if they are installed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns pmqtest of Debian's rt-tests.
pub fn pmqtest() -> Option<PathBuf> {
    on_the_path("pmqtest")
}

/// Returns curl, which requests pages of the example of rings.
pub fn curl() -> Option<PathBuf> {
    on_the_path("curl")
}

/// Returns tmux, in which the pictures of `umsg top` are made.
pub fn tmux() -> Option<PathBuf> {
    on_the_path("tmux")
}

/// Returns a browser, which looks at the page of benchmarks.
pub fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("UMSG_TEST_CHROMIUM").map(PathBuf::from);
    let usual = ["chromium", "chromium-browser", "google-chrome"];
    named.or_else(|| usual.into_iter().find_map(on_the_path))
}

/// Returns mdbook, which makes a book of the documents: the one that $UMSG_TEST_MDBOOK names, or the first on the PATH.
pub fn mdbook() -> Option<PathBuf> {
    let named = std::env::var_os("UMSG_TEST_MDBOOK").map(PathBuf::from);
    named.or_else(|| on_the_path("mdbook"))
}

fn on_the_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|program| program.is_file())
}

/// Returns a Python that can import posix_ipc: the one that $UMSG_TEST_PYTHON names, or the first on the PATH.
pub fn python_with_posix_ipc() -> Option<OsString> {
    let candidates = [std::env::var_os("UMSG_TEST_PYTHON"), Some("python3".into())];
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
