//! The C functions that a backend calls: the functions that this program is linked to, or the functions of a library.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{mode_t, mq_attr, mqd_t, off_t, size_t, ssize_t, timespec};

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident: $signature:ty,)*) => {
        /// The C functions that the cases use.
        #[allow(missing_docs)]
        #[derive(Clone, Copy)]
        pub struct Calls {
            $($(#[$doc])* pub $name: $signature,)*
        }

        impl Calls {
            /// Returns the functions that this program is linked to: glibc's.
            pub fn of_libc() -> Calls {
                Calls { $($name: libc::$name,)* }
            }

            /// Finds the functions in a library and in its dependencies, as a program that preloads the library does.
            ///
            /// # Errors
            /// The loader's message.
            pub fn of_library(path: &Path) -> Result<Calls, String> {
                let library = Library::load(path)?;
                Ok(Calls {
                    $($name: {
                        let symbol = library.symbol(concat!(stringify!($name), "\0"))?;
                        // SAFETY: the library's function of this name has this C declaration, and the library is never unloaded.
                        unsafe { mem::transmute::<*mut c_void, $signature>(symbol) }
                    },)*
                })
            }
        }
    };
}

calls! {
    mq_open: unsafe extern "C" fn(*const c_char, c_int, ...) -> mqd_t,
    mq_close: unsafe extern "C" fn(mqd_t) -> c_int,
    mq_unlink: unsafe extern "C" fn(*const c_char) -> c_int,
    mq_send: unsafe extern "C" fn(mqd_t, *const c_char, size_t, c_uint) -> c_int,
    mq_timedsend: unsafe extern "C" fn(mqd_t, *const c_char, size_t, c_uint, *const timespec) -> c_int,
    mq_receive: unsafe extern "C" fn(mqd_t, *mut c_char, size_t, *mut c_uint) -> ssize_t,
    mq_timedreceive: unsafe extern "C" fn(mqd_t, *mut c_char, size_t, *mut c_uint, *const timespec) -> ssize_t,
    mq_getattr: unsafe extern "C" fn(mqd_t, *mut mq_attr) -> c_int,
    mq_setattr: unsafe extern "C" fn(mqd_t, *const mq_attr, *mut mq_attr) -> c_int,
    mq_notify: unsafe extern "C" fn(mqd_t, *const libc::sigevent) -> c_int,
    close: unsafe extern "C" fn(c_int) -> c_int,
    close_range: unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int,
    dup: unsafe extern "C" fn(c_int) -> c_int,
    dup2: unsafe extern "C" fn(c_int, c_int) -> c_int,
    dup3: unsafe extern "C" fn(c_int, c_int, c_int) -> c_int,
    fcntl: unsafe extern "C" fn(c_int, c_int, ...) -> c_int,
    fstat: unsafe extern "C" fn(c_int, *mut libc::stat) -> c_int,
    read: unsafe extern "C" fn(c_int, *mut c_void, size_t) -> ssize_t,
    pread: unsafe extern "C" fn(c_int, *mut c_void, size_t, off_t) -> ssize_t,
    write: unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t,
    lseek: unsafe extern "C" fn(c_int, off_t, c_int) -> off_t,
    fsync: unsafe extern "C" fn(c_int) -> c_int,
    fchmod: unsafe extern "C" fn(c_int, mode_t) -> c_int,
    fchown: unsafe extern "C" fn(c_int, libc::uid_t, libc::gid_t) -> c_int,
    mmap: unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void,
    poll: unsafe extern "C" fn(*mut libc::pollfd, libc::nfds_t, c_int) -> c_int,
    select: unsafe extern "C" fn(c_int, *mut libc::fd_set, *mut libc::fd_set, *mut libc::fd_set, *mut libc::timeval) -> c_int,
    epoll_ctl: unsafe extern "C" fn(c_int, c_int, c_int, *mut libc::epoll_event) -> c_int,
    readlink: unsafe extern "C" fn(*const c_char, *mut c_char, size_t) -> ssize_t,
    sigaction: unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int,
}

/// A library loaded with RTLD_LOCAL: other libraries of the program do not see its symbols.
pub(crate) struct Library(*mut c_void);

impl Library {
    pub(crate) fn load(path: &Path) -> Result<Library, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| "a NUL in the path".to_string())?;
        // SAFETY: the path ends with a NUL, and the library's initialisers are the project's own.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LOCAL | libc::RTLD_NOW) };
        if handle.is_null() {
            Err(loader_error())
        } else {
            Ok(Library(handle))
        }
    }

    pub(crate) fn symbol(&self, name: &str) -> Result<*mut c_void, String> {
        let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("a name with its NUL");
        // SAFETY: a live handle and a NUL-terminated name.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if symbol.is_null() {
            Err(loader_error())
        } else {
            Ok(symbol)
        }
    }
}

fn loader_error() -> String {
    // SAFETY: dlerror returns null or a NUL-terminated text that lives until the next call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gave no reason".to_string();
    }
    // SAFETY: the pointer is not null, as the code above has checked, so it leads to a NUL-terminated text.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
