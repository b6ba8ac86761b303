//! Tests the limits of queues in /proc/sys: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "limits":
    a_written_limit_is_read_from_then_on,
    a_descriptor_counts_what_is_written_at_its_beginning,
    queues_obey_written_limits,
    the_next_queue_has_the_identifier_that_was_written,
    another_user_takes_the_next_identifier_and_does_not_choose_it,
    streams_write_limits,
    the_end_of_the_process_writes_what_streams_hold,
    shells_and_other_programs_write_limits,
    another_user_reads_limits_and_does_not_write_them,
}

#[test]
fn a_user_has_the_bytes_of_rlimit_msgqueue() {
    let program = support::compile("limits");
    let case = "a_user_has_the_bytes_of_rlimit_msgqueue";
    if support::kernel_has_queues() {
        support::succeed(std::process::Command::new(&program).arg(case));
    }
    let namespace = support::Namespace::new();
    let (name, value) = umsg::ipc::shared();
    let opened = umsg::Namespace::at(namespace.path()).unwrap();
    for honoured in [false, true] {
        let limits = umsg::Limits {
            rlimit_msgqueue: honoured,
            ..umsg::Limits::default()
        };
        opened.set_limits(&limits).unwrap();
        for part in ["", "mq"] {
            let path = namespace.path().join(part);
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o1777))
                .unwrap();
        }
        let ended = support::finish(namespace.command(&program).arg(case).env(name, value));
        // The case expects that a third queue is refused. If the limit is not honoured, root can create this queue, and the case fails.
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(
            ended.status.success(),
            honoured || !is_root,
            "{honoured}: {ended:?}"
        );
        for queue in umsg::posix::list(&opened).unwrap() {
            umsg::posix::unlink_in(&opened, &queue.name).unwrap();
        }
    }
}
