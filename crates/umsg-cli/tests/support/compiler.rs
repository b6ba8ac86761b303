//! Compiles programs and libraries for a test.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use umsg_testkit::compile::Compile;

/// A directory for test programs: every user can read it, and its file system respects set-user-ID bits. It is removed at the end of the test.
pub struct Workshop(TempDir);

impl Workshop {
    pub fn new() -> Workshop {
        let directory = TempDir::with_prefix("umsg-cli-test-").unwrap();
        super::set_mode(directory.path(), 0o755);
        Workshop(directory)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a C program. Returns None if the compiler reports an error.
    pub fn try_compile(&self, name: &str, source: &str, arguments: &[&str]) -> Option<PathBuf> {
        let file = self.path(&format!("{name}.c"));
        std::fs::write(&file, source).unwrap();
        Compile::new(&file, self.path(name))
            .args(arguments)
            .try_run()
    }

    pub fn compile(&self, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
        let compiled = self.try_compile(name, source, arguments);
        compiled.unwrap_or_else(|| panic!("{name} does not compile"))
    }

    /// Makes a library that can be preloaded and does nothing.
    pub fn idle_library(&self) -> PathBuf {
        self.compile("libidle.so", "int umsg_test_idle;", &["-shared", "-fPIC"])
    }

    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let draft = self.path(&format!("{name}.draft"));
        std::fs::write(&draft, text).unwrap();
        self.copy(draft, name)
    }

    /// Copies a program, and returns the path of the executable copy. Another process makes the copy: a child of another test could inherit a
    /// descriptor of this process that is open for writing, and the file would be busy (ETXTBSY).
    pub fn copy(&self, program: impl AsRef<Path>, name: &str) -> PathBuf {
        let copy = self.path(name);
        let mut install = Command::new("install");
        install.args(["-m", "755"]).arg(program.as_ref()).arg(&copy);
        assert!(install.status().unwrap().success(), "{name} is not copied");
        copy
    }
}
