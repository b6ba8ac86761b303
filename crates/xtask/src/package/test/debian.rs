//! The packages in an empty Debian 12, and in a Debian 12 with the programs that the tests need.

use std::fs;
use std::path::Path;

use super::super::{Files, VERSION, versions};
use super::root::{Root, User};
use crate::failure::{Context as _, Result};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The name of the system with the programs of the tests.
const FURNISHED: &str = "debian-12";
/// The programs of the tests: a compiler, pkg-config, man, pmqtest, the shells that have completions, and systemd's readers of tmpfiles.d
/// and units.
const PACKAGES: [&str; 9] = [
    "bash-completion",
    "fish",
    "gcc",
    "libc6-dev",
    "man-db",
    "pkgconf",
    "rt-tests",
    "systemd",
    "zsh",
];

/// The name of the system with nothing but what apt needs.
const EMPTY: &str = "debian-12-empty";
/// The path of a program that knows nothing of umsg, in the system where the program is compiled.
const PROGRAM: &str = "/home/ann/mqsend";

/// Debian 11, with glibc 2.31.
pub const OLD: &str = "bullseye";

/// The steps of an ordinary user with Debian's packages.
const ORDINARY: [(&str, &str); 5] = [
    (
        "umsg run -- a program that knows nothing of umsg",
        "cd && cc -o mqsend /test/mqsend.c
         if ./mqsend /q hello; then echo 'the kernel has no limit here' >&2; exit 1; fi
         test \"$(umsg run -- ./mqsend /q hello)\" = 'hello, priority 7'
         umsg ls && umsg ls | grep /q",
    ),
    (
        "a C program, with pkg-config, and with the archive",
        "cd && cc -Wall -Werror -o shared /test/umsg.c $(pkg-config --cflags --libs umsg)
         test \"$(./shared)\" = 'from C, priority 3'
         cc -o static /test/umsg.c -Wl,-Bstatic $(pkg-config --libs umsg) -Wl,-Bdynamic -lgcc_s -lm
         test \"$(./static)\" = 'from C, priority 3'
         ! ldd static | grep libumsg && ldd shared | grep /libumsg.so.0",
    ),
    (
        "manual pages",
        "cd && man umsg | grep -q 'umsg run' && man umsg-send | grep -q umsg-send && man umsg_mq_open | grep -q umsg_mq_open
         man umsg-bridge | grep -q JetStream && man umsg-bridge-check | grep -q offline && man umsg-bridge-status | grep -q json
         for page in $(dpkg -L umsg libumsg-dev umsg-bridge | grep /man/man..*/.*gz); do man --warnings \"$page\" 2>&1 >/dev/null; done >warnings
         cat warnings && test ! -s warnings",
    ),
    (
        "completions",
        "bash -c 'source /usr/share/bash-completion/bash_completion; _completion_loader umsg || true; complete -p umsg'
         bash -c 'source /usr/share/bash-completion/completions/umsg; COMP_WORDS=(umsg se); COMP_CWORD=1; _umsg umsg se umsg
                  echo ${COMPREPLY[*]}' | grep send
         zsh -c 'autoload -Uz compinit && compinit -u && test \"${_comps[umsg]}\" = _umsg && autoload +X _umsg && which _umsg >/dev/null'
         fish -c 'complete -C \"umsg se\"' | grep send
         fish -c 'complete -C \"umsg bridge st\"' | grep status
         fish -c 'complete -C \"umsg-bridge st\"' | grep status
         bash -c 'source /usr/share/bash-completion/completions/umsg-bridge; complete -p umsg-bridge'",
    ),
    (
        "symbols for dependent packages",
        "cat /var/lib/dpkg/info/libumsg0:*.symbols | head -1 | grep 'libumsg.so.0 libumsg0'",
    ),
];

/// The steps of an administrator.
const ADMINISTRATION: [(&str, &str); 5] = [
    (
        "umsg run -- pmqtest",
        "umsg run -- pmqtest -q -l 100 -i 1000 | tee /tmp/printed && grep -q Min /tmp/printed",
    ),
    (
        "the namespace of all users, from tmpfiles.d",
        "systemd-tmpfiles --create /usr/lib/tmpfiles.d/umsg.conf
         test \"$(stat -c '%a %u' /dev/shm/umsg)\" = '1777 0'
         setpriv --reuid 1000 --regid 1000 --clear-groups umsg create /ann
         umsg ls | grep /dev/shm/umsg && umsg ls | grep /ann",
    ),
    (
        "the units of umsg gc",
        "systemd-analyze verify /usr/lib/systemd/system/umsg-gc.service /usr/lib/systemd/system/umsg-gc.timer
         umsg setup
         $(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/umsg-gc.service)",
    ),
    (
        "the bridge: its user, its unit and its example",
        "getent passwd umsg-bridge | grep /usr/sbin/nologin
         systemd-analyze verify /usr/lib/systemd/system/umsg-bridge.service
         cat /usr/share/doc/umsg-bridge/examples/bridge.toml
         mkdir -p /etc/umsg && cp /usr/share/doc/umsg-bridge/examples/bridge.toml /etc/umsg/bridge.toml
         run=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/umsg-bridge.service)
         setpriv --reuid umsg-bridge --regid umsg-bridge --clear-groups ${run%% --dir*} check --offline --config /etc/umsg/bridge.toml
         umsg bridge check --offline --config /etc/umsg/bridge.toml | grep 'leases messages of /orders'
         { umsg bridge status 2>&1 || true; } | grep 'runs no bridge'",
    ),
    (
        "removal leaves nothing",
        "dpkg -L umsg libumsg0 libumsg-dev umsg-bridge | sort -u >/tmp/files
         apt-get purge -y -qq umsg libumsg0 libumsg-dev umsg-bridge
         while read -r file; do test -d \"$file\" || test ! -e \"$file\"; done </tmp/files
         ls -d /usr/lib/umsg /usr/include/umsg /usr/share/doc/umsg 2>/dev/null && exit 1 || true",
    ),
];

const INSTALL: &str = "\
    apt-get install -y -qq --no-install-recommends /packages/*.deb
    test \"$(stat -c '%a %u' /dev/shm/umsg)\" = '1777 0'
    dpkg --audit && dpkg --verify umsg libumsg0 libumsg-dev umsg-bridge
    useradd --create-home --uid 1000 ann";

/// The installation of the README, by the command that it shows.
const INSTALL_ALONE: &str = "\
    cd /packages && apt install -y ./umsg_*.deb
    test \"$(dpkg-query --show --showformat '${db:Status-Status}' umsg)\" = installed
    useradd --create-home --uid 1000 ann";

/// The steps in a system without a compiler, without systemd, and without any package that umsg does not depend on.
const ALONE: &str = "\
    if mqsend /q hello; then echo 'the kernel has no limit here' >&2; exit 1; fi
    test \"$(umsg run -- mqsend /q hello)\" = 'hello, priority 7'
    test \"$(id -un)\" = ann && umsg ls && umsg ls | grep /q | grep ann";

/// Tests Debian's packages.
pub fn run(workspace: &Workspace, files: &Files, steps: &mut Steps) -> Result<()> {
    let root = Root::debian(workspace, FURNISHED, &PACKAGES, steps)?;
    put_packages(files, &root)?;
    put_programs(workspace, &root)?;
    let install = &mut root.script(User::Root, INSTALL);
    steps.need("Debian: apt-get install ./*.deb", install)?;
    for (what, script) in ORDINARY {
        let mut step = root.script(User::Ann, script);
        steps.run(&format!("Debian: {what}"), &mut step)?;
    }
    for (what, script) in ADMINISTRATION {
        let mut step = root.script(User::Root, script);
        steps.run(&format!("Debian: {what}"), &mut step)?;
    }
    run_alone(workspace, files, &root.path(PROGRAM), steps)
}

/// Tests the package of the command in a system with nothing else. `program` is `mqsend`, compiled in a Debian 12.
fn run_alone(
    workspace: &Workspace,
    files: &Files,
    program: &Path,
    steps: &mut Steps,
) -> Result<()> {
    let root = Root::debian(workspace, EMPTY, &[], steps)?;
    put_packages(files, &root)?;
    root.put(program, "/usr/bin/mqsend")?;
    let install = &mut root.script(User::Root, INSTALL_ALONE);
    steps.need("empty Debian: apt install ./umsg_*.deb", install)?;
    let mut step = root.script(User::Ann, ALONE);
    steps.run(
        "empty Debian: umsg run -- mqsend, by an ordinary user",
        &mut step,
    )
}

fn put_packages(files: &Files, root: &Root<'_>) -> Result<()> {
    for name in ["umsg_", "libumsg0_", "libumsg-dev_", "umsg-bridge_"] {
        let package = files.find(name)?;
        let file = package.file_name().unwrap_or_default().to_string_lossy();
        root.put(&package, &format!("/packages/{file}"))?;
    }
    Ok(())
}

/// Tests the archive in a system with glibc.
pub fn run_tarball(workspace: &Workspace, files: &Files, steps: &mut Steps) -> Result<()> {
    let root = Root::debian(workspace, FURNISHED, &PACKAGES, steps)?;
    root.put(
        &files.find(&format!("umsg-{VERSION}-linux"))?,
        "/packages/umsg.tar.gz",
    )?;
    put_programs(workspace, &root)?;
    let install = "\
        useradd --create-home --uid 1000 ann
        cd /packages && tar -xzf umsg.tar.gz && umsg-*/install.sh && umsg --version
        umsg bridge check --offline --config /usr/local/share/doc/umsg/bridge/bridge.toml | grep 'leases messages of /orders'";
    steps.need(
        "tarball, glibc: install.sh",
        &mut root.script(User::Root, install),
    )?;
    let (what, script) = ORDINARY[0];
    let mut step = root.script(User::Ann, script);
    steps.run(&format!("tarball, glibc: {what}"), &mut step)?;
    let (what, script) = ADMINISTRATION[0];
    let mut step = root.script(User::Root, script);
    steps.run(&format!("tarball, glibc: {what}"), &mut step)?;
    let own = "\
        cd && /packages/umsg-*/install.sh ~/.local >/dev/null
        ~/.local/bin/umsg run -- sh -c 'echo $LD_PRELOAD' | grep \"$HOME/.local/lib/umsg/libumsg_preload.so\"";
    let mut step = root.script(User::Ann, own);
    steps.run("tarball, glibc: a directory of the user", &mut step)
}

fn put_programs(workspace: &Workspace, root: &Root) -> Result<()> {
    let programs = workspace.root.join("packaging/test");
    for entry in fs::read_dir(&programs).context(programs.display())? {
        let path = entry.context(programs.display())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        root.put(&path, &format!("/test/{name}"))?;
    }
    Ok(())
}

/// Tests the archive on the oldest Debian that can be fetched. The program is linked for an old glibc, so it takes its functions from librt, like the
/// programs of that time.
pub fn run_old(workspace: &Workspace, files: &Files, steps: &mut Steps) -> Result<()> {
    let root = Root::old_debian(workspace, OLD, &[], steps)?;
    root.put(
        &files.find(&format!("umsg-{VERSION}-linux"))?,
        "/packages/umsg.tar.gz",
    )?;
    let directory = super::super::directory(workspace);
    let program = directory.join("mqsend-old");
    let (major, minor) = versions::OLDEST;
    let mut compile = workspace.command(directory.join("tools/bin/python"));
    compile.args(["-m", "ziglang", "cc", "-target"]);
    compile.arg(format!("x86_64-linux-gnu.{major}.{minor}"));
    compile.arg("packaging/test/mqsend.c").arg("-lrt");
    compile.arg("-o").arg(&program);
    let what = format!("old glibc: a program for glibc {major}.{minor}");
    steps.need(&what, &mut compile)?;
    root.put(&program, "/usr/bin/mqsend")?;
    let install = "\
        echo 'ann:x:1000:1000::/home/ann:/bin/sh' >>/etc/passwd
        mkdir -p /home/ann && chown 1000:1000 /home/ann && ldd --version | head -1
        cd /packages && tar -xzf umsg.tar.gz && umsg-*/install.sh && umsg --version";
    let install = &mut root.script(User::Root, install);
    steps.need("old glibc: install.sh", install)?;
    let script = "\
        if mqsend /q hello; then echo 'the kernel has no limit here' >&2; exit 1; fi
        test \"$(umsg run -- mqsend /q hello)\" = 'hello, priority 7'
        umsg ls && umsg ls | grep /q
        umsg create /jobs --max-messages 64K --message-size 64
        umsg run -- mqsend /jobs first && umsg send /jobs second && test \"$(umsg recv /jobs)\" = second
        test \"$(umsg run -- bash -c 'cat /etc/debian_version | head -c 3')\" = 11.";
    let mut step = root.script(User::Ann, script);
    steps.run("old glibc: umsg run", &mut step)
}
