//! The pages of consents that a sender accepts, and the files that it does not open.

use super::*;
use rustix::fs::{
    AtFlags, MemfdFlags, SealFlags, StatxFlags, fcntl_add_seals, memfd_create, statx,
};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Makes a page of docs/format.md, in which the process `pid` consents to signals of a queue.
fn page_of(pid: u32, helper: u32, queue: (u64, u64)) -> OwnedFd {
    let file = memfd_create(
        "page",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL,
    );
    let file = File::from(file.unwrap());
    file.set_len(4096).unwrap();
    let inode = |path| std::fs::metadata(path).unwrap().ino() & 0xffff_ffff;
    let home = inode("/proc/self/ns/pid") | inode("/proc/self/ns/time") << 32;
    let ticket = [77, queue.0, queue.1, 5, counted() as u64];
    let words = [
        u64::from_le_bytes(*b"umsgcon1"),
        home,
        u64::from(pid) | u64::from(helper) << 32,
    ];
    for (at, word) in (0..).zip(words) {
        file.write_all_at(&word.to_le_bytes(), 8 * at).unwrap();
    }
    for (at, word) in (0..).zip(ticket) {
        file.write_all_at(&u64::to_le_bytes(word), 64 + 8 * at)
            .unwrap();
    }
    OwnedFd::from(file)
}

fn seal(file: &OwnedFd) {
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
    fcntl_add_seals(file, seals).unwrap();
}

/// Returns the name of a thread that attests a file.
fn name_of(file: &OwnedFd) -> [u8; 16] {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, wanted).unwrap();
    let born = (stat.stx_btime.tv_sec as u64, stat.stx_btime.tv_nsec.into());
    let mut name = [0; 16];
    name[..15].copy_from_slice(&umsg_shm::consent::name_of(stat.stx_ino, born));
    name
}

/// Sends to a queue whose record names this process. `make` creates the file by which this process consents. Returns whether the signal is pending in
/// this process after the send.
fn is_believed(make: impl FnOnce(u32, u32, (u64, u64)) -> OwnedFd + Send, attests: bool) -> bool {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let file = file_of(&place, "q");
    let metadata = file.metadata().unwrap();
    let told: Shared<Told> = Shared::new();
    let mut bystander = Child::run(|| {
        block(counted());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the system call takes no arguments.
                let helper = unsafe { libc::gettid() }.cast_unsigned();
                let queue = (metadata.dev(), metadata.ino());
                let page = make(std::process::id(), helper, queue);
                if attests {
                    let name = name_of(&page);
                    // SAFETY: the string ends with a zero byte.
                    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
                }
                told.number.store(i64::from(page.as_raw_fd()), SeqCst);
                std::thread::sleep(LONG);
            });
        });
        0
    });
    assert!(wait_until(LONG, || told.number.load(SeqCst) != 0));
    let pid = bystander.pid();
    let number = told.number.load(SeqCst) as u32;
    for _ in 0..3 {
        forge(&file, &record(pid.cast_unsigned(), 77, number, 1));
        queue.send(b"x", 0).unwrap();
        while queue.try_receive(&mut [0; 8]).is_ok() {}
        std::thread::sleep(AGAIN);
    }
    bystander.expect_alive();
    is_pending(pid, counted())
}

#[test]
fn the_consent_of_a_process_is_believed_only_if_the_process_attests_it() {
    let sealed = |pid, helper, queue| {
        let page = page_of(pid, helper, queue);
        seal(&page);
        page
    };
    assert_eq!(is_believed(sealed, true), can_raise(), "as it ought to be");
    // If no thread attests the file, another process could have passed the file to this process.
    assert!(!is_believed(sealed, false));
    // If the file is not sealed, other processes could write to it.
    assert!(!is_believed(page_of, true));
    let of_the_first = |pid, _, queue| sealed(pid, pid, queue);
    assert!(!is_believed(of_the_first, true));
    let of_another = |pid, helper, queue| sealed(pid + 1, helper, queue);
    assert!(!is_believed(of_another, true));
    let of_none = |pid, _, queue| sealed(pid, u32::MAX, queue);
    assert!(!is_believed(of_none, true));
    let of_another_queue = |pid, helper, (device, inode)| sealed(pid, helper, (device, inode + 1));
    assert!(!is_believed(of_another_queue, true));
}

#[test]
fn a_sender_opens_no_other_file_than_a_page() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let fifo = dir.path().join("fifo");
    let path = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: the string ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let open = |path: &std::path::Path| {
        let file = File::options().read(true).write(true).open(path);
        OwnedFd::from(file.or_else(|_| File::open(path)).unwrap())
    };
    std::fs::write(dir.path().join("file"), [0; 4096]).unwrap();
    let files = [
        fifo.clone(),
        dir.path().to_owned(),
        dir.path().join("file"),
        "/dev/zero".into(),
        "/proc/self/status".into(),
    ];
    for path in files {
        assert!(!is_believed(|_, _, _| open(&path), false), "{path:?}");
    }
    let short = |_, _, _| {
        let file = memfd_create("page", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL).unwrap();
        seal(&file);
        file
    };
    assert!(!is_believed(short, true));
}
