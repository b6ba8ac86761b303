//! Tests the command at the resource limits of its process: an error names the limit and the remedy.

mod support;

use std::os::unix::process::CommandExt;

use support::{Outcome, Site, end, finish, start};

/// Runs the command with a limit, such as `RLIMIT_AS`.
fn limited(site: &Site, resource: libc::__rlimit_resource_t, most: u64, line: &str) -> Outcome {
    let arguments: Vec<&str> = line.split(' ').collect();
    let mut command = site.command(&arguments);
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: the child makes one system call, which reads a structure in the child's own memory.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(resource, &raw const limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    finish(&mut command, b"")
}

#[test]
fn a_limit_of_the_process_is_named_with_what_helps() {
    let site = Site::new();
    for line in ["create /q --max-messages 100000", "create key:0x1234"] {
        limited(&site, libc::RLIMIT_FSIZE, 4096, line).fails(1, &["ulimit -f"]);
        limited(&site, libc::RLIMIT_AS, 300 << 20, line).fails(1, &["address space", "ulimit -v"]);
        // The limit leaves one descriptor besides the standard streams. One descriptor is enough to load the libraries at the start, but not enough
        // to create a queue.
        limited(&site, libc::RLIMIT_NOFILE, 4, line).fails(1, &["descriptor", "ulimit -n"]);
    }
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "");
}

#[test]
fn a_dump_that_would_be_too_long_for_a_file_leaves_none() {
    let (site, files) = (Site::new(), tempfile::tempdir().unwrap());
    site.umsg(&["create", "/q"]).text();
    for _ in 0..3 {
        site.umsg(&["send", "/q", &"x".repeat(4000)]).text();
    }
    let line = format!("dump /q -o {}", files.path().join("dump").display());
    limited(&site, libc::RLIMIT_FSIZE, 8192, &line).fails(1, &["ulimit -f"]);
    assert_eq!(files.path().read_dir().unwrap().count(), 0);
    limited(&site, libc::RLIMIT_FSIZE, 1 << 20, &line).text();
}

#[test]
fn limits_that_can_not_be_written_leave_no_file_and_are_an_error() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let refused = limited(&site, libc::RLIMIT_FSIZE, 0, "limits --max-queues 10");
    refused.fails(1, &["File too large"]);
    let left = site.umsg(&["gc", "--leftovers"]);
    assert_eq!(left.text(), "no stale files\n");
    assert_ne!(site.umsg(&["limits", "--json"]).json()["max_queues"], 10);
}

#[test]
fn a_process_that_can_not_map_a_system_v_queue_removes_it() {
    let site = Site::new();
    for line in ["rm key:5", "rm id:1", "gc * --remove"] {
        site.umsg(&["create", "key:5"]).text();
        let asked = limited(&site, libc::RLIMIT_AS, 1000 << 20, "doctor key:5");
        asked.fails(1, &["address space", "ulimit -v"]);
        let waiting = start(&mut site.command(&["recv", "key:5"]));
        site.wait_for("key:5", "blocked_receivers", 1);
        let line = match line.contains("gc") {
            true => "gc * --remove --in-use",
            false => line,
        };
        limited(&site, libc::RLIMIT_AS, 1000 << 20, line).text();
        end(waiting).fails(4, &["was removed"]);
        assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "");
    }
}
