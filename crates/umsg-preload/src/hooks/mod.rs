//! The exported functions: libc's names, one file for each subject.
//!
//! Each hook first checks whether the descriptor is a queue's, and passes other calls on to the next library. For functions that take any file, the
//! check reads one array element. fcntl, ioctl, mq_open and syscall are variadic in C. On x86-64 and aarch64 Linux, variadic arguments use the
//! registers of named ones, so a Rust function with a fixed list of arguments receives them.

/// Exports functions of libc, each under all names that libc has for it. In a function's body, the word before `=>` names the function of the same
/// name in the next library. A call of that function is unsafe.
macro_rules! hooks {
    ($(
        #[doc = $doc:literal]
        fn [$($name:ident),+] $arguments:tt -> $result:ty { $next:ident => $body:expr }
    )*) => {
        $( $( hooks! { @ $doc, $name $arguments -> $result, $next, $body } )+ )*
    };
    (@ $doc:literal, $name:ident ($($argument:ident: $type:ty),*) -> $result:ty, $next:ident, $body:expr) => {
        #[doc = $doc]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let $next = crate::next::$name;
            // SAFETY: the caller makes the promises that libc's function of this name requires.
            unsafe { $body }
        }
    };
}

pub(crate) mod close;
mod credentials;
pub(crate) mod dlopen;
mod dup;
mod epoll;
mod exec;
mod fchmod;
pub(crate) mod fcntl;
mod ipc_namespace;
mod lseek;
mod mmap;
mod mq_attr;
mod mq_notify;
pub(crate) mod mq_open;
mod mq_receive;
mod mq_send;
pub(crate) mod mq_unlink;
mod mq_wait;
mod mqueue;
mod msgctl;
mod msgget;
mod msgrcv;
mod msgsnd;
mod open;
mod poll;
pub(crate) mod read;
mod readlink;
mod select;
mod sendmsg;
mod sigaction;
pub(crate) mod stat;
pub(crate) mod stream;
mod syscall;
mod walk;
mod write;
