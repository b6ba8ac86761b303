//! The hooked functions, as the next library in the chain exports them.
//!
//! A call that does not concern a queue goes to the next library that exports the name: libc, or another preloaded library such as fakeroot. Each
//! address is looked up at the first call of its function, by [`crate::chain`], which takes no lock. So the look-up may happen in a signal handler,
//! in a vfork child, or during a dlopen in another thread. dlsym looks up the names that `chain` does not find. If the constructor of another library
//! calls a function before this library has started, dlsym looks up the name, too. A successful dlsym allocates nothing (glibc 2.34 and later), so a
//! look-up may happen while an allocator starts.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    DIR, FILE, dirent, epoll_event, fd_set, gid_t, iovec, mmsghdr, mode_t, mq_attr, msghdr, nfds_t,
    off_t, pid_t, pollfd, posix_spawn_file_actions_t, posix_spawnattr_t, pthread_t, sigevent,
    sighandler_t, sigset_t, size_t, ssize_t, timespec, timeval, uid_t,
};

use crate::errno;

/// The address of a function, which is looked up once. The structure has no pointer to the name, because the loader would have to relocate this
/// pointer at each start.
pub(crate) struct Symbol {
    /// Null before the look-up. [`Symbol::ABSENT`] after a look-up that found nothing.
    address: AtomicPtr<c_void>,
}

impl Symbol {
    const ABSENT: *mut c_void = std::ptr::without_provenance_mut(1);

    pub(crate) const fn new() -> Symbol {
        Symbol {
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Returns the address of this name, or `None` if no later library has the name.
    #[inline(always)]
    pub(crate) fn address(&self, name: &'static CStr) -> Option<*mut c_void> {
        // Relaxed: the address publishes no other data, because its target existed before this library.
        let known = self.address.load(Ordering::Relaxed);
        let address = if known.is_null() {
            self.look_up(name)
        } else {
            known
        };
        (address != Symbol::ABSENT).then_some(address)
    }

    #[cold]
    fn look_up(&self, name: &CStr) -> *mut c_void {
        let found = crate::chain::find(name).unwrap_or_else(|| {
            // SAFETY: dlsym asks for RTLD_NEXT and a NUL-terminated name.
            unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
        });
        let address = if found.is_null() {
            Symbol::ABSENT
        } else {
            found
        };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// The value that a function of libc returns when it fails.
trait Failure {
    const FAILED: Self;
}

impl Failure for c_int {
    const FAILED: c_int = -1;
}

impl Failure for sighandler_t {
    const FAILED: sighandler_t = libc::SIG_ERR;
}

impl Failure for i64 {
    const FAILED: i64 = -1;
}

impl Failure for ssize_t {
    const FAILED: ssize_t = -1;
}

impl Failure for *mut c_void {
    /// The value that mmap returns when it fails.
    const FAILED: *mut c_void = libc::MAP_FAILED;
}

impl Failure for *mut FILE {
    const FAILED: *mut FILE = std::ptr::null_mut();
}

impl Failure for *mut DIR {
    const FAILED: *mut DIR = std::ptr::null_mut();
}

impl Failure for () {
    const FAILED: () = ();
}

#[cold]
fn absent<T: Failure>() -> T {
    errno::set(libc::ENOSYS);
    T::FAILED
}

/// Converts a name to a C string.
macro_rules! name {
    ($name:ident) => {
        const {
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero byte"),
            }
        }
    };
}

/// Declares functions of the same name and signature as those of the next library. If no library exports a name, its function fails with ENOSYS.
macro_rules! next_functions {
    ($( fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?; )*) => {
        #[allow(non_upper_case_globals, reason = "named as what they stand for")]
        mod symbols {
            use super::Symbol;
            $(
                #[unsafe(link_section = ".data.umsg")]
                pub(super) static $name: Symbol = Symbol::new();
            )*
        }

        /// Looks up every name. Needed if later look-ups would take the loader's lock.
        pub(crate) fn resolve_all() {
            $( symbols::$name.address(name!($name)); )*
            pthread_setcanceltype();
        }
        $(
            /// Calls the next library's function of this name.
            ///
            /// # Safety
            /// The conditions of libc's function of this name.
            #[inline(always)]
            pub(crate) unsafe fn $name($($argument: $type),*) $(-> $result)? {
                type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
                let Some(address) = symbols::$name.address(name!($name)) else { return absent() };
                // SAFETY: the symbol of this name has this signature in every libc (variadic ones are called with
                // their arguments in the same registers, see `hooks`).
                let function = unsafe { std::mem::transmute::<*mut c_void, Function>(address) };
                // SAFETY: the caller makes the promises that the function requires.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

next_functions! {
    fn mq_timedsend(fd: c_int, message: *const c_char, len: size_t, priority: c_uint, deadline: *const timespec) -> c_int;
    fn mq_timedreceive(fd: c_int, buffer: *mut c_char, len: size_t, priority: *mut c_uint, deadline: *const timespec) -> ssize_t;
    fn mq_setattr(fd: c_int, new: *const mq_attr, old: *mut mq_attr) -> c_int;
    fn mq_notify(fd: c_int, event: *const sigevent) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int);
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, new: c_int) -> c_int;
    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut posix_spawn_file_actions_t, fd: c_int, new: c_int) -> c_int;
    fn execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
    fn execvp(name: *const c_char, arguments: *const *const c_char) -> c_int;
    fn execvpe(name: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn execveat(directory: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int;
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn posix_spawnp(pid: *mut pid_t, name: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int;
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
    fn pread(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    fn pread64(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t;
    fn __pread_chk(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t;
    fn __pread64_chk(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t;
    fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t;
    fn pwrite(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t;
    fn pwrite64(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn fsync(fd: c_int) -> c_int;
    fn fdatasync(fd: c_int) -> c_int;
    fn ftruncate(fd: c_int, len: off_t) -> c_int;
    fn ftruncate64(fd: c_int, len: off_t) -> c_int;
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fn mmap(address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    fn mmap64(address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    fn fchmod(fd: c_int, mode: mode_t) -> c_int;
    fn fstat(fd: c_int, out: *mut libc::stat) -> c_int;
    fn fstat64(fd: c_int, out: *mut libc::stat) -> c_int;
    fn __fxstat(version: c_int, fd: c_int, out: *mut libc::stat) -> c_int;
    fn __fxstat64(version: c_int, fd: c_int, out: *mut libc::stat) -> c_int;
    fn fstatat(directory: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int;
    fn fstatat64(directory: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int;
    fn __fxstatat(version: c_int, directory: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int;
    fn __fxstatat64(version: c_int, directory: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int;
    fn statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int;
    fn readlink(path: *const c_char, buffer: *mut c_char, len: size_t) -> ssize_t;
    fn readlinkat(directory: c_int, path: *const c_char, buffer: *mut c_char, len: size_t) -> ssize_t;
    fn __readlink_chk(path: *const c_char, buffer: *mut c_char, len: size_t, room: size_t) -> ssize_t;
    fn __readlinkat_chk(directory: c_int, path: *const c_char, buffer: *mut c_char, len: size_t, room: size_t) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int;
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int;
    fn select(count: c_int, reading: *mut fd_set, writing: *mut fd_set, strange: *mut fd_set, timeout: *mut timeval) -> c_int;
    fn pselect(count: c_int, reading: *mut fd_set, writing: *mut fd_set, strange: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn pthread_cancel(thread: pthread_t) -> c_int;
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn __open_2(path: *const c_char, flags: c_int) -> c_int;
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int;
    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn stat(path: *const c_char, out: *mut libc::stat) -> c_int;
    fn stat64(path: *const c_char, out: *mut libc::stat) -> c_int;
    fn lstat(path: *const c_char, out: *mut libc::stat) -> c_int;
    fn lstat64(path: *const c_char, out: *mut libc::stat) -> c_int;
    fn __xstat(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int;
    fn __xstat64(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int;
    fn __lxstat(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int;
    fn __lxstat64(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int;
    fn access(path: *const c_char, wanted: c_int) -> c_int;
    fn eaccess(path: *const c_char, wanted: c_int) -> c_int;
    fn euidaccess(path: *const c_char, wanted: c_int) -> c_int;
    fn faccessat(directory: c_int, path: *const c_char, wanted: c_int, flags: c_int) -> c_int;
    fn unlink(path: *const c_char) -> c_int;
    fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn rmdir(path: *const c_char) -> c_int;
    fn remove(path: *const c_char) -> c_int;
    fn rename(from: *const c_char, to: *const c_char) -> c_int;
    fn renameat(from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char) -> c_int;
    fn renameat2(from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint) -> c_int;
    fn chmod(path: *const c_char, mode: mode_t) -> c_int;
    fn fchmodat(directory: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int;
    fn chown(path: *const c_char, user: uid_t, group: gid_t) -> c_int;
    fn lchown(path: *const c_char, user: uid_t, group: gid_t) -> c_int;
    fn fchownat(directory: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int;
    fn creat(path: *const c_char, mode: mode_t) -> c_int;
    fn creat64(path: *const c_char, mode: mode_t) -> c_int;
    fn opendir(path: *const c_char) -> *mut DIR;
    fn scandir(path: *const c_char, entries: *mut *mut *mut dirent, select: *const c_void, compare: *const c_void) -> c_int;
    fn scandir64(path: *const c_char, entries: *mut *mut *mut dirent, select: *const c_void, compare: *const c_void) -> c_int;
    fn chdir(path: *const c_char) -> c_int;
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int;
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t;
    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t;
    fn listxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t;
    fn llistxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t;
    fn copy_file_range(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn glob(pattern: *const c_char, flags: c_int, failed: *const c_void, found: *mut c_void) -> c_int;
    fn glob64(pattern: *const c_char, flags: c_int, failed: *const c_void, found: *mut c_void) -> c_int;
    fn nftw(path: *const c_char, visit: *const c_void, descriptors: c_int, flags: c_int) -> c_int;
    fn nftw64(path: *const c_char, visit: *const c_void, descriptors: c_int, flags: c_int) -> c_int;
    fn ftw(path: *const c_char, visit: *const c_void, descriptors: c_int) -> c_int;
    fn ftw64(path: *const c_char, visit: *const c_void, descriptors: c_int) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn setns(fd: c_int, kind: c_int) -> c_int;
    fn clone(run: *const c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: usize, tls: usize, child: usize) -> c_int;
    fn fflush(stream: *mut FILE) -> c_int;
    fn rewind(stream: *mut FILE);
    fn fseek(stream: *mut FILE, offset: c_long, whence: c_int) -> c_int;
    fn fseeko(stream: *mut FILE, offset: off_t, whence: c_int) -> c_int;
    fn fseeko64(stream: *mut FILE, offset: off_t, whence: c_int) -> c_int;
    fn fclose(stream: *mut FILE) -> c_int;
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn setuid(user: uid_t) -> c_int;
    fn seteuid(user: uid_t) -> c_int;
    fn setreuid(real: uid_t, effective: uid_t) -> c_int;
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    fn setfsuid(user: uid_t) -> c_int;
    fn setgid(group: gid_t) -> c_int;
    fn setegid(group: gid_t) -> c_int;
    fn setregid(real: gid_t, effective: gid_t) -> c_int;
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    fn setfsgid(group: gid_t) -> c_int;
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int;
    fn initgroups(user: *const c_char, group: gid_t) -> c_int;
    fn capset(header: *mut c_void, data: *const c_void) -> c_int;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
}

/// Returns the address of pthread_setcanceltype, for callers that jump to it because they must leave no frame on the stack.
pub(crate) fn pthread_setcanceltype() -> Option<*mut c_void> {
    #[unsafe(link_section = ".data.umsg")]
    static SYMBOL: Symbol = Symbol::new();
    SYMBOL.address(c"pthread_setcanceltype")
}

#[cfg(test)]
mod tests {
    use super::Symbol;

    #[test]
    fn a_name_that_no_library_exports_is_absent() {
        static NOBODYS: Symbol = Symbol::new();
        let name = c"umsg_no_such_function";
        assert_eq!(NOBODYS.address(name), None);
        assert_eq!(
            NOBODYS.address(name),
            None,
            "the second look finds the same"
        );
    }

    #[test]
    fn a_name_of_libc_is_found() {
        static CLOSE: Symbol = Symbol::new();
        assert!(CLOSE.address(c"close").is_some());
    }

    #[test]
    fn a_missing_function_fails_with_enosys() {
        assert_eq!(super::absent::<i32>(), -1);
        assert_eq!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(libc::ENOSYS)
        );
    }
}
