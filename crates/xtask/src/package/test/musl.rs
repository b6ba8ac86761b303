//! The archive in a system that has musl and no glibc: musl's dynamic linker, BusyBox as a static program, and programs of the tests; and in
//! Alpine.

use std::path::{Path, PathBuf};

use super::super::{Files, VERSION, missing};
use super::root::{Root, User};
use crate::failure::Result;
use crate::musl::{BUSYBOX, COMPILER, need_busybox};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// musl's dynamic linker, which is also its libc, in Debian's package musl.
const LINKER: &str = "/lib/ld-musl-x86_64.so.1";

/// Names an archive of tar with the files of an Alpine system.
pub const ALPINE: &str = "UMSG_TEST_ALPINE";

const INSTALL: &str = "\
    cd /packages && tar -xzf umsg.tar.gz && umsg-*/install.sh && umsg --version
    umsg bridge check --offline --config /usr/local/share/doc/umsg/bridge/bridge.toml | grep 'leases messages of /orders'
    test -e /etc/passwd || echo 'root:x:0:0::/root:/bin/sh' >/etc/passwd
    echo 'ann:x:1000:1000::/home/ann:/bin/sh' >>/etc/passwd
    mkdir -p /home/ann && chown 1000:1000 /home/ann";

const ORDINARY: [(&str, &str); 3] = [
    (
        "umsg run -- a program that knows nothing of umsg",
        "if mqsend /q hello; then echo 'the kernel has no limit here' >&2; exit 1; fi
         test \"$(umsg run -- mqsend /q hello)\" = 'hello, priority 7'
         umsg ls && umsg ls | grep /q | grep \"$(id -un)\"",
    ),
    (
        "two processes and a queue",
        "umsg create /jobs --max-messages 64K --message-size 64
         umsg run -- mqsend /jobs first
         umsg send /jobs second && test \"$(umsg recv /jobs)\" = second",
    ),
    (
        "a program of glibc gets the other library",
        // The program can't start in this system, but `umsg run` chooses the library before the start.
        "umsg run -- glibc 2>&1 | grep -v 'another C library' | grep \"can't be executed\"
         UMSG_PRELOAD=/usr/local/lib/umsg/musl/libumsg_preload.so umsg run -- glibc 2>&1 | grep 'another C library'",
    ),
];

/// C programs of the drop-in's tests, and some of their cases.
const PROGRAMS: [(&str, &[&str]); 5] = [
    (
        "layout",
        &[
            "msgctl_fills_every_field",
            "msg_info_fills_every_field",
            "mq_getattr_fills_every_field",
            "a_deadline_beyond_2106_is_a_deadline",
        ],
    ),
    ("messages", &["errors_come_in_the_kernels_order"]),
    (
        "notify",
        &[
            "a_thread_is_started_for_each_message",
            "a_thread_may_register_again",
        ],
    ),
    (
        "epoll",
        &[
            "edges_cross_processes",
            "a_child_that_starts_a_program_leaves_its_parents_registration",
        ],
    ),
    ("sysv", &["messages_are_picked_by_type"]),
];

/// Tests the archive with musl's dynamic linker and BusyBox, and in Alpine, if there is an archive of Alpine's root.
pub fn run(workspace: &Workspace, files: &Files, steps: &mut Steps) -> Result<()> {
    if !Path::new(LINKER).exists() {
        return Err(missing(LINKER, "musl"));
    }
    need_busybox(workspace)?;
    let programs = compile(workspace, steps)?;
    let root = Root::empty(workspace, "musl")?;
    root.put(Path::new(LINKER), LINKER)?;
    root.put(Path::new(BUSYBOX), BUSYBOX)?;
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
    // A case of the programs runs /bin/true.
    let begin = "/bin/busybox --install -s /usr/bin && ln -s busybox /bin/true";
    test_in(&root, "musl", begin, &programs, files, steps)?;
    match std::env::var_os(ALPINE) {
        Some(archive) => {
            let root = Root::of_archive(workspace, "alpine", Path::new(&archive), steps)?;
            test_in(
                &root,
                "Alpine",
                "cat /etc/alpine-release",
                &programs,
                files,
                steps,
            )
        }
        None => {
            steps.skip(
                "Alpine",
                &format!("{ALPINE} does not name an archive of Alpine's root directory"),
            );
            Ok(())
        }
    }
}

/// Compiles the programs, and returns them with their paths in the system.
fn compile(workspace: &Workspace, steps: &mut Steps) -> Result<Vec<(PathBuf, String)>> {
    let directory = super::super::directory(workspace);
    let mut programs = Vec::new();
    let mut add = |compiler: &str, source: &str, name: &str| -> Result<()> {
        let program = directory.join(name);
        let mut words = compiler.split_whitespace();
        let mut compile = workspace.command(words.next().unwrap_or(compiler));
        compile.args(words).arg("-pthread").arg("-o").arg(&program);
        compile.arg(source);
        let what = format!(
            "musl: {name}, by {}",
            compiler.split(' ').next().unwrap_or("")
        );
        steps.need(&what, &mut compile)?;
        programs.push((program, format!("/usr/bin/{name}")));
        Ok(())
    };
    add(COMPILER, "packaging/test/mqsend.c", "mqsend")?;
    add("cc", "packaging/test/mqsend.c", "glibc")?;
    for (name, _) in PROGRAMS {
        let source = format!("crates/umsg-preload/tests/programs/{name}.c");
        add(COMPILER, &source, &format!("cases-{name}"))?;
    }
    Ok(programs)
}

fn test_in(
    root: &Root,
    what: &str,
    begin: &str,
    programs: &[(PathBuf, String)],
    files: &Files,
    steps: &mut Steps,
) -> Result<()> {
    root.put(
        &files.find(&format!("umsg-{VERSION}-linux"))?,
        "/packages/umsg.tar.gz",
    )?;
    for (program, inside) in programs {
        root.put(program, inside)?;
    }
    let install = format!("{begin}\n{INSTALL}");
    let install = &mut root.script(User::Root, &install);
    steps.need(&format!("{what}: install.sh"), install)?;
    for (about, script) in ORDINARY {
        let mut step = root.script(User::Ann, script);
        steps.run(&format!("{what}: {about}"), &mut step)?;
    }
    let mut cases = String::new();
    for (name, names) in PROGRAMS {
        for case in names {
            cases += &format!("echo {name} {case}; umsg run -- cases-{name} {case}\n");
        }
    }
    let mut step = root.script(User::Ann, &cases);
    steps.run(
        &format!("{what}: structures, notifications, events"),
        &mut step,
    )
}
