//! A queue descriptor is a real descriptor. The cases test the other calls that C programs make on queue descriptors.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::process::Command;

use crate::backend::Status;
use crate::errno::Errno;
use crate::site::{Queue, Site, message};
use crate::sys;

subject! { $ descriptor, descriptor_cases:
    it_is_the_lowest_free_number
    it_is_closed_on_exec
    f_getfl_shows_access_mode_and_o_nonblock
    fstat_shows_a_regular_file_of_80_bytes
    fstat_shows_no_link_once_it_is_unlinked
    close_is_mq_close
    mq_close_is_close
    mq_close_closes_anything
    a_second_close_is_bad
    its_number_is_free_after_close
    a_number_that_came_to_mean_something_else_is_no_queue
    exec_drops_it
    with_close_on_exec_cleared_it_survives_exec
    a_duplicate_goes_on_when_the_original_is_closed
    a_duplicate_is_kept_on_exec_and_can_be_made_not_to_be
    f_dupfd_makes_a_duplicate_at_or_above_a_number
    dup2_onto_a_queue_closes_it
    dup2_onto_itself_changes_nothing
    dup3_can_set_close_on_exec
    a_descriptor_sent_through_a_socket_shares_the_flag
    proc_self_fd_leads_to_the_name
    read_shows_the_bytes_in_the_queue
    read_goes_on_from_where_it_was
    pread_reads_from_an_offset
    lseek_moves_the_offset
    write_is_invalid
    fsync_is_invalid
    mmap_is_no_device
    fchmod_changes_who_may_open
    a_descriptor_for_writing_can_not_be_read
    close_range_closes_queues
    a_program_that_closes_everything_can_start_again
    a_descriptor_of_dev_null_put_in_its_place_is_not_a_queue
}

fn is_open(fd: i32) -> bool {
    // SAFETY: the call only returns the flags of a descriptor, or an error.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

fn lowest_free() -> i32 {
    (0..).find(|&fd| !is_open(fd)).expect("a free number")
}

fn it_is_the_lowest_free_number(site: &Site) {
    site.need_descriptors();
    let first = lowest_free();
    let queues: Vec<Queue<'_>> = (0..4).map(|_| site.queue(1, 8)).collect();
    let numbers: Vec<i32> = queues.iter().map(|queue| queue.fd()).collect();
    assert_eq!(numbers, [first, first + 1, first + 2, first + 3]);
    queues[1].close().expect("closing");
    assert_eq!(site.queue(1, 8).fd(), first + 1);
    assert_eq!(site.queue(1, 8).fd(), first + 4);
}

fn it_is_closed_on_exec(site: &Site) {
    let name = site.name("exec");
    for queue in [
        site.queue_called(&name, 1, 8),
        site.open(&name, libc::O_RDONLY).expect("opening it"),
    ] {
        assert_eq!(queue.fcntl(libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    }
}

fn f_getfl_shows_access_mode_and_o_nonblock(site: &Site) {
    let name = site.name("flags");
    let create = libc::O_CREAT | libc::O_EXCL;
    let made = site.open_with(
        &name,
        create | libc::O_WRONLY,
        0o600,
        Some(&crate::backend::Attributes::new(1, 8)),
    );
    assert_eq!(
        made.expect("a new queue").fcntl(libc::F_GETFL, 0),
        Ok(libc::O_WRONLY)
    );
    for access in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR] {
        for flag in [0, libc::O_NONBLOCK] {
            let queue = site.open(&name, access | flag).expect("opening it");
            assert_eq!(queue.fcntl(libc::F_GETFL, 0), Ok(access | flag));
        }
    }
}

fn fstat_shows_a_regular_file_of_80_bytes(site: &Site) {
    let queue = site.queue(2, 8);
    let (uid, gid) = (
        nix::unistd::geteuid().as_raw(),
        nix::unistd::getegid().as_raw(),
    );
    let status = Status {
        mode: libc::S_IFREG | 0o600,
        uid,
        gid,
        size: 80,
        links: 1,
    };
    assert_eq!(queue.status(), Ok(status));
    queue.send(b"x", 0).expect("room");
    assert_eq!(queue.status(), Ok(status));
}

fn fstat_shows_no_link_once_it_is_unlinked(site: &Site) {
    let name = site.name("links");
    let queue = site.queue_called(&name, 1, 8);
    site.unlink(&name).expect("unlinking");
    assert_eq!(queue.status().map(|status| status.links), Ok(0));
}

fn close(site: &Site, fd: i32) -> Result<(), Errno> {
    site.ask(site.backend().close_descriptor(fd))
}

fn close_is_mq_close(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(close(site, queue.fd()), Ok(()));
    assert_eq!(queue.send(b"x", 0), Err(Errno::EBADF));
    assert_eq!(queue.close(), Err(Errno::EBADF));
}

fn mq_close_is_close(site: &Site) {
    let queue = site.queue(1, 8);
    let fd = queue.fd();
    assert_eq!(queue.close(), Ok(()));
    assert_eq!(close(site, fd), Err(Errno::EBADF));
    assert!(!is_open(fd));
}

fn mq_close_closes_anything(site: &Site) {
    site.need_descriptors();
    let (reading, writing) = sys::pipe().expect("a pipe");
    let fd = writing.as_raw_fd();
    sys::forget(writing);
    assert_eq!(site.at(fd).close(), Ok(()));
    assert!(!is_open(fd));
    drop(reading);
}

fn a_second_close_is_bad(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(close(site, queue.fd()), Ok(()));
    assert_eq!(close(site, queue.fd()), Err(Errno::EBADF));
}

fn its_number_is_free_after_close(site: &Site) {
    site.need_descriptors();
    let queue = site.queue(1, 8);
    queue.close().expect("closing");
    let other = site.queue(2, 16);
    assert_eq!(queue.fd(), other.fd());
    assert_eq!(
        other.attributes().map(|attributes| attributes.max_messages),
        Ok(2)
    );
}

fn a_number_that_came_to_mean_something_else_is_no_queue(site: &Site) {
    site.need_descriptors();
    let queue = site.queue(1, 8);
    assert_eq!(close(site, queue.fd()), Ok(()));
    let file = tempfile::tempfile().expect("a file");
    assert_eq!(file.as_raw_fd(), queue.fd());
    assert_eq!(queue.send(b"x", 0), Err(Errno::EBADF));
    assert_eq!(queue.receive_into(&mut [0; 8]), Err(Errno::EBADF));
    assert_eq!(queue.attributes(), Err(Errno::EBADF));
    assert_eq!(file.metadata().expect("a file").len(), 0);
}

/// Executes `mq_probe` with these arguments, and returns its output.
fn after_exec(site: &Site, arguments: &[&str]) -> String {
    let environment = site
        .ask(site.backend().environment())
        .expect("an environment");
    let output = Command::new(site.helper())
        .args(arguments)
        .envs(environment)
        .output()
        .expect("running mq_probe");
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_string()
        + &String::from_utf8_lossy(&output.stderr)
}

fn exec_drops_it(site: &Site) {
    let queue = site.queue(1, 8);
    let fd = queue
        .fcntl(libc::F_DUPFD_CLOEXEC, 100)
        .expect("a duplicate");
    assert_eq!(
        after_exec(site, &["attributes", &fd.to_string()]),
        "Errno(EBADF)"
    );
    assert_eq!(queue.messages(), 0);
}

fn with_close_on_exec_cleared_it_survives_exec(site: &Site) {
    let name = site.name("exec");
    let queue = site.queue_called(&name, 2, 32);
    queue.send(b"through exec", 6).expect("room");
    let fd = queue.fcntl(libc::F_DUPFD, 100).expect("a duplicate");
    let shown = after_exec(site, &["attributes", &fd.to_string()]);
    assert_eq!(shown, "{flags 0o0, 1 of 2 messages of 32 bytes}");
    assert_eq!(
        after_exec(site, &["receive", &fd.to_string()]),
        "through exec of priority 6"
    );
    assert_eq!(queue.messages(), 0);
    let reader = site
        .open(&name, libc::O_RDONLY | libc::O_NONBLOCK)
        .expect("a reader");
    assert_eq!(reader.fcntl(libc::F_SETFD, 0), Ok(0));
    let (fd, wanted) = (
        reader
            .fcntl(libc::F_DUPFD, 100)
            .expect("a duplicate")
            .to_string(),
        "Errno(EAGAIN)",
    );
    assert_eq!(after_exec(site, &["receive", &fd]), wanted);
    queue.send(b"for the reader", 1).expect("room");
    assert_eq!(
        after_exec(site, &["receive", &fd]),
        "for the reader of priority 1"
    );
    let name = name.to_str().expect("ASCII");
    assert_eq!(after_exec(site, &["send", name, "from outside"]), "sent");
    assert_eq!(queue.receive(), Ok(message("from outside", 0)));
}

fn a_duplicate_goes_on_when_the_original_is_closed(site: &Site) {
    let queue = site.queue(2, 8);
    let duplicate = queue.dup().expect("a duplicate");
    queue.send(b"one", 1).expect("room");
    assert_eq!(queue.close(), Ok(()));
    assert_eq!(duplicate.receive(), Ok(message("one", 1)));
    assert_eq!(duplicate.send(b"two", 2), Ok(()));
    assert_eq!(duplicate.messages(), 1);
    assert_eq!(queue.send(b"x", 0), Err(Errno::EBADF));
}

fn a_duplicate_is_kept_on_exec_and_can_be_made_not_to_be(site: &Site) {
    site.need_descriptors();
    let queue = site.queue(1, 8);
    let duplicate = queue.dup().expect("a duplicate");
    assert_eq!(duplicate.fcntl(libc::F_GETFD, 0), Ok(0));
    assert_eq!(duplicate.fcntl(libc::F_SETFD, libc::FD_CLOEXEC), Ok(0));
    assert_eq!(duplicate.fcntl(libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    assert_eq!(queue.fcntl(libc::F_SETFD, 0), Ok(0));
    assert_eq!(duplicate.fcntl(libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
}

fn f_dupfd_makes_a_duplicate_at_or_above_a_number(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.fcntl(libc::F_DUPFD, 120), Ok(120));
    assert_eq!(queue.fcntl(libc::F_DUPFD, 120), Ok(121));
    assert_eq!(queue.fcntl(libc::F_DUPFD_CLOEXEC, 120), Ok(122));
    let [plain, closed] = [120, 122].map(|fd| site.at(fd));
    assert_eq!(plain.fcntl(libc::F_GETFD, 0), Ok(0));
    assert_eq!(closed.fcntl(libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    assert_eq!(plain.send(b"x", 3), Ok(()));
    assert_eq!(closed.receive(), Ok(message("x", 3)));
}

fn dup2_onto_a_queue_closes_it(site: &Site) {
    site.need_descriptors();
    let (name, kept) = (site.name("closed"), site.queue(1, 8));
    let closed = site.queue_called(&name, 3, 16);
    assert_eq!(
        site.ask(site.backend().dup2(kept.fd(), closed.fd())),
        Ok(closed.fd())
    );
    assert_eq!(
        closed
            .attributes()
            .map(|attributes| attributes.max_messages),
        Ok(1)
    );
    assert_eq!(closed.send(b"x", 0), Ok(()));
    assert_eq!(kept.messages(), 1);
    assert_eq!(
        site.open(&name, libc::O_RDWR).map(|queue| queue.messages()),
        Ok(0)
    );
}

fn dup2_onto_itself_changes_nothing(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(
        site.ask(site.backend().dup2(queue.fd(), queue.fd())),
        Ok(queue.fd())
    );
    assert_eq!(queue.fcntl(libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    assert_eq!(queue.send(b"x", 0), Ok(()));
    assert_eq!(
        site.ask(site.backend().dup3(queue.fd(), queue.fd(), 0)),
        Err(Errno::EINVAL)
    );
}

fn dup3_can_set_close_on_exec(site: &Site) {
    let queue = site.queue(1, 8);
    let copy = site
        .ask(site.backend().dup3(queue.fd(), 130, libc::O_CLOEXEC))
        .expect("a duplicate");
    assert_eq!(site.at(copy).fcntl(libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    let copy = site
        .ask(site.backend().dup3(queue.fd(), 131, 0))
        .expect("a duplicate");
    assert_eq!(site.at(copy).fcntl(libc::F_GETFD, 0), Ok(0));
}

fn a_descriptor_sent_through_a_socket_shares_the_flag(site: &Site) {
    site.need_descriptors();
    let name = site.name("socket");
    let queue = site.queue_called(&name, 2, 8);
    let copy = sys::through_a_socket(queue.fd()).expect("a copy");
    let copied = site.at(copy.as_raw_fd());
    assert_eq!(copied.send(b"x", 1), Ok(()));
    assert_eq!(queue.receive(), Ok(message("x", 1)));
    copied.set_nonblocking(true);
    assert!(queue.is_nonblocking());
    // The child creates a queue that this process has never opened.
    let sent = site.child(|| {
        let other = site.queue(1, 8);
        let copy = sys::through_a_socket(other.fd())?;
        other.close()?;
        let copied = site.at(copy.as_raw_fd());
        copied.send(b"y", 2)?;
        copied.receive()
    });
    assert_eq!(sent.result(), Ok(message("y", 2)));
}

fn proc_self_fd_leads_to_the_name(site: &Site) {
    site.need_descriptors();
    let name = site.name("name");
    let queue = site.queue_called(&name, 1, 8);
    let link = CString::new(format!("/proc/self/fd/{}", queue.fd())).expect("no NUL");
    let target = site.ask(site.backend().read_link(&link)).expect("a link");
    assert!(
        target.ends_with(name.to_bytes()),
        "{}",
        String::from_utf8_lossy(&target)
    );
}

/// Returns the result of a read of `length` bytes from a queue's descriptor.
fn read(site: &Site, fd: i32, length: usize) -> Result<String, Errno> {
    let mut buffer = vec![0; length];
    let length = site.ask(site.backend().read(fd, &mut buffer))?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// Returns the text that a read of a queue's descriptor gives if the queue has this number of bytes and no registration for notification.
fn status_text(bytes: usize) -> String {
    format!(
        "QSIZE:{bytes:<10} NOTIFY:{:<5} SIGNO:{:<5} NOTIFY_PID:{:<6}\n",
        0, 0, 0
    )
}

fn read_shows_the_bytes_in_the_queue(site: &Site) {
    let name = site.name("read");
    let queue = site.queue_called(&name, 4, 64);
    let read_anew = || {
        let reader = site.open(&name, libc::O_RDONLY).expect("a reader");
        let text = read(site, reader.fd(), 200);
        assert_eq!(read(site, reader.fd(), 200).as_deref(), Ok(""));
        reader.close().expect("closing");
        text
    };
    assert_eq!(read_anew(), Ok(status_text(0)));
    queue.send([1; 40], 0).expect("room");
    queue.send([1; 5], 0).expect("room");
    assert_eq!(read_anew(), Ok(status_text(45)));
    queue.receive().expect("a message");
    assert_eq!(read_anew(), Ok(status_text(5)));
}

fn read_goes_on_from_where_it_was(site: &Site) {
    let queue = site.queue(1, 64);
    queue.send([1; 33], 0).expect("room");
    let whole = status_text(33);
    let mut read_so_far = String::new();
    for (length, upto) in [
        (6, 6),
        (1, 7),
        (20, 27),
        (100, whole.len()),
        (100, whole.len()),
    ] {
        read_so_far += &read(site, queue.fd(), length).expect("reading");
        assert_eq!(read_so_far, whole[..upto]);
    }
}

fn pread_reads_from_an_offset(site: &Site) {
    let queue = site.queue(1, 64);
    let mut buffer = [0; 10];
    let length = site
        .ask(site.backend().read_at(queue.fd(), &mut buffer, 3))
        .expect("reading");
    assert_eq!(&buffer[..length], &status_text(0).as_bytes()[3..13]);
    assert_eq!(read(site, queue.fd(), 200), Ok(status_text(0)));
    assert_eq!(
        site.ask(site.backend().read_at(queue.fd(), &mut buffer, 1000)),
        Ok(0)
    );
}

fn lseek_moves_the_offset(site: &Site) {
    let queue = site.queue(1, 64);
    let seek = |offset, whence| site.ask(site.backend().seek(queue.fd(), offset, whence));
    assert_eq!(read(site, queue.fd(), 200), Ok(status_text(0)));
    assert_eq!(seek(0, libc::SEEK_CUR), Ok(status_text(0).len() as i64));
    assert_eq!(seek(0, libc::SEEK_SET), Ok(0));
    assert_eq!(read(site, queue.fd(), 5).as_deref(), Ok("QSIZE"));
    assert_eq!(seek(1, libc::SEEK_CUR), Ok(6));
    assert_eq!(seek(0, libc::SEEK_END), Ok(80));
    assert_eq!(seek(-1, libc::SEEK_SET), Err(Errno::EINVAL));
    assert_eq!(seek(0, 77), Err(Errno::EINVAL));
}

fn write_is_invalid(site: &Site) {
    let name = site.name("write");
    let queue = site.queue_called(&name, 1, 64);
    assert_eq!(
        site.ask(site.backend().write(queue.fd(), b"text")),
        Err(Errno::EINVAL)
    );
    let writer = site.open(&name, libc::O_WRONLY).expect("a writer");
    assert_eq!(
        site.ask(site.backend().write(writer.fd(), b"text")),
        Err(Errno::EINVAL)
    );
    let reader = site.open(&name, libc::O_RDONLY).expect("a reader");
    assert_eq!(
        site.ask(site.backend().write(reader.fd(), b"text")),
        Err(Errno::EBADF)
    );
    assert_eq!(queue.messages(), 0);
}

fn fsync_is_invalid(site: &Site) {
    let queue = site.queue(1, 64);
    assert_eq!(
        site.ask(site.backend().sync(queue.fd())),
        Err(Errno::EINVAL)
    );
}

fn mmap_is_no_device(site: &Site) {
    let queue = site.queue(1, 64);
    assert_eq!(site.ask(site.backend().map(queue.fd())), Err(Errno::ENODEV));
}

fn fchmod_changes_who_may_open(site: &Site) {
    let name = site.name("mode");
    let queue = site.queue_called(&name, 1, 8);
    let as_nobody = || {
        site.as_user(sys::User::NOBODY, || {
            site.open(&name, libc::O_RDWR).map(drop)
        })
    };
    assert_eq!(as_nobody(), Err(Errno::EACCES));
    assert_eq!(
        site.ask(site.backend().change_mode(queue.fd(), 0o666)),
        Ok(())
    );
    assert_eq!(
        queue.status().map(|status| status.mode),
        Ok(libc::S_IFREG | 0o666)
    );
    assert_eq!(as_nobody(), Ok(()));
    assert_eq!(
        site.ask(site.backend().change_mode(queue.fd(), 0o600)),
        Ok(())
    );
    assert_eq!(as_nobody(), Err(Errno::EACCES));
}

fn a_descriptor_for_writing_can_not_be_read(site: &Site) {
    let name = site.name("access");
    site.queue_called(&name, 1, 8);
    let writer = site.open(&name, libc::O_WRONLY).expect("a writer");
    assert_eq!(read(site, writer.fd(), 100), Err(Errno::EBADF));
}

fn close_range_closes_queues(site: &Site) {
    site.need_descriptors();
    let queues: Vec<Queue<'_>> = (0..3).map(|_| site.queue(1, 8)).collect();
    let [first, last] = [queues[0].fd() as u32, queues[1].fd() as u32];
    assert_eq!(site.ask(site.backend().close_range(first, last, 0)), Ok(()));
    assert_eq!(queues[0].send(b"x", 0), Err(Errno::EBADF));
    assert_eq!(queues[1].send(b"x", 0), Err(Errno::EBADF));
    assert_eq!(queues[2].send(b"x", 0), Ok(()));
}

fn a_program_that_closes_everything_can_start_again(site: &Site) {
    site.need_descriptors();
    let name = site.name("daemon");
    let before = site.queue_called(&name, 2, 8);
    before.send(b"before", 0).expect("room");
    // The range ends below descriptor 250, to which the case writes its report. The descriptors of the pipe that a child needs are also above the
    // range.
    for fd in 3..100 {
        let _ = close(site, fd);
    }
    assert_eq!(before.receive_into(&mut [0; 8]), Err(Errno::EBADF));
    let again = site.open(&name, libc::O_RDWR).expect("opening it again");
    assert_eq!(again.fd(), 3);
    assert_eq!(again.receive(), Ok(message("before", 0)));
    assert_eq!(site.queue(1, 8).send(b"x", 0), Ok(()));
}

fn a_descriptor_of_dev_null_put_in_its_place_is_not_a_queue(site: &Site) {
    site.need_descriptors();
    let queue = site.queue(1, 8);
    let path = CString::new("/dev/null").expect("no NUL");
    // SAFETY: the path is NUL-terminated. The call below moves the new descriptor to the number of the queue's descriptor.
    let null = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    assert!(null >= 0);
    assert_eq!(
        site.ask(site.backend().dup2(null, queue.fd())),
        Ok(queue.fd())
    );
    assert_eq!(queue.send(b"x", 0), Err(Errno::EBADF));
    assert_eq!(site.ask(site.backend().write(queue.fd(), b"x")), Ok(1));
    assert_eq!(close(site, queue.fd()), Ok(()));
}
