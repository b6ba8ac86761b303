//! Runs random operations on the kernel and on umsg in lockstep, and proves that the comparison finds mistakes.

#[macro_use]
mod comparing;

use comparing::{expect_found, expect_no_difference, expect_seen};
use umsg_conformance::backend::{Flaw, Kind, Posix};

comparisons! {
    Posix,
    the_native_api_does_not_differ_from_the_kernel,
    the_c_library_does_not_differ_from_the_kernel,
    the_drop_in_does_not_differ_from_the_kernel,
    preloaded_processes_do_not_differ_from_the_kernel,
    the_kernel_does_not_differ_from_itself,
}

#[test]
fn the_operations_reach_what_there_is_to_reach() {
    let summary = expect_no_difference::<Posix>(Kind::Kernel, 20_000);
    let expected = [
        ("mq_open", "ok"),
        ("mq_open", "ENOENT"),
        ("mq_open", "EEXIST"),
        ("mq_open", "EINVAL"),
        ("mq_open", "ENAMETOOLONG"),
        ("mq_unlink", "ok"),
        ("mq_unlink", "ENOENT"),
        ("mq_close", "ok"),
        ("mq_close", "EBADF"),
        ("mq_send", "ok"),
        ("mq_send", "blocks"),
        ("mq_send", "EAGAIN"),
        ("mq_send", "EBADF"),
        ("mq_send", "EINTR"),
        ("mq_send", "EINVAL"),
        ("mq_send", "EMSGSIZE"),
        ("mq_timedsend", "ETIMEDOUT"),
        ("mq_timedsend", "blocks"),
        ("mq_receive", "ok"),
        ("mq_receive", "blocks"),
        ("mq_receive", "EAGAIN"),
        ("mq_receive", "EBADF"),
        ("mq_receive", "EINTR"),
        ("mq_receive", "EMSGSIZE"),
        ("mq_timedreceive", "ETIMEDOUT"),
        ("mq_timedreceive", "EINVAL"),
        ("mq_timedreceive", "blocks"),
        ("fork", "ok"),
        ("SIGKILL", "blocked"),
        ("signal", "blocked"),
        ("signal with SA_RESTART", "blocked"),
        ("SIGSTOP and SIGCONT", "blocked"),
        ("poll", "ok"),
        ("poll that waits", "ok"),
        ("poll that waits", "blocks"),
        ("poll that waits", "EINTR"),
        ("select", "ok"),
        ("select", "EBADF"),
        ("epoll_create1", "ok"),
        ("EPOLL_CTL_ADD", "ok"),
        ("EPOLL_CTL_ADD", "EEXIST"),
        ("EPOLL_CTL_ADD", "EINVAL"),
        ("EPOLL_CTL_MOD", "ok"),
        ("EPOLL_CTL_MOD", "ENOENT"),
        ("EPOLL_CTL_DEL", "ok"),
        ("EPOLL_CTL_DEL", "ENOENT"),
        ("epoll_wait", "ok"),
        ("close of a set", "ok"),
        ("mq_notify", "ok"),
        ("mq_notify", "EBUSY"),
        ("mq_notify", "EBADF"),
        ("mq_notify", "EINVAL"),
        ("mq_notify(NULL)", "ok"),
        ("notifications", "ok"),
        ("pread", "ok"),
    ];
    expect_seen(&summary, &expected);
}

#[test]
fn every_mistake_is_found() {
    for &flaw in Flaw::ALL {
        expect_found::<Posix>(flaw);
    }
}
