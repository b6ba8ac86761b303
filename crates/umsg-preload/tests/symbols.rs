//! Checks the names that the drop-in exports. Programs must reach these names with each way of linking, and with each way of loading a library that
//! uses queues.

mod support;

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use support::{Namespace, compile_with, finish, library, succeed};

const EXPORTED: &[&str] = &[
    "ftw",
    "ftw64",
    "glob",
    "glob64",
    "nftw",
    "nftw64",
    "clone",
    "setns",
    "unshare",
    "stat",
    "stat64",
    "lstat",
    "lstat64",
    "__xstat",
    "__xstat64",
    "__lxstat",
    "__lxstat64",
    "access",
    "eaccess",
    "euidaccess",
    "faccessat",
    "unlink",
    "unlinkat",
    "rmdir",
    "remove",
    "rename",
    "renameat",
    "renameat2",
    "chmod",
    "fchmodat",
    "chown",
    "lchown",
    "fchownat",
    "creat",
    "creat64",
    "opendir",
    "scandir",
    "scandir64",
    "chdir",
    "inotify_add_watch",
    "getxattr",
    "lgetxattr",
    "listxattr",
    "llistxattr",
    "copy_file_range",
    "sendfile",
    "sendfile64",
    "__fxstat",
    "__fxstat64",
    "__fxstatat",
    "__fxstatat64",
    "__mq_open_2",
    "__open64_2",
    "__open_2",
    "__openat64_2",
    "__openat_2",
    "__poll_chk",
    "__ppoll_chk",
    "__pread64_chk",
    "__pread_chk",
    "__read_chk",
    "__readlink_chk",
    "__readlinkat_chk",
    "__sigaction",
    "__sysv_signal",
    "bsd_signal",
    "capset",
    "close",
    "close_range",
    "closefrom",
    "dlopen",
    "dup",
    "dup2",
    "dup3",
    "epoll_ctl",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "fchmod",
    "fcntl",
    "fcntl64",
    "fdatasync",
    "fexecve",
    "fclose",
    "fflush",
    "fopen",
    "fseek",
    "fseeko",
    "fseeko64",
    "fopen64",
    "fstat",
    "fstat64",
    "fstatat",
    "fstatat64",
    "fsync",
    "ftruncate",
    "ftruncate64",
    "initgroups",
    "ioctl",
    "lseek",
    "lseek64",
    "mmap",
    "mmap64",
    "mq_close",
    "mq_getattr",
    "mq_notify",
    "mq_open",
    "mq_receive",
    "mq_send",
    "mq_setattr",
    "mq_timedreceive",
    "mq_timedsend",
    "mq_unlink",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "open",
    "open64",
    "openat",
    "openat64",
    "poll",
    "posix_spawn",
    "posix_spawn_file_actions_adddup2",
    "posix_spawnp",
    "ppoll",
    "pread",
    "pread64",
    "preadv",
    "preadv64",
    "pselect",
    "pthread_cancel",
    "pthread_setcanceltype",
    "pwrite",
    "pwrite64",
    "pwritev",
    "pwritev64",
    "read",
    "readlink",
    "readlinkat",
    "readv",
    "recvmmsg",
    "rewind",
    "recvmsg",
    "select",
    "sendmmsg",
    "sendmsg",
    "setegid",
    "seteuid",
    "setfsgid",
    "setfsuid",
    "setgid",
    "setgroups",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setuid",
    "sigaction",
    "signal",
    "siginterrupt",
    "sigset",
    "ssignal",
    "statx",
    "syscall",
    "sysv_signal",
    "write",
    "writev",
];

/// Returns the exported names of a library. A space and the version follow a name that has a version.
fn dynamic_symbols(library: &Path) -> BTreeSet<String> {
    let listing = succeed(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library),
    );
    listing
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(str::to_owned)
        .collect()
}

fn is_queue_of(namespace: &Namespace, name: &str) -> bool {
    namespace.path().join("mq").join(name).exists()
}

/// The flag of dlopen that resolves all names at once.
const RTLD_NOW: &str = "2";
const RTLD_NOW_AND_DEEPBIND: &str = "10";

fn loader() -> std::path::PathBuf {
    let plugin = compile_with(
        "plugin",
        "libumsg_test_plugin.so",
        &["-shared", "-fPIC", "-lrt"],
    );
    let run_path = format!(
        "-Wl,--enable-new-dtags,-rpath,{}",
        plugin.parent().unwrap().display()
    );
    compile_with("loader", "loader", &[&run_path])
}

#[test]
fn only_names_of_libc_are_exported_and_none_has_a_version() {
    // The drop-in also exports the symbol at which `umsg trace --pid` finds the request for records.
    let names = EXPORTED.iter().chain(&["umsg_trace_request_1"]);
    let expected: BTreeSet<String> = names.map(|&name| name.to_owned()).collect();
    assert_eq!(dynamic_symbols(library()), expected);
}

#[test]
fn names_of_librt_and_of_libc_are_both_caught() {
    let namespace = Namespace::new();
    let program = compile_with("versions", "versions", &[]);
    let references = succeed(Command::new("nm").arg("-D").arg(&program));
    assert!(
        references.contains("mq_open@GLIBC_2.3.4") && references.contains("mq_send@GLIBC_2.34")
    );
    succeed(namespace.command(program).arg("/versions"));
    assert!(is_queue_of(&namespace, "versions"));
}

#[test]
fn a_fortified_program_is_caught() {
    let namespace = Namespace::new();
    let program = compile_with("fortified", "fortified", &["-O2", "-D_FORTIFY_SOURCE=2"]);
    let references = succeed(Command::new("nm").arg("-D").arg(&program));
    let names = ["__mq_open_2", "__read_chk", "__pread_chk", "__readlink_chk"];
    for name in [&names[..], &["__poll_chk", "__ppoll_chk"]].concat() {
        assert!(references.contains(name), "{name} is not used");
    }
    succeed(
        namespace
            .command(&program)
            .arg("checked_names_know_queues_too"),
    );
    let ended = finish(
        namespace
            .command(&program)
            .arg("creating_without_a_mode_ends_the_program"),
    );
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("O_CREAT without mode"));
    let ended = finish(
        namespace
            .command(&program)
            .arg("polling_more_than_there_is_ends_the_program"),
    );
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT));
}

#[test]
fn a_library_loaded_with_deepbind_is_caught() {
    let namespace = Namespace::new();
    succeed(
        namespace
            .command(loader())
            .args([RTLD_NOW_AND_DEEPBIND, "/deep"]),
    );
    assert!(is_queue_of(&namespace, "deep"));
}

#[test]
fn dlopen_still_searches_the_run_path_of_its_caller() {
    let namespace = Namespace::new();
    succeed(namespace.command(loader()).args([RTLD_NOW, "/plain"]));
    assert!(is_queue_of(&namespace, "plain"));
}

#[test]
fn a_constructor_that_runs_before_ours_can_use_queues() {
    let namespace = Namespace::new();
    let early = compile_with("early", "libearly.so", &["-shared", "-fPIC"]);
    let both = format!("{}:{}", library().display(), early.display());
    succeed(namespace.command("/bin/true").env("LD_PRELOAD", both));
    assert!(is_queue_of(&namespace, "early"));
}

#[test]
fn an_allocator_that_calls_mmap_before_we_start_is_not_called_by_itself() {
    let namespace = Namespace::new();
    let allocator = compile_with("allocator", "liballocator.so", &["-shared", "-fPIC"]);
    let program = compile_with("messages", "messages", &[]);
    for both in [[library(), &allocator], [&allocator, library()]] {
        let both = both.map(|path| path.display().to_string()).join(":");
        let mut command = namespace.command(&program);
        succeed(
            command
                .arg("errors_come_in_the_kernels_order")
                .env("LD_PRELOAD", both),
        );
    }
}

#[test]
fn another_preloaded_library_gets_what_is_not_ours() {
    let namespace = Namespace::new();
    let chain = compile_with("chain", "libchain.so", &["-shared", "-fPIC"]);
    let program = compile_with("chained", "chained", &[]);
    let behind = format!("{}:{}", library().display(), chain.display());
    let seen = succeed(namespace.command(&program).env("LD_PRELOAD", behind));
    let closes: u32 = seen.split(' ').next().unwrap().parse().unwrap();
    assert!(closes >= 2, "the file's and the queue's: {seen}");
}

#[test]
fn a_first_call_does_not_wait_for_a_constructor() {
    let namespace = Namespace::new();
    let options = ["-shared", "-fPIC"];
    let loaded = compile_with("slow_constructor", "libslow_constructor.so", &options);
    let program = compile_with("waited_for", "waited_for", &["-rdynamic"]);
    succeed(namespace.command(program).arg(loaded));
}

#[test]
fn without_a_namespace_mq_open_fails_and_says_why_if_asked() {
    let namespace = Namespace::new();
    let program = compile_with("versions", "versions", &[]);
    let missing = namespace.path().join("missing");
    let silent = finish(
        namespace
            .command(&program)
            .arg("/x")
            .env("UMSG_DIR", &missing),
    );
    assert!(!silent.status.success() && silent.stderr.is_empty());
    let mut command = namespace.command(&program);
    let explained = finish(
        command
            .arg("/x")
            .env("UMSG_DIR", &missing)
            .env("UMSG_DEBUG", "1"),
    );
    let line = String::from_utf8(explained.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(
        line.starts_with("umsg: mq_open(\"/x\"): ") && line.contains("missing"),
        "{line}"
    );
}

/// Returns the addresses of a library's code: the program headers of type 1 with flag 1. A header consists of the type and the flags, the offset in
/// the file, two addresses and two lengths.
fn code_of(library: &[u8]) -> Vec<Range<u64>> {
    let word = |at: usize| u64::from_le_bytes(library[at..at + 8].try_into().unwrap());
    let half = |at: usize| u16::from_le_bytes(library[at..at + 2].try_into().unwrap());
    let (first, size, count) = (word(32) as usize, half(54), half(56));
    let headers = (0..count).map(|n| first + usize::from(n * size));
    let code = headers.filter(|&at| {
        let (kind, flags) = (word(at) as u32, word(at) >> 32);
        kind == 1 && flags & 1 != 0
    });
    code.map(|at| word(at + 16)..word(at + 16) + word(at + 40))
        .collect()
}

/// Returns the tracepoints in the code of a library, with the number of their arguments: the entries of `.note.stapsdt`. An entry starts with the
/// lengths of the name and of the description, the type 3 and the name `stapsdt`. Three addresses, the provider, the name, and the places of the
/// arguments follow. Entries of functions that the linker has left out have addresses outside of the code, and are skipped.
fn tracepoints(library: &[u8]) -> BTreeSet<(String, String, usize)> {
    const OWNER: &[u8] = b"stapsdt\0";
    let code = code_of(library);
    let mut found = BTreeSet::new();
    for at in 12..library.len() - OWNER.len() {
        let word = |at: usize| u32::from_le_bytes(library[at..at + 4].try_into().unwrap());
        let is_note = &library[at..at + OWNER.len()] == OWNER
            && (word(at - 12), word(at - 4)) == (OWNER.len() as u32, 3);
        if !is_note {
            continue;
        }
        let begin = at + OWNER.len();
        let description = &library[begin..begin + word(at - 8) as usize];
        let address = u64::from_le_bytes(description[..8].try_into().unwrap());
        if !code.iter().any(|code| code.contains(&address)) {
            continue;
        }
        let texts = description[24..].split(|&byte| byte == 0);
        let texts: Vec<String> = texts
            .map(|text| String::from_utf8(text.to_vec()).unwrap())
            .collect();
        let arguments = texts[2].split_whitespace().count();
        found.insert((texts[0].clone(), texts[1].clone(), arguments));
    }
    found
}

#[test]
fn the_tracepoints_of_the_guide_are_in_the_code_of_the_library() {
    let library = std::fs::read(library()).unwrap();
    let wanted = [
        ("event", 2),
        ("msg_receive", 3),
        ("msg_send", 3),
        ("receive", 3),
        ("send", 3),
        ("wait_begin", 2),
        ("wait_end", 2),
    ];
    let wanted = wanted.map(|(name, arguments)| ("umsg".to_owned(), name.to_owned(), arguments));
    assert_eq!(tracepoints(&library), BTreeSet::from(wanted));
}
