//! Filters of system calls (seccomp), by which some calls of a test's own processes and threads fail or kill.

/// A system call to which a filter applies. With `argument`, an index and a 32-bit value, the filter applies only if that argument has the value.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub number: libc::c_long,
    pub argument: Option<(u8, u32)>,
}

impl From<libc::c_long> for Call {
    fn from(number: libc::c_long) -> Call {
        Call {
            number,
            argument: None,
        }
    }
}

/// Makes these calls fail from now on, for this thread, and for the threads and processes that it starts.
#[track_caller]
pub fn refuse(calls: &[Call], errno: i32) {
    filter_calls(&mut program(
        calls,
        libc::SECCOMP_RET_ERRNO | errno.cast_unsigned(),
    ));
}

/// Makes the kernel take this action from now on, in place of making these calls.
#[track_caller]
pub fn act_on(calls: &[libc::c_long], action: u32) {
    let calls: Vec<Call> = calls.iter().copied().map(Call::from).collect();
    filter_calls(&mut program(&calls, action));
}

/// Makes all calls except these fail from now on.
#[track_caller]
pub fn allow_only(calls: &[libc::c_long], errno: i32) {
    let calls: Vec<Call> = calls.iter().copied().map(Call::from).collect();
    let mut filter = program(&calls, libc::SECCOMP_RET_ALLOW);
    filter.pop();
    filter.push(ret(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()));
    filter_calls(&mut filter);
}

/// From now on, the kernel makes no call of this thread, or of threads and processes that it starts, before a supervisor lets the call pass. Returns
/// the supervisor's descriptor, see seccomp_unotify(2).
#[track_caller]
pub fn supervise() -> i32 {
    let mut filter = vec![ret(libc::SECCOMP_RET_USER_NOTIF)];
    let program = libc::sock_fprog {
        len: 1,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the calls change settings of this thread. The program, and the filter that it names, live during the call.
    let listener = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    assert!(listener >= 0, "{}", std::io::Error::last_os_error());
    listener as i32
}

/// Returns a filter with an action for some calls; all other calls are made.
pub fn program(calls: &[Call], action: u32) -> Vec<libc::sock_filter> {
    /// The offset of the arguments in `struct seccomp_data`: linux/seccomp.h. The lower half comes first.
    const ARGUMENTS: u32 = 16;
    let load = |at| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let skip_unless = |value, skipped| libc::sock_filter {
        jf: skipped,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value)
    };
    let mut filter = vec![];
    for call in calls {
        // The number of the system call is the first field of `struct seccomp_data`.
        filter.push(load(0));
        if let Some((index, value)) = call.argument {
            filter.push(skip_unless(call.number as u32, 3));
            filter.push(load(ARGUMENTS + 8 * u32::from(index)));
            filter.push(skip_unless(value, 1));
        } else {
            filter.push(skip_unless(call.number as u32, 1));
        }
        filter.push(ret(action));
    }
    filter.push(ret(libc::SECCOMP_RET_ALLOW));
    filter
}

fn ret(action: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, action)
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Installs a filter for all later system calls of this thread.
#[track_caller]
fn filter_calls(filter: &mut [libc::sock_filter]) {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the calls change settings of this thread. The program, and the filter that it names, live during the call.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    assert!(is_set, "{}", std::io::Error::last_os_error());
}
