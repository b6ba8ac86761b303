//! A dynamic program that makes its System V calls by the CPU's instruction. Threads exchange messages.

use std::arch::asm;

#[cfg(target_arch = "x86_64")]
const CALLS: [isize; 4] = [68, 69, 70, 71];
#[cfg(target_arch = "aarch64")]
const CALLS: [isize; 4] = [186, 189, 188, 187];

/// Makes a system call. A negative result is an errno.
unsafe fn call(number: isize, a: isize, b: isize, c: isize, d: isize, e: isize) -> isize {
    let result;
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e,
            lateout("rcx") _, lateout("r11") _);
    }
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a => result, in("x1") b, in("x2") c, in("x3") d, in("x4") e);
    }
    result
}

#[repr(C)]
struct Message {
    kind: isize,
    text: [u8; 8],
}

fn main() {
    let [get, send, receive, control] = CALLS;
    let id = unsafe { call(get, 0, 0o600, 0, 0, 0) };
    assert!(id >= 0, "msgget: {id}");
    std::thread::scope(|scope| {
        for kind in 1..=4 {
            scope.spawn(move || {
                for round in 0..100_u64 {
                    let message = Message { kind, text: round.to_ne_bytes() };
                    let sent = unsafe { call(send, id, (&raw const message).addr() as isize, 8, 0, 0) };
                    assert_eq!(sent, 0);
                }
            });
            scope.spawn(move || {
                for round in 0..100_u64 {
                    let mut message = Message { kind: 0, text: [0; 8] };
                    let got = unsafe { call(receive, id, (&raw mut message).addr() as isize, 8, kind, 0) };
                    assert_eq!((got, message.kind, u64::from_ne_bytes(message.text)), (8, kind, round));
                }
            });
        }
    });
    assert_eq!(unsafe { call(control, id, 0, 0, 0, 0) }, 0);
    println!("exchanged");
}
