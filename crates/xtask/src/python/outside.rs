//! The wheels in other systems: an old Debian, Alpine, and an emulated aarch64 machine. Each installs the wheel with pip and runs the package's
//! tests.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::environment::Environment;
use super::{Package, empty};
use crate::aarch64::{self, Program};
use crate::failure::{Context as _, Result};
use crate::package::{ALPINE, OLD_DEBIAN, Root, User, succeed};
use crate::steps::Steps;

/// pip, and the packages that the tests import, for each version of Python. pip evaluates conditions such as "Python 3.9" for the version that runs
/// it, so packages for old versions are named.
const TOOLS: [&str; 6] = [
    "pip",
    "pytest",
    "hypothesis",
    "exceptiongroup",
    "tomli",
    "typing_extensions",
];

/// The directory of the tests and their tools in a system.
const INSIDE: &str = "/umsg";

const INSTALL: &str = "\
    grep -q ^ann: /etc/passwd || echo 'ann:x:1000:1000::/home/ann:/bin/sh' >>/etc/passwd
    mkdir -p /home/ann && chown 1000:1000 /home/ann
    python3 -m venv --without-pip /venv
    PYTHONPATH=/umsg/site /venv/bin/python -m pip install --quiet --no-index --no-deps /umsg/*.whl
    python3 --version && /venv/bin/umsg --version";

/// The variables of the tests, by which they find their tools and need the command.
const VARIABLES: [(&str, &str); 5] = [
    ("PYTHONPATH", "/umsg/site"),
    ("PYTHONDONTWRITEBYTECODE", "yes"),
    ("HYPOTHESIS_STORAGE_DIRECTORY", "/tmp/hypothesis"),
    ("UMSG_TEST_ORIGINALS", "none"),
    ("UMSG_TEST_COMMAND", "/venv/bin/umsg"),
];

const PYTEST: [&str; 5] = ["/venv/bin/python", "-m", "pytest", "-p", "no:cacheprovider"];

/// The tests for the emulated machine, whose instructions take 10 to 20 times as long: each class, waits, signals, leases, and the command.
const CHOICE: [&str; 7] = [
    "tests/test_command.py",
    "tests/test_import.py",
    "tests/test_leases.py",
    "tests/test_queue.py",
    "tests/test_rings.py",
    "tests/test_sysv.py",
    "tests/test_waiting.py",
];

/// The time that the tests of a wheel may take on the emulated machine.
const LIMIT: Duration = Duration::from_secs(1200);

/// The files that a system gets, apart from the wheel.
pub struct Files {
    directory: PathBuf,
}

impl Files {
    /// Collects the tests, the files that they read, and their tools.
    pub fn collect(
        package: &Package,
        environment: &Environment,
        steps: &mut Steps,
    ) -> Result<Self> {
        let directory = package.directory.join("outside");
        empty(&directory)?;
        let mut install = environment.command("pip");
        install.args(["install", "--quiet", "--disable-pip-version-check"]);
        install.args(["--python-version", "3.9", "--platform", "any"]);
        install.args(["--only-binary=:all:", "--target"]);
        install.arg(directory.join("site")).args(TOOLS);
        steps.need("tools of the tests", &mut install)?;
        for (from, to) in [
            ("README.md", ""),
            ("python/tests", "python"),
            ("python/examples", "python"),
            ("python/pyproject.toml", "python"),
            ("docs/guide", "docs"),
        ] {
            let to = directory.join(to);
            fs::create_dir_all(&to).context(to.display())?;
            let mut copy = package.workspace.command("cp");
            succeed(copy.args(["--recursive", from]).arg(to))?;
        }
        Ok(Self { directory })
    }

    /// Tests the wheel for glibc on an old Debian, with its Python.
    pub fn test_old_debian(
        &self,
        package: &Package,
        wheel: &Path,
        steps: &mut Steps,
    ) -> Result<()> {
        let packages = ["python3", "python3-distutils"];
        let root = Root::old_debian(package.workspace, OLD_DEBIAN, &packages, steps)?;
        self.test_in(&root, "old Debian", wheel, steps)
    }

    /// Tests the wheel for musl on Alpine, if there is an archive of such a system, and Python is in it.
    pub fn test_alpine(&self, package: &Package, wheel: &Path, steps: &mut Steps) -> Result<()> {
        let Some(archive) = std::env::var_os(ALPINE) else {
            steps.skip(
                "Alpine",
                &format!("{ALPINE} does not name an archive of Alpine's root directory"),
            );
            return Ok(());
        };
        let root = Root::of_archive(package.workspace, "alpine", Path::new(&archive), steps)?;
        if !root.path("/usr/bin/python3").exists() {
            steps.skip("Alpine", &format!("the archive of {ALPINE} has no python3"));
            return Ok(());
        }
        self.test_in(&root, "Alpine", wheel, steps)
    }

    fn test_in(&self, root: &Root, what: &str, wheel: &Path, steps: &mut Steps) -> Result<()> {
        root.put_directory(&self.directory, INSIDE)?;
        root.put(wheel, &inside(wheel))?;
        let mut step = root.script(User::Root, INSTALL);
        steps.need(&format!("{what}: installation"), &mut step)?;
        let variables = VARIABLES.map(|(name, value)| format!("{name}={value}"));
        let script = format!(
            "cd {INSIDE}/python; env {} {} tests",
            variables.join(" "),
            PYTEST.join(" ")
        );
        let mut step = root.script(User::Ann, &script);
        steps.run(&format!("{what}: tests"), &mut step)
    }

    /// Tests the wheel for aarch64 on an emulated machine with Debian's Python.
    pub fn test_aarch64(&self, package: &Package, wheel: &Path) -> Result<()> {
        let program = |name: &str, arguments: &[&str]| Program {
            name: name.to_owned(),
            directory: format!("{INSIDE}/python").into(),
            executable: arguments[0].into(),
            arguments: arguments[1..].iter().copied().map(str::to_owned).collect(),
            limit: LIMIT,
        };
        let install = ["/bin/sh", "-euc", INSTALL];
        let tests = [&PYTEST[..], &CHOICE].concat();
        let programs = vec![
            program("installation of the wheel", &install),
            program("tests of the package", &tests),
        ];
        let files = vec![
            (self.directory.clone(), INSIDE.to_owned()),
            (wheel.to_owned(), inside(wheel)),
        ];
        let variables = VARIABLES.map(|(name, value)| (name, value.into()));
        aarch64::run_with_python(package.workspace, programs, files, variables.to_vec())
    }
}

/// Returns the path of the wheel in a system.
fn inside(wheel: &Path) -> String {
    let name = wheel.file_name().and_then(OsStr::to_str);
    format!("{INSIDE}/{}", name.unwrap_or_default())
}
