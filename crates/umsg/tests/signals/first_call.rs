//! A handler that runs in the middle of its thread's first call, while the library finds out the thread's identity, and uses the queue.

use super::install;
use crate::support::child::{Child, Exit};
use crate::support::place::Place;
use crate::support::seccomp::act_on;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, Ordering};
use std::thread;
use umsg::posix::Queue;

/// The queue that the handler uses, and the number of the handler's runs.
static QUEUE: AtomicPtr<Queue> = AtomicPtr::new(std::ptr::null_mut());
static RUNS: AtomicU32 = AtomicU32::new(0);
/// The result that the handler gives to the trapped call.
static ANSWER: AtomicI64 = AtomicI64::new(0);

/// Makes this system call raise SIGSYS in the calling thread from now on.
fn trap(call: libc::c_long) {
    act_on(&[call], libc::SECCOMP_RET_TRAP);
}

extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passed the context to this handler.
    let context = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let answer = ANSWER.load(Ordering::SeqCst);
    #[cfg(target_arch = "x86_64")]
    {
        context.gregs[libc::REG_RAX as usize] = answer;
    }
    #[cfg(target_arch = "aarch64")]
    {
        context.regs[0] = answer as u64;
    }
    // The handler's own first call of the library is trapped, too. Then the second run of the handler does not use the queue.
    if RUNS.fetch_add(1, Ordering::SeqCst) != 0 {
        return;
    }
    // SAFETY: the thread that made the trapped call has stored the pointer before the call, and keeps the queue.
    let queue = unsafe { &*QUEUE.load(Ordering::SeqCst) };
    queue.try_send(b"from the handler", 0).expect("room");
}

/// Returns the result of a trapped call: the thread's id, or ENOSYS.
fn answer(call: libc::c_long) -> i64 {
    match call {
        // SAFETY: has no preconditions.
        libc::SYS_gettid => unsafe { libc::gettid() }.into(),
        _ => -i64::from(libc::ENOSYS),
    }
}

#[test]
fn a_handler_uses_a_queue_while_its_thread_is_about_to_for_the_first_time() {
    // The calls by which the library learns the identity of a thread.
    for call in [libc::SYS_gettid, libc::SYS_get_robust_list] {
        let (_place, queue) = Place::new().with_queue("/q", 4, 64);
        let mut child = Child::run(|| {
            install(libc::SIGSYS, handler, libc::SA_NODEFER);
            QUEUE.store((&raw const queue).cast_mut(), Ordering::SeqCst);
            let send = || {
                ANSWER.store(answer(call), Ordering::SeqCst);
                trap(call);
                queue.try_send(b"from the thread", 0).expect("room");
            };
            thread::scope(|scope| scope.spawn(send).join().expect("a thread"));
            assert!(RUNS.load(Ordering::SeqCst) >= 2, "it did not come by");
            0
        });
        child.expect(Exit::Code(0), "the interrupted process");
        let receive = || queue.try_receive(&mut [0; 64]).expect("a message").len;
        assert_eq!([receive(), receive()], [16, 15]);
    }
}

/// The child's thread id differs from that of its parent, which has used the queue before.
#[cfg(feature = "crash-points")]
#[test]
fn a_process_that_dies_in_a_handler_in_its_first_call_leaves_its_lock_to_others() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 64);
    queue.try_send(b"first", 0).unwrap();
    let mut child = Child::run(|| {
        install(libc::SIGSYS, handler, libc::SA_NODEFER);
        QUEUE.store((&raw const queue).cast_mut(), Ordering::SeqCst);
        ANSWER.store(answer(libc::SYS_gettid), Ordering::SeqCst);
        umsg_shm::crash::arm("SEND_FILLED", 1);
        trap(libc::SYS_gettid);
        queue.try_send(b"never sent", 0).map_or(1, |()| 0)
    });
    child.expect(Exit::Signal(libc::SIGKILL), "the interrupted process");
    queue.try_send(b"next", 0).expect("the lock of the dead");
    let receive = || queue.try_receive(&mut [0; 64]).expect("a message").len;
    assert_eq!([receive(), receive()], [5, 4]);
}
