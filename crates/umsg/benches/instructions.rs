//! Counts the instructions of a send and of a receive with callgrind. The counts do not depend on the noise of the machine.
//!
//! `cargo xtask instructions` runs this benchmark and compares the counts with `docs/instructions.json`. Each benchmark counts one call. A hundred
//! pairs of calls before it allocate the memory and resolve the symbols. The drop-in is loaded from `UMSG_PRELOAD_LIBRARY`, and its functions have
//! the names of libc's functions.

#![allow(missing_docs, reason = "the macros make public items")]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::hint::black_box;
use std::mem::ManuallyDrop;

use gungraun::{LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use umsg::{posix, ring, sysv};

/// The message: 16 bytes, in the structure of msgsnd(2).
const TEXT: [u8; 16] = *b"0123456789abcdef";
const WARM_UP: usize = 100;

/// Opens a queue in a namespace of its own. The benchmark's process ends without destructors. So the directory is removed, with the queue, as soon as
/// the queue is open.
fn in_namespace<T>(open: impl FnOnce(&umsg::Namespace, &std::path::Path) -> T) -> T {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let namespace = umsg::Namespace::at(directory.path()).expect("a namespace");
    open(&namespace, directory.path())
}

fn queue(messages: usize) -> Box<posix::Queue> {
    let queue = in_namespace(|namespace, _| {
        let mut options = posix::OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .namespace(namespace);
        options.max_messages(10).message_size(TEXT.len() as u32);
        options.open("/instructions").expect("a queue")
    });
    let mut buffer = TEXT;
    for _ in 0..WARM_UP {
        queue.try_send(&TEXT, 0).expect("room");
        queue.try_receive(&mut buffer).expect("a message");
    }
    (0..messages).for_each(|_| queue.try_send(&TEXT, 0).expect("room"));
    Box::new(queue)
}

fn sysv_queue(messages: usize) -> Box<sysv::Queue> {
    let queue = in_namespace(|namespace, _| {
        let mut options = sysv::OpenOptions::new();
        options
            .create(true)
            .namespace(namespace)
            .open(1)
            .expect("a queue")
    });
    let mut buffer = TEXT;
    for _ in 0..WARM_UP {
        queue.try_send(1, &TEXT).expect("room");
        queue
            .try_receive(sysv::Want::Any, &mut buffer)
            .expect("a message");
    }
    (0..messages).for_each(|_| queue.try_send(1, &TEXT).expect("room"));
    Box::new(queue)
}

fn message_ring(messages: usize) -> Box<(ring::Ring, ring::Sender)> {
    let mut ring = ring::Options::new().entries(64).create().expect("a ring");
    let sender = ring.sender();
    for _ in 0..WARM_UP {
        sender.try_send(&ring::Post::new(1)).expect("room");
        ring.try_receive().expect("a message");
    }
    (0..messages).for_each(|_| sender.try_send(&ring::Post::new(1)).expect("room"));
    Box::new((ring, sender))
}

type MqSend = unsafe extern "C" fn(c_int, *const c_char, usize, c_uint) -> c_int;
type MqReceive = unsafe extern "C" fn(c_int, *mut c_char, usize, *mut c_uint) -> isize;
type MsgSnd = unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> c_int;
type MsgRcv = unsafe extern "C" fn(c_int, *mut c_void, usize, c_long, c_int) -> isize;

/// The functions of the drop-in, and a queue of each kind.
struct DropIn {
    send: MqSend,
    receive: MqReceive,
    msgsnd: MsgSnd,
    msgrcv: MsgRcv,
    queue: c_int,
    sysv_queue: c_int,
}

/// A message in the structure of msgsnd(2).
#[repr(C)]
struct Message {
    mtype: c_long,
    text: [u8; 16],
}

static MESSAGE: Message = Message {
    mtype: 1,
    text: TEXT,
};

impl DropIn {
    fn with(messages: usize) -> DropIn {
        in_namespace(|_, directory| {
            // SAFETY: the process has only one thread so far.
            unsafe { std::env::set_var("UMSG_DIR", directory) };
            let drop_in = DropIn::load();
            for _ in 0..WARM_UP {
                drop_in.mq_send();
                drop_in.mq_receive();
                drop_in.msgsnd();
                drop_in.msgrcv();
            }
            for _ in 0..messages {
                drop_in.mq_send();
                drop_in.msgsnd();
            }
            drop_in
        })
    }

    fn load() -> DropIn {
        let path =
            std::env::var("UMSG_PRELOAD_LIBRARY").expect("UMSG_PRELOAD_LIBRARY names the drop-in");
        let path = std::ffi::CString::new(path).expect("a path without NUL");
        // SAFETY: the path is a C string, and the library stays loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "the drop-in does not load");
        let symbol = |name: &CStr| {
            // SAFETY: the library is loaded, and the name is a C string.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!address.is_null(), "{name:?} is missing");
            address
        };
        type Open =
            unsafe extern "C" fn(*const c_char, c_int, c_uint, *const libc::mq_attr) -> c_int;
        type Get = unsafe extern "C" fn(c_int, c_int) -> c_int;
        // SAFETY: each symbol is a function of the type that libc declares for this name; an mq_attr of zeroes is valid.
        unsafe {
            let open: Open = std::mem::transmute::<*mut c_void, Open>(symbol(c"mq_open"));
            let get: Get = std::mem::transmute::<*mut c_void, Get>(symbol(c"msgget"));
            let mut attributes: libc::mq_attr = std::mem::zeroed();
            attributes.mq_maxmsg = 10;
            attributes.mq_msgsize = 16;
            let drop_in = DropIn {
                send: std::mem::transmute::<*mut c_void, MqSend>(symbol(c"mq_send")),
                receive: std::mem::transmute::<*mut c_void, MqReceive>(symbol(c"mq_receive")),
                msgsnd: std::mem::transmute::<*mut c_void, MsgSnd>(symbol(c"msgsnd")),
                msgrcv: std::mem::transmute::<*mut c_void, MsgRcv>(symbol(c"msgrcv")),
                queue: open(
                    c"/instructions".as_ptr(),
                    libc::O_CREAT | libc::O_RDWR,
                    0o600,
                    &raw const attributes,
                ),
                sysv_queue: get(libc::IPC_PRIVATE, 0o600),
            };
            assert!(
                drop_in.queue >= 0 && drop_in.sysv_queue >= 0,
                "no queue: {}",
                std::io::Error::last_os_error()
            );
            drop_in
        }
    }

    #[inline(always)]
    fn mq_send(&self) {
        // SAFETY: the message has 16 bytes.
        let sent = unsafe { (self.send)(self.queue, TEXT.as_ptr().cast(), TEXT.len(), 0) };
        assert_eq!(sent, 0);
    }

    #[inline(always)]
    fn mq_receive(&self) {
        let (mut buffer, mut priority) = (TEXT, 0);
        // SAFETY: the buffer has 16 bytes, and the priority is a variable of this function.
        let received = unsafe {
            (self.receive)(
                self.queue,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut priority,
            )
        };
        assert_eq!(black_box((received, buffer, priority)).0, 16);
    }

    #[inline(always)]
    fn msgsnd(&self) {
        // SAFETY: the message has a type and 16 bytes.
        let sent =
            unsafe { (self.msgsnd)(self.sysv_queue, (&raw const MESSAGE).cast(), TEXT.len(), 0) };
        assert_eq!(sent, 0);
    }

    #[inline(always)]
    fn msgrcv(&self) {
        let mut message = Message {
            mtype: 0,
            text: TEXT,
        };
        // SAFETY: the message has room for a type and 16 bytes.
        let received =
            unsafe { (self.msgrcv)(self.sysv_queue, (&raw mut message).cast(), TEXT.len(), 0, 0) };
        assert_eq!(black_box((received, message)).0, 16);
    }
}

// A benchmark returns its open queue, because the returned value is dropped after the count ends.

#[library_benchmark(setup = queue)]
#[bench::native(0)]
fn mq_send(queue: Box<posix::Queue>) -> Box<posix::Queue> {
    queue.try_send(black_box(&TEXT), 0).expect("room");
    queue
}

#[library_benchmark(setup = queue)]
#[bench::native(1)]
fn mq_receive(queue: Box<posix::Queue>) -> Box<posix::Queue> {
    let mut buffer = TEXT;
    black_box(
        queue
            .try_receive(black_box(&mut buffer))
            .expect("a message"),
    );
    queue
}

#[library_benchmark(setup = sysv_queue)]
#[bench::native(0)]
fn msgsnd(queue: Box<sysv::Queue>) -> Box<sysv::Queue> {
    queue.try_send(1, black_box(&TEXT)).expect("room");
    queue
}

#[library_benchmark(setup = sysv_queue)]
#[bench::native(1)]
fn msgrcv(queue: Box<sysv::Queue>) -> Box<sysv::Queue> {
    let mut buffer = TEXT;
    black_box(
        queue
            .try_receive(sysv::Want::Any, black_box(&mut buffer))
            .expect("a message"),
    );
    queue
}

#[library_benchmark(setup = message_ring)]
#[bench::native(0)]
fn ring_send(both: Box<(ring::Ring, ring::Sender)>) -> Box<(ring::Ring, ring::Sender)> {
    both.1
        .try_send(black_box(&ring::Post::new(1)))
        .expect("room");
    both
}

#[library_benchmark(setup = message_ring)]
#[bench::native(1)]
fn ring_receive(mut both: Box<(ring::Ring, ring::Sender)>) -> Box<(ring::Ring, ring::Sender)> {
    black_box(both.0.try_receive().expect("a message"));
    both
}

#[library_benchmark(setup = DropIn::with)]
#[bench::drop_in(0)]
fn dropin_mq_send(drop_in: DropIn) -> ManuallyDrop<DropIn> {
    drop_in.mq_send();
    ManuallyDrop::new(drop_in)
}

#[library_benchmark(setup = DropIn::with)]
#[bench::drop_in(1)]
fn dropin_mq_receive(drop_in: DropIn) -> ManuallyDrop<DropIn> {
    drop_in.mq_receive();
    ManuallyDrop::new(drop_in)
}

#[library_benchmark(setup = DropIn::with)]
#[bench::drop_in(0)]
fn dropin_msgsnd(drop_in: DropIn) -> ManuallyDrop<DropIn> {
    drop_in.msgsnd();
    ManuallyDrop::new(drop_in)
}

#[library_benchmark(setup = DropIn::with)]
#[bench::drop_in(1)]
fn dropin_msgrcv(drop_in: DropIn) -> ManuallyDrop<DropIn> {
    drop_in.msgrcv();
    ManuallyDrop::new(drop_in)
}

library_benchmark_group!(
    name = calls,
    benchmarks = [
        mq_send,
        mq_receive,
        msgsnd,
        msgrcv,
        ring_send,
        ring_receive,
        dropin_mq_send,
        dropin_mq_receive,
        dropin_msgsnd,
        dropin_msgrcv
    ]
);

main!(
    config = LibraryBenchmarkConfig::default().pass_through_env("UMSG_PRELOAD_LIBRARY"),
    library_benchmark_groups = calls
);
