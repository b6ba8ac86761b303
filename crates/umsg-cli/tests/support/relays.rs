//! Relays that a test starts, and kernel queues that are removed at the end of the test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use umsg::Namespace;
use umsg_carry::kernel::{posix, sysv};
use umsg_testkit::users::is_root;

use super::{Outcome, Site, end, start};

/// The maximum wait for an event that takes milliseconds on an idle machine.
pub const LONG: Duration = Duration::from_secs(120);

/// A running relay. If the test fails, the drop kills the relay.
pub struct Relay {
    child: Option<Child>,
    lines: Option<BufReader<ChildStdout>>,
}

impl Relay {
    /// Starts a relay, and waits until each of its pairs runs. The relay dies at the crash point `point`, if given.
    pub fn start(site: &Site, pairs: usize, options: &[&str], point: Option<&str>) -> Relay {
        let mut command = site.command(&["relay"]);
        command.args(options);
        if let Some(point) = point {
            command.env("UMSG_RELAY_CRASH", point);
        }
        let mut child = start(&mut command);
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut relay = Relay {
            child: Some(child),
            lines: Some(lines),
        };
        for _ in 0..pairs {
            let line = relay.line();
            assert!(line.contains("running"), "{line:?}: {:?}", relay.finish());
        }
        relay
    }

    /// Returns the next line of the relay's output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid() as i32).unwrap(), signal).unwrap();
    }

    /// Waits for the end of the relay.
    pub fn finish(&mut self) -> Outcome {
        let mut output = Vec::new();
        self.lines.take().unwrap().read_to_end(&mut output).unwrap();
        let outcome = end(self.child.take().unwrap());
        Outcome { output, ..outcome }
    }

    /// Ends the relay by SIGTERM, and checks that it succeeds.
    pub fn stop(mut self) -> Outcome {
        self.signal(Signal::TERM);
        let outcome = self.finish();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome
    }

    /// Kills the relay by SIGKILL.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.finish().code, None);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn namespace(site: &Site) -> Namespace {
    Namespace::at(site.path()).unwrap()
}

/// Waits until a condition holds.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A POSIX queue of the kernel.
pub struct KernelQueue {
    pub name: String,
    into: posix::Queue,
    out: posix::Queue,
}

impl KernelQueue {
    pub fn new(messages: u64, size: u64) -> KernelQueue {
        let name = format!("/umsg-relay-{}-{}", std::process::id(), number());
        KernelQueue::named(&name, messages, size)
    }

    pub fn named(name: &str, messages: u64, size: u64) -> KernelQueue {
        leave_ipc_namespace();
        let new = posix::New {
            limits: Some((messages, size)),
            mode: 0o640,
            must_be_new: false,
        };
        let open = |access, new| posix::Queue::open(name.as_bytes(), (access, false), new);
        KernelQueue {
            name: name.to_owned(),
            into: open(posix::Access::Send, Some(new)).unwrap(),
            out: open(posix::Access::Receive, None).unwrap(),
        }
    }

    pub fn try_send(&self, message: &[u8], priority: u32) -> bool {
        self.into.send(message, priority).is_ok()
    }

    #[track_caller]
    pub fn send(&self, message: &[u8], priority: u32) {
        wait_until("no room", || self.try_send(message, priority));
    }

    pub fn is_empty(&self) -> bool {
        self.out.messages().unwrap() == 0
    }

    pub fn try_receive(&self) -> Option<(Vec<u8>, u32)> {
        let mut buffer = vec![0; self.out.message_size()];
        let (len, priority) = self.out.receive(&mut buffer).ok()?;
        buffer.truncate(len);
        Some((buffer, priority))
    }

    #[track_caller]
    pub fn receive(&self) -> (Vec<u8>, u32) {
        let mut message = None;
        wait_until("no message", || {
            message = self.try_receive();
            message.is_some()
        });
        message.unwrap()
    }
}

impl Drop for KernelQueue {
    fn drop(&mut self) {
        let _ = posix::unlink(self.name.as_bytes());
    }
}

/// Moves the thread of a test, and the programs that it starts, to a new IPC namespace, if the test runs as root. A killed test then leaves no kernel
/// queue: the namespace ends with its last process.
pub fn leave_ipc_namespace() {
    thread_local! {
        static HAS_LEFT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    if is_root() && !HAS_LEFT.replace(true) {
        // SAFETY: the call takes an integer. The thread has no System V semaphores whose undo operations it would lose.
        let left = unsafe { libc::unshare(libc::CLONE_NEWIPC) };
        assert_eq!(left, 0, "unshare: {}", std::io::Error::last_os_error());
    }
}

/// A System V queue of the kernel.
pub struct SysvQueue {
    pub key: i32,
    pub queue: sysv::Queue,
}

impl SysvQueue {
    pub fn new() -> SysvQueue {
        leave_ipc_namespace();
        // The key consists of the process id and a number that differs for each queue of the process, so it is unique.
        let key = (std::process::id() << 8 | number() & 0xff).cast_signed();
        let queue = sysv::Queue::open(key, Some(0o640)).unwrap();
        SysvQueue { key, queue }
    }

    /// Returns the queue's name for the command line.
    pub fn name(&self) -> String {
        format!("key:{:#x}", self.key)
    }

    #[track_caller]
    pub fn send(&self, mtype: i64, message: &[u8]) {
        wait_until("no room", || self.queue.send(mtype, message, false).is_ok());
    }

    pub fn try_receive(&self, want: sysv::Want) -> Option<(i64, Vec<u8>)> {
        let mut room = sysv::Room::new(8192);
        let len = self.queue.try_receive(&mut room, want).ok()?;
        let (mtype, message) = room.message(len);
        Some((mtype, message.to_vec()))
    }

    #[track_caller]
    pub fn receive(&self, want: sysv::Want) -> (i64, Vec<u8>) {
        let mut message = None;
        wait_until("no message", || {
            message = self.try_receive(want);
            message.is_some()
        });
        message.unwrap()
    }
}

impl Drop for SysvQueue {
    fn drop(&mut self) {
        let _ = self.queue.remove();
    }
}
