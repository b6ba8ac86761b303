//! The archive in a system that has musl and no glibc: musl's dynamic linker, BusyBox as a static program, and a program of the test.

use std::path::Path;

use super::super::build::text;
use super::super::{Files, VERSION, missing};
use super::root::{Root, User};
use crate::failure::{Failure, Result};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// musl's dynamic linker, which is also its libc, in Debian's package musl.
const LINKER: &str = "/lib/ld-musl-x86_64.so.1";
/// Debian's package busybox-static.
const BUSYBOX: &str = "/bin/busybox";

const INSTALL: &str = "\
    cd /packages && tar -xzf umsg.tar.gz && umsg-*/install.sh && umsg --version
    echo 'root:x:0:0::/root:/bin/sh' >/etc/passwd
    echo 'ann:x:1000:1000::/home/ann:/bin/sh' >>/etc/passwd
    mkdir -p /home/ann && chown 1000:1000 /home/ann";

const ORDINARY: [(&str, &str); 3] = [
    (
        "umsg run -- a program that knows nothing of umsg",
        "if mqsend /q hello; then echo 'the kernel has no limit here' >&2; exit 1; fi
         test \"$(umsg run -- mqsend /q hello)\" = 'hello, priority 7'
         umsg ls && umsg ls | grep /q | grep ann",
    ),
    (
        "two processes and a queue",
        "umsg create /jobs --max-messages 64K --message-size 64
         umsg run -- mqsend /jobs first
         umsg send /jobs second && test \"$(umsg recv /jobs)\" = second",
    ),
    (
        "a program of glibc gets the other library",
        // The program can't start here; the choice of the library comes before it.
        "umsg run -- glibc 2>&1 | grep -v 'another C library' | grep \"can't be executed\"
         UMSG_PRELOAD=/usr/local/lib/umsg/musl/libumsg_preload.so umsg run -- glibc 2>&1 | grep 'another C library'",
    ),
];

/// Tests the archive.
pub fn run(workspace: &Workspace, files: &Files, steps: &mut Steps) -> Result<()> {
    for (file, package) in [(LINKER, "musl"), (BUSYBOX, "busybox-static")] {
        if !Path::new(file).exists() {
            return Err(missing(file, package));
        }
    }
    let linked = text(workspace.command("ldd").arg(BUSYBOX)).unwrap_or_default();
    if linked.contains("libc.so.6") {
        return Err(Failure::new(format!(
            "{BUSYBOX} needs glibc; apt-get install busybox-static"
        )));
    }
    let root = Root::empty(workspace, "musl")?;
    root.put(Path::new(LINKER), LINKER)?;
    root.put(Path::new(BUSYBOX), BUSYBOX)?;
    root.put(
        &files.find(&format!("umsg-{VERSION}-linux"))?,
        "/packages/umsg.tar.gz",
    )?;
    for (compiler, name) in [("musl-gcc", "mqsend"), ("cc", "glibc")] {
        let program = super::super::directory(workspace).join(name);
        let mut compile = workspace.command(compiler);
        compile
            .arg("-o")
            .arg(&program)
            .arg("packaging/test/mqsend.c");
        steps.need(&format!("musl: a program, by {compiler}"), &mut compile)?;
        root.put(&program, &format!("/usr/bin/{name}"))?;
    }
    for directory in ["/etc", "/usr/sbin", "/sbin", "/root"] {
        super::super::tree::succeed(
            workspace
                .command("mkdir")
                .arg("-p")
                .arg(root.path(directory)),
        )?;
    }
    super::super::tree::succeed(
        workspace
            .command("ln")
            .args(["-s", "busybox"])
            .arg(root.path("/bin/sh")),
    )?;
    let install = format!("/bin/busybox --install -s /usr/bin\n{INSTALL}");
    steps.need("musl: install.sh", &mut root.script(User::Root, &install))?;
    for (what, script) in ORDINARY {
        let mut step = root.script(User::Ann, script);
        steps.run(&format!("musl: {what}"), &mut step)?;
    }
    Ok(())
}
