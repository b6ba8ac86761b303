//! The source distribution, and its files, from which the wheels are built: so a wheel needs nothing that the distribution lacks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::environment::Environment;
use super::{Package, VERSION, empty, only};
use crate::failure::{Context as _, Failure, Result};
use crate::package::{files_below, succeed, text};
use crate::steps::Steps;

/// Writes the source distribution, and returns the directory of its files.
pub fn make(
    package: &Package,
    environment: &Environment,
    files: &Path,
    steps: &mut Steps,
) -> Result<PathBuf> {
    let mut make = environment.command("maturin");
    make.args(["sdist", "--out"]).arg(files);
    steps.need("source distribution", &mut make)?;
    let unpacked = package.directory.join("source.new");
    empty(&unpacked)?;
    let archive = only(files, ".tar.gz")?;
    let mut unpack = Command::new("tar");
    unpack.arg("--extract").arg("--file").arg(archive);
    succeed(unpack.arg("--directory").arg(&unpacked))?;
    let source = package.directory.join("source");
    take(&unpacked.join(format!("umsg-{VERSION}")), &source)?;
    fs::remove_dir_all(&unpacked).context(unpacked.display())?;
    check(package, &source)?;
    Ok(source)
}

/// Installs the distribution in an empty environment, in a directory away from the checkout, and imports the package there.
pub fn install(package: &Package, python: &Path, files: &Path, steps: &mut Steps) -> Result<()> {
    let away = tempfile::tempdir().context("a temporary directory")?;
    let environment = away.path().join("venv");
    let mut make = package.workspace.command(python);
    make.args(["-m", "venv"]).arg(&environment);
    steps.need("empty environment", &mut make)?;
    let mut install = package.workspace.command(environment.join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check"]);
    install.arg(only(files, ".tar.gz")?);
    // A build without optimisation is enough to show that the distribution builds.
    install
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    let what = "installation of the source distribution";
    steps.need(what, install.current_dir(away.path()))?;
    let program = "import umsg; print(umsg.__file__, umsg.__version__)";
    let mut import = package.workspace.command(environment.join("bin/python"));
    import.args(["-c", program]).current_dir(away.path());
    steps.run("import", &mut import)
}

/// Gives a directory the contents of another directory. Files that are the same keep their times, by which cargo sees what has changed: all files of
/// the archive have one time.
fn take(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).context(to.display())?;
    let new: BTreeSet<String> = files_below(from)?.into_iter().collect();
    for name in files_below(to)? {
        if !new.contains(&name) {
            fs::remove_file(to.join(&name)).context(name)?;
        }
    }
    for name in new {
        let bytes = fs::read(from.join(&name)).context(&name)?;
        let to = to.join(&name);
        if fs::read(&to).is_ok_and(|old| old == bytes) {
            continue;
        }
        let parent = to.parent().unwrap_or(&to);
        fs::create_dir_all(parent).context(parent.display())?;
        fs::write(&to, bytes).context(to.display())?;
    }
    Ok(())
}

/// Fails if the distribution needs a crate that is neither in the distribution nor in a registry.
fn check(package: &Package, source: &Path) -> Result<()> {
    let manifest = source.join("python/Cargo.toml");
    let mut command = package.workspace.cargo(&["metadata", "--locked"]);
    command.args(["--format-version", "1", "--manifest-path"]);
    let metadata = text(command.arg(manifest))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    for found in metadata["packages"].as_array().into_iter().flatten() {
        let place = found["manifest_path"].as_str().unwrap_or_default();
        if found["source"].is_null() && !Path::new(place).starts_with(source) {
            return Err(Failure::new(format!(
                "the source distribution needs {place}, which it does not have"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_file_keeps_its_time_unless_its_contents_change() {
        let directory = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
        for (root, name, contents) in [
            (&old, "same", "1"),
            (&old, "changed", "1"),
            (&old, "removed", "1"),
            (&new, "same", "1"),
            (&new, "changed", "2"),
            (&new, "deep/added", "1"),
        ] {
            let file = root.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, contents).unwrap();
            let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            fs::File::open(&file).unwrap().set_modified(past).unwrap();
        }
        take(&new, &old).unwrap();
        assert_eq!(
            files_below(&old).unwrap(),
            ["changed", "deep/added", "same"]
        );
        let is_new = |name: &str| {
            let time = old.join(name).metadata().unwrap().modified().unwrap();
            time.elapsed().unwrap() < Duration::from_secs(100_000_000)
        };
        assert_eq!(
            ["changed", "deep/added", "same"].map(is_new),
            [true, true, false]
        );
    }
}
