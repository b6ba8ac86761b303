//! syscall: the system calls on queues that a program makes by their numbers.
//!
//! [`ANSWERED`] has a byte for each number. A call with another number jumps to the next library after one comparison and one read of that byte.
//! All arguments stay where the caller has put them. So even a call that creates a child on another stack works.
//!
//! | numbers | behaviour |
//! |---|---|
//! | mq_*, msg* | like the kernel's calls: names have no slash, msgctl does not take IPC_64, mq_notify does not take SIGEV_THREAD, and no call is a cancellation point |
//! | close, dup, fcntl and similar calls | the table of descriptors is updated |
//! | read, lseek, fstat, poll, epoll_ctl and similar calls, on a queue's descriptor | like libc's functions of these names |
//! | setuid and its relatives | passed on; then System V queues check the process's permissions again |
//!
//! A call whose number is in [`NUMBERS`] can turn out to concern no queue ([`NOT_OURS`]). Then the assembly also jumps to the next library. If
//! pthread_cancel may end the thread at any instruction ([`crate::cancellation`]), the assembly forbids that while the thread runs in frames of Rust.
//! If pthread_cancel ends a blocked call, the call begins again, because syscall is not a cancellation point.
//!
//! `umsg trace` shows a call on a queue under the name of libc's function. Calls on the kernel's own queues are not shown.

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::mem;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use libc::{mode_t, nfds_t, pollfd, sigset_t, timespec};
use umsg::sysv::forget_caller;
use umsg_shm::sys::reserved_descriptors;
use umsg_shm::sys::stack::uncancelled;

use super::{
    close, dup, epoll, exec, fchmod, fcntl, lseek, mq_attr, mq_notify, mq_open, mq_receive,
    mq_send, mq_unlink, msgctl, msgget, msgrcv, msgsnd, read, stat, write,
};
use crate::next::Symbol;
use crate::polling::{self, Patience};
use crate::{adopt, errno, kernel, knobs, start, table, timeout};

/// The numbers of the system calls that [`answer`] handles.
const NUMBERS: &[c_long] = &[
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_lseek,
    libc::SYS_fchmod,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_epoll_ctl,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
];

const COUNT: usize = 512;

/// A byte for each number of a system call, which is 1 if [`answer`] handles the call.
static ANSWERED: [u8; COUNT] = {
    let mut answered = [0; COUNT];
    let mut index = 0;
    while index < NUMBERS.len() {
        answered[NUMBERS[index] as usize] = 1;
        index += 1;
    }
    answered
};

/// The result of [`answer`] for a call that the kernel must answer. No system call returns this value.
const NOT_OURS: c_long = -3;

/// The result of [`answer`] for a call that must begin again.
const AGAIN: c_long = crate::cancellation::BEGIN_AGAIN as c_long;

static SYSCALL: Symbol = Symbol::new();

/// The next library's syscall. Null until the drop-in first passes a call on.
static TARGET: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the address of the next library's syscall.
extern "C" fn resolve() -> *mut c_void {
    let early = early as unsafe extern "C" fn(_, _, _, _, _, _, _) -> _ as *mut c_void;
    if !start::is_done() {
        return early;
    }
    let target = SYSCALL.address(c"syscall").unwrap_or(early);
    // Relaxed: the address is that of code that was loaded before the program began.
    TARGET.store(target, Ordering::Relaxed);
    target
}

/// Replaces the next library's syscall before this library's constructor has run: an allocator may be starting, so dlsym must not be called.
unsafe extern "C" fn early(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller makes the promises of libc's syscall. The caller's stack has a word at the place of the last argument.
    let result = unsafe { kernel::call(number, [a, b, c, d, e, f]) };
    result.map_or_else(errno::fail, |result| result as c_long)
}

/// Makes a system call by its number.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {count}",
        "jae 2f",
        "lea r10, [rip + {answered}]",
        "cmp byte ptr [r10 + rdi], 0",
        "jne 4f",
        "2: mov r10, qword ptr [rip + {target}]",
        "test r10, r10",
        "je 3f",
        "jmp r10",
        // The address of the next library's syscall is not known yet. The stack gets six words with the arguments, and one word that aligns the
        // stack.
        "3: push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "push r9",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {resolve}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r9",
        ".cfi_adjust_cfa_offset -8",
        "pop r8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "mov r10, rax",
        "xor eax, eax",
        "jmp r10",
        // Nine words: the type of cancellation, the result, an unused word, and the arguments. The stack is aligned for a call.
        "4: sub rsp, 72",
        ".cfi_def_cfa_offset 80",
        "mov [rsp + 24], r9",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], rcx",
        "mov [rsp + 48], rdx",
        "mov [rsp + 56], rsi",
        "mov [rsp + 64], rdi",
        "5: mov dword ptr [rsp], {deferred}",
        "mov rax, qword ptr [rip + {type_setter}]",
        "test rax, rax",
        "je 6f",
        "mov edi, {deferred}",
        "mov rsi, rsp",
        "call rax",
        "cmp dword ptr [rsp], {deferred}",
        "je 6f",
        "call {await_signal}",
        "6: mov r9, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov rcx, [rsp + 40]",
        "mov rdx, [rsp + 48]",
        "mov rsi, [rsp + 56]",
        "mov rdi, [rsp + 64]",
        "call {answer}",
        "mov [rsp + 8], rax",
        "mov edi, [rsp]",
        "cmp edi, {deferred}",
        "je 7f",
        "xor esi, esi",
        // The cancellation type is set by libc's own function. The exported pthread_setcanceltype makes waiting threads check for cancellation again,
        // so a thread that is about to wait would never wait.
        "call qword ptr [rip + {type_setter}]",
        "7: mov rax, [rsp + 8]",
        "cmp rax, {again}",
        "je 5b",
        "cmp rax, {not_ours}",
        "je 8f",
        ".cfi_remember_state",
        "add rsp, 72",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_restore_state",
        "8: mov r9, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov rcx, [rsp + 40]",
        "mov rdx, [rsp + 48]",
        "mov rsi, [rsp + 56]",
        "mov rdi, [rsp + 64]",
        "add rsp, 72",
        ".cfi_def_cfa_offset 8",
        "xor eax, eax",
        "jmp 2b",
        ".cfi_endproc",
        count = const COUNT,
        answered = sym ANSWERED,
        target = sym TARGET,
        resolve = sym resolve,
        deferred = const crate::cancellation::DEFERRED,
        type_setter = sym crate::cancellation::SET_TYPE,
        await_signal = sym crate::cancellation::await_signal,
        answer = sym answer,
        again = const AGAIN,
        not_ours = const NOT_OURS,
    )
}

/// Makes a system call by its number.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "cmp x0, {count}",
        "b.hs 2f",
        "adrp x16, {answered}",
        "add x16, x16, :lo12:{answered}",
        "ldrb w17, [x16, x0]",
        "cbnz w17, 4f",
        "2: adrp x16, {target}",
        "ldr x16, [x16, :lo12:{target}]",
        "cbz x16, 3f",
        "br x16",
        // The address of the next library's syscall is not known yet.
        "3: stp x29, x30, [sp, -80]!",
        ".cfi_def_cfa_offset 80",
        ".cfi_offset x29, -80",
        ".cfi_offset x30, -72",
        "stp x0, x1, [sp, 16]",
        "stp x2, x3, [sp, 32]",
        "stp x4, x5, [sp, 48]",
        "str x6, [sp, 64]",
        "bl {resolve}",
        "mov x16, x0",
        "ldr x6, [sp, 64]",
        "ldp x4, x5, [sp, 48]",
        "ldp x2, x3, [sp, 32]",
        "ldp x0, x1, [sp, 16]",
        "ldp x29, x30, [sp], 80",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        // The stack has the type of cancellation at 72, and the result at 80.
        "4: stp x29, x30, [sp, -96]!",
        ".cfi_def_cfa_offset 96",
        ".cfi_offset x29, -96",
        ".cfi_offset x30, -88",
        "stp x0, x1, [sp, 16]",
        "stp x2, x3, [sp, 32]",
        "stp x4, x5, [sp, 48]",
        "str x6, [sp, 64]",
        "5: mov w0, {deferred}",
        "str w0, [sp, 72]",
        "adrp x16, {type_setter}",
        "ldr x16, [x16, :lo12:{type_setter}]",
        "cbz x16, 6f",
        "add x1, sp, 72",
        "blr x16",
        "ldr w0, [sp, 72]",
        "cmp w0, {deferred}",
        "b.eq 6f",
        "bl {await_signal}",
        "6: ldp x4, x5, [sp, 48]",
        "ldp x2, x3, [sp, 32]",
        "ldp x0, x1, [sp, 16]",
        "bl {answer}",
        "str x0, [sp, 80]",
        "ldr w0, [sp, 72]",
        "cmp w0, {deferred}",
        "b.eq 7f",
        "mov x1, xzr",
        // The cancellation type is set by libc's own function. The exported pthread_setcanceltype makes waiting threads check for cancellation again,
        // so a thread that is about to wait would never wait.
        "adrp x16, {type_setter}",
        "ldr x16, [x16, :lo12:{type_setter}]",
        "blr x16",
        "7: ldr x0, [sp, 80]",
        "cmn x0, {minus_again}",
        "b.eq 5b",
        "cmn x0, {minus_not_ours}",
        "b.eq 8f",
        ".cfi_remember_state",
        "ldp x29, x30, [sp], 96",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_restore_state",
        "8: ldr x6, [sp, 64]",
        "ldp x4, x5, [sp, 48]",
        "ldp x2, x3, [sp, 32]",
        "ldp x0, x1, [sp, 16]",
        "ldp x29, x30, [sp], 96",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "b 2b",
        ".cfi_endproc",
        count = const COUNT,
        answered = sym ANSWERED,
        target = sym TARGET,
        resolve = sym resolve,
        deferred = const crate::cancellation::DEFERRED,
        type_setter = sym crate::cancellation::SET_TYPE,
        await_signal = sym crate::cancellation::await_signal,
        answer = sym answer,
        minus_again = const -AGAIN,
        minus_not_ours = const -NOT_OURS,
    )
}

/// Answers a system call whose number is in [`NUMBERS`], or returns [`NOT_OURS`].
///
/// # Safety
/// The conditions of the system call of this number.
unsafe extern "C" fn answer(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
) -> c_long {
    let arguments = [a, b, c, d, e];
    // SAFETY: by this function's contract.
    unsafe {
        match number {
            libc::SYS_mq_open
            | libc::SYS_mq_unlink
            | libc::SYS_mq_timedsend
            | libc::SYS_mq_timedreceive
            | libc::SYS_mq_notify
            | libc::SYS_mq_getsetattr => on_queue(number, arguments),
            libc::SYS_msgget | libc::SYS_msgsnd | libc::SYS_msgrcv | libc::SYS_msgctl => {
                system_v(number, arguments)
            }
            libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setgroups
            | libc::SYS_capset => {
                let outcome = pass_on(number, arguments);
                forget_caller();
                outcome
            }
            libc::SYS_execve => exec::execve(address(a), address(b), address(c)).into(),
            libc::SYS_execveat => execveat(arguments),
            libc::SYS_epoll_ctl if table::knows(int(c)) => {
                epoll::epoll_ctl(int(a), int(b), int(c), address(d)).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll if polling::concerns_us(address(a), b as nfds_t) => {
                wait(address(a), b, span_of(int(c)), std::ptr::null())
            }
            libc::SYS_ppoll if polling::concerns_us(address(a), b as nfds_t) => ppoll(arguments),
            _ => on_descriptor(number, arguments),
        }
    }
}

/// Executes a program by execveat. The program's path takes several kilobytes of stack, which this separate function spares other calls.
///
/// # Safety
/// The conditions of execveat(2).
#[cold]
#[inline(never)]
unsafe fn execveat([a, b, c, d, e]: [usize; 5]) -> c_long {
    // SAFETY: by this function's contract.
    unsafe {
        match exec::beside(int(a), address(b), address(d), int(e)) {
            Some(program) => exec::execve(program.start(), address(c), address(d)).into(),
            None => NOT_OURS,
        }
    }
}

/// Returns an argument of the type int: the lower half of a register.
fn int(argument: usize) -> c_int {
    argument as c_int
}

/// Returns an argument that is an address.
fn address<T>(argument: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(argument)
}

/// Makes the call in the next library, as the last step of this call.
///
/// # Safety
/// The conditions of the system call of this number, which has five arguments at most.
unsafe fn pass_on(number: c_long, [a, b, c, d, e]: [usize; 5]) -> c_long {
    type Function = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize) -> c_long;
    // SAFETY: libc's syscall is variadic. Its arguments are in the registers of named arguments (see `hooks`).
    let function = unsafe { mem::transmute::<*mut c_void, Function>(resolve()) };
    // SAFETY: the caller makes the promises that the function requires.
    unsafe { function(number, a, b, c, d, e) }
}

/// Answers calls on POSIX queues.
///
/// # Safety
/// The conditions of [`answer`].
unsafe fn on_queue(number: c_long, [a, b, c, d, e]: [usize; 5]) -> c_long {
    // SAFETY: by this function's contract.
    unsafe {
        match number {
            libc::SYS_mq_open => {
                let mode = c as mode_t;
                mq_open::open_bare(address(a), int(b), mode, address(d)).into()
            }
            libc::SYS_mq_unlink => mq_unlink::unlink_bare(address(a)).into(),
            _ if !may_be_queue(int(a)) => NOT_OURS,
            libc::SYS_mq_timedsend => {
                mq_send::traced_send(int(a), address(b), c, d as c_uint, address(e)).into()
            }
            libc::SYS_mq_timedreceive => {
                mq_receive::traced_receive(int(a), address(b), c, address(d), address(e)) as c_long
            }
            libc::SYS_mq_notify => mq_notify::notify_bare(int(a), address(b)).into(),
            _ => mq_attr::exchange_bare(int(a), address(b), address(c)).into(),
        }
    }
}

/// Returns false if the kernel must answer the call: the drop-in does not know the descriptor, which may belong to a queue of the kernel.
fn may_be_queue(fd: c_int) -> bool {
    table::knows(fd) || !matches!(adopt::adopt_queue(fd), Ok(None))
}

/// Answers calls on System V queues.
///
/// # Safety
/// The conditions of [`answer`].
unsafe fn system_v(number: c_long, [a, b, c, d, e]: [usize; 5]) -> c_long {
    // SAFETY: by this function's contract.
    unsafe {
        match number {
            libc::SYS_msgget => msgget::msgget(int(a), int(b)).into(),
            libc::SYS_msgsnd => msgsnd::traced_send(int(a), address(b), c, int(d)).into(),
            libc::SYS_msgrcv => {
                msgrcv::traced_receive(int(a), address(b), c, d as c_long, int(e)) as c_long
            }
            _ => msgctl::msgctl(int(a), int(b), address(c)).into(),
        }
    }
}

/// Answers calls whose first argument is a descriptor.
///
/// # Safety
/// The conditions of [`answer`].
unsafe fn on_descriptor(number: c_long, [a, b, c, d, e]: [usize; 5]) -> c_long {
    let fd = int(a);
    let (is_known, is_reserved) = (table::knows(fd), reserved_descriptors::is(fd));
    // SAFETY: by this function's contract.
    unsafe {
        match number {
            libc::SYS_close if is_known || is_reserved => close::mq_close(fd).into(),
            libc::SYS_close_range => close::close_range(a as c_uint, b as c_uint, int(c)).into(),
            libc::SYS_dup if is_known || is_reserved => dup::dup(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => dup::dup2(fd, int(b)).into(),
            libc::SYS_dup3 => dup::dup3(fd, int(b), int(c)).into(),
            libc::SYS_write if knobs::of(fd).is_some() => write::write(fd, address(b), c) as c_long,
            // The calls below are answered only for queues. The library's own descriptors need no answer: the library makes some of these calls
            // itself, and the others do no harm.
            _ if !is_known => NOT_OURS,
            libc::SYS_fcntl => fcntl::fcntl(fd, int(b), c).into(),
            libc::SYS_ioctl => fcntl::ioctl(fd, b as _, c).into(),
            libc::SYS_read => read::read(fd, address(b), c) as c_long,
            libc::SYS_pread64 => read::pread(fd, address(b), c, d as c_long) as c_long,
            libc::SYS_readv => read::readv(fd, address(b), int(c)) as c_long,
            libc::SYS_preadv => read::preadv(fd, address(b), int(c), d as c_long) as c_long,
            libc::SYS_write => write::write(fd, address(b), c) as c_long,
            libc::SYS_pwrite64 => write::pwrite(fd, address(b), c, d as c_long) as c_long,
            libc::SYS_writev => write::writev(fd, address(b), int(c)) as c_long,
            libc::SYS_pwritev => write::pwritev(fd, address(b), int(c), d as c_long) as c_long,
            libc::SYS_fsync | libc::SYS_fdatasync => write::fsync(fd).into(),
            libc::SYS_ftruncate => write::ftruncate(fd, b as c_long).into(),
            libc::SYS_lseek => lseek::lseek(fd, b as c_long, int(c)),
            libc::SYS_fchmod => fchmod::fchmod(fd, b as mode_t).into(),
            libc::SYS_fstat => stat::fstat(fd, address(b)).into(),
            libc::SYS_statx => stat::statx(fd, address(b), int(c), d as c_uint, address(e)).into(),
            libc::SYS_newfstatat => stat::fstatat(fd, address(b), address(c), int(d)).into(),
            _ => NOT_OURS,
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn span_of(milliseconds: c_int) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

/// # Safety
/// The conditions of libc's poll.
unsafe fn wait(
    fds: *mut pollfd,
    count: usize,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> c_long {
    let patience = Patience { timeout, mask };
    // SAFETY: by this function's contract.
    uncancelled(|| unsafe { polling::wait(fds, count as nfds_t, patience) }).into()
}

/// Makes the call ppoll. The system call writes the remaining time, which libc's function does not show.
///
/// # Safety
/// The conditions of the system call ppoll.
unsafe fn ppoll([fds, count, limit, mask, size]: [usize; 5]) -> c_long {
    const MASK: usize = 8;
    let limit: *mut timespec = address(limit);
    // SAFETY: by this function's contract.
    let timeout = match unsafe { timeout::duration_of(limit) } {
        _ if mask != 0 && size != MASK => Err(libc::EINVAL),
        timeout => timeout,
    };
    let timeout = match timeout {
        Ok(timeout) => timeout,
        Err(errno) => return errno::fail(errno),
    };
    let began = Instant::now();
    // The library reads as much of the mask as the kernel does. SAFETY: by this function's contract.
    let outcome = unsafe { wait(address(fds), count, timeout, address(mask)) };
    if let Some(timeout) = timeout {
        let left = timeout.saturating_sub(began.elapsed());
        let left = timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: left.subsec_nanos().into(),
        };
        // SAFETY: by this function's contract. This function has already read the limit at this address.
        unsafe { limit.write_unaligned(left) };
    }
    outcome
}
