//! The backends that consist of C functions: glibc, the drop-in and the C library.

use std::ffi::{c_int, c_long, c_void};
use std::mem;
use std::path::Path;
use std::ptr;

use libc::{key_t, msginfo, msqid_ds, pthread_t, size_t, ssize_t};
use umsg::Namespace;

use super::native::like_the_kernel;
use super::{Answer, Backend, Change, Id, Info, Status};
use crate::backend::{
    Basics, Defer, Failure, Library, answer, handle_deferred, nothing, set_limits,
};
use crate::errno::Errno;
use crate::sys::{self, Credentials, User};

macro_rules! functions {
    ($($name:ident: $signature:ty,)* / $($other:ident: $others_signature:ty,)*) => {
        /// The C functions that a backend calls.
        #[allow(missing_docs)]
        #[derive(Clone, Copy)]
        pub struct Functions {
            $(pub $name: $signature,)*
            $(pub $other: $others_signature,)*
            /// The function that a process must call after a change of its user, if the library has such a function.
            pub forget_caller: Option<unsafe extern "C" fn() -> c_int>,
            /// The function that each signal handler must call first, if the library has such a function.
            defer: Option<Defer>,
        }

        impl Functions {
            /// Returns the functions that this program is linked to: glibc's.
            pub fn of_libc() -> Functions {
                Functions {
                    $($name: libc::$name,)*
                    $($other: libc::$other,)*
                    forget_caller: None,
                    defer: None,
                }
            }

            /// Finds the functions in a library and in its dependencies, as a program that preloads the library does.
            ///
            /// # Errors
            /// The loader's message.
            pub fn of_dropin(path: &Path) -> Result<Functions, String> {
                let library = Library::load(path)?;
                Ok(Functions {
                    $($name: {
                        let symbol = library.symbol(concat!(stringify!($name), "\0"))?;
                        // SAFETY: the library's function of this name has this C declaration, and the library is never unloaded.
                        unsafe { mem::transmute::<*mut c_void, $signature>(symbol) }
                    },)*
                    $($other: {
                        let symbol = library.symbol(concat!(stringify!($other), "\0"))?;
                        // SAFETY: the library's function of this name has this C declaration, and the library is never unloaded.
                        unsafe { mem::transmute::<*mut c_void, $others_signature>(symbol) }
                    },)*
                    forget_caller: None,
                    defer: None,
                })
            }

            /// Returns the functions `umsg_msg*` of the C library. The functions for signals and threads are those of libc.
            ///
            /// # Errors
            /// The loader's message.
            pub fn of_c(path: &Path) -> Result<Functions, String> {
                let library = Library::load(path)?;
                let forget_caller = library.symbol("umsg_msg_forget_caller\0")?;
                let defer = library.symbol("umsg_defer_signal\0")?;
                Ok(Functions {
                    $($name: {
                        let symbol = library.symbol(concat!("umsg_", stringify!($name), "\0"))?;
                        // SAFETY: the library's function of this name has this C declaration, and the library is never unloaded.
                        unsafe { mem::transmute::<*mut c_void, $signature>(symbol) }
                    },)*
                    $($other: libc::$other,)*
                    // SAFETY: the library's function of this name has this C declaration, and the library is never unloaded.
                    forget_caller: Some(unsafe {
                        mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(forget_caller)
                    }),
                    // SAFETY: the library's function of this name has this C declaration, and the library is never unloaded.
                    defer: Some(unsafe { mem::transmute::<*mut c_void, Defer>(defer) }),
                })
            }
        }
    };
}

functions! {
    msgget: unsafe extern "C" fn(key_t, c_int) -> c_int,
    msgsnd: unsafe extern "C" fn(c_int, *const c_void, size_t, c_int) -> c_int,
    msgrcv: unsafe extern "C" fn(c_int, *mut c_void, size_t, c_long, c_int) -> ssize_t,
    msgctl: unsafe extern "C" fn(c_int, c_int, *mut msqid_ds) -> c_int,
    /
    sigaction: unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int,
    pthread_cancel: unsafe extern "C" fn(pthread_t) -> c_int,
    setgroups: unsafe extern "C" fn(size_t, *const libc::gid_t) -> c_int,
    setresgid: unsafe extern "C" fn(libc::gid_t, libc::gid_t, libc::gid_t) -> c_int,
    setresuid: unsafe extern "C" fn(libc::uid_t, libc::uid_t, libc::uid_t) -> c_int,
}

/// The kinds of addresses that a case passes for a message or a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A null pointer.
    Null,
    /// An address at which no memory is mapped.
    Nowhere,
    /// The last eight bytes of a mapping: room for the type of a message, without room for a text.
    TypeOnly,
    /// Mapped memory with room for every message and structure.
    Good,
}

/// The length of each half of the mapping for a [`Place`]. The length is a multiple of every system's page size.
const PAGE: usize = 65536;

impl Place {
    /// Returns an address of this kind.
    fn address(self) -> *mut c_void {
        match self {
            Place::Null => ptr::null_mut(),
            Place::Nowhere => ptr::without_provenance_mut(16),
            Place::TypeOnly | Place::Good => {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                // SAFETY: a new mapping at an address that the kernel chooses disturbs no other mapping. The mapping stays until the end of the
                // process, which runs only this case.
                let start =
                    unsafe { libc::mmap(ptr::null_mut(), 2 * PAGE, protection, flags, -1, 0) };
                assert_ne!(start, libc::MAP_FAILED, "memory");
                if self == Place::Good {
                    return start;
                }
                // SAFETY: the range is the second half of the mapping above, and no reference leads to it.
                unsafe { libc::mprotect(start.byte_add(PAGE), PAGE, libc::PROT_NONE) };
                // SAFETY: the address lies within the first half.
                let last = unsafe { start.byte_add(PAGE - size_of::<c_long>()) };
                // SAFETY: the eight bytes lie in the first half, are aligned, and have no other user.
                unsafe { last.cast::<c_long>().write(1) };
                last
            }
        }
    }
}

impl Functions {
    /// Returns the functions by which a process changes its user.
    fn credentials(&self) -> Credentials {
        Credentials {
            setgroups: self.setgroups,
            setresgid: self.setresgid,
            setresuid: self.setresuid,
        }
    }

    fn forget_caller(&self) {
        if let Some(forget) = self.forget_caller {
            // SAFETY: the call has no preconditions.
            unsafe { forget() };
        }
    }
}

// The calls below pass bad addresses, or sizes that exceed every message: the cases test the answers. If a backend is a library, the cases make only
// calls for which the library defines the answer.
impl Functions {
    /// `msgsnd` of a text of `size` bytes, with a message at an address of this kind. The message has the type 1.
    pub fn send_at(&self, id: Id, place: Place, size: usize, flags: i32) -> Answer<()> {
        let address = place.address();
        if place == Place::Good {
            // SAFETY: the memory is private and aligned.
            unsafe { address.cast::<c_long>().write(1) };
        }
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.msgsnd)(id, address, size, flags) })
    }

    /// `msgrcv` of at most `size` bytes, into a message at an address of this kind.
    pub fn receive_at(
        &self,
        id: Id,
        place: Place,
        size: usize,
        mtype: i64,
        flags: i32,
    ) -> Answer<usize> {
        // SAFETY: see the comment on this impl.
        let received = unsafe { (self.msgrcv)(id, place.address(), size, mtype, flags) };
        Ok(answer(received)? as usize)
    }

    /// `msgctl` with a structure at an address of this kind.
    pub fn control_at(&self, id: Id, command: i32, place: Place) -> Answer<i32> {
        // SAFETY: see the comment on this impl. `Place::Good` has room for the structure of every command.
        answer(unsafe { (self.msgctl)(id, command, place.address().cast()) })
    }
}

/// A message buffer: the type, followed by the text. The buffer is aligned as in C.
struct Buffer(Vec<u64>);

impl Buffer {
    /// Creates a message with this type and room for a text of this length.
    fn new(mtype: i64, length: usize) -> Buffer {
        let mut words = vec![0; 1 + length.div_ceil(8)];
        words[0] = mtype as u64;
        Buffer(words)
    }

    /// Creates a message with this type and text.
    fn of(mtype: i64, text: &[u8]) -> Buffer {
        let mut buffer = Buffer::new(mtype, text.len());
        buffer.text()[..text.len()].copy_from_slice(text);
        buffer
    }

    fn text(&mut self) -> &mut [u8] {
        let words = &mut self.0[1..];
        // SAFETY: the words are initialised, and so are their bytes. A word has eight bytes.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
    }
}

/// A backend that calls C functions.
pub struct Called {
    label: &'static str,
    functions: Functions,
    /// The namespace of the backend's queues. The kernel's backend has none.
    namespace: Option<Namespace>,
}

impl Called {
    /// Returns a backend of glibc's own functions, which use the kernel's queues.
    pub fn kernel() -> Called {
        Called {
            label: "kernel",
            functions: Functions::of_libc(),
            namespace: None,
        }
    }

    /// Returns a backend of the drop-in's functions, each found by `dlsym`. The queues of the drop-in are in `directory`.
    ///
    /// # Errors
    /// The loader's message if the library can't be loaded, or the reason why the directory is no namespace.
    pub fn dropin(library: &Path, directory: &Path) -> Result<Called, String> {
        Ok(Called {
            label: "drop-in",
            functions: Functions::of_dropin(library)?,
            namespace: Some(like_the_kernel(directory)?),
        })
    }

    /// Returns a backend of the functions that this program is linked to. The process was started with the drop-in preloaded, so they are the
    /// drop-in's functions.
    ///
    /// # Errors
    /// The reason why the directory is no namespace.
    pub fn preloaded(directory: &Path) -> Result<Called, String> {
        Ok(Called {
            label: "preloaded drop-in",
            functions: Functions::of_libc(),
            namespace: Some(like_the_kernel(directory)?),
        })
    }

    /// Returns a backend of the functions of the C library at this path. The queues of the library are in `directory`.
    ///
    /// # Errors
    /// The loader's message, or the reason why the directory is no namespace.
    pub fn c(library: &Path, directory: &Path) -> Result<Called, String> {
        Ok(Called {
            label: "C library",
            functions: Functions::of_c(library)?,
            namespace: Some(like_the_kernel(directory)?),
        })
    }

    /// `msgctl` with a structure of this type, which the call may fill in.
    fn control<T>(&self, id: Id, command: i32, structure: &mut T) -> Answer<i32> {
        // SAFETY: the callers hand over the structure that the command takes.
        answer(unsafe { (self.functions.msgctl)(id, command, ptr::from_mut(structure).cast()) })
    }
}

impl Basics for Called {
    fn label(&self) -> &'static str {
        self.label
    }

    fn enter(&self) {
        if let Some(namespace) = &self.namespace {
            sys::set_environment("UMSG_DIR", namespace.path());
        }
    }

    fn assume(&self, user: User) -> Result<(), Errno> {
        user.assume(&self.functions.credentials())?;
        self.functions.forget_caller();
        Ok(())
    }

    fn assume_effective(&self, user: User) -> Result<(), Errno> {
        user.assume_effective(&self.functions.credentials())?;
        self.functions.forget_caller();
        Ok(())
    }

    fn handle_signal(&self, signal: i32, handler: extern "C" fn(i32), flags: i32) -> Answer<()> {
        match self.functions.defer {
            Some(defer) => handle_deferred(defer, signal, handler, flags),
            None => sys::handle_signal(self.functions.sigaction, signal, handler, flags)
                .map_err(Failure::from),
        }
    }
}

// Each call below passes the arguments that its C declaration requires: live buffers and their lengths, structures of the right type. An identifier
// may have any value: the cases test that the library checks identifiers.
impl Backend for Called {
    fn get(&self, key: i32, flags: i32) -> Answer<Id> {
        // SAFETY: see the comment on this impl.
        answer(unsafe { (self.functions.msgget)(key, flags) })
    }

    fn send(&self, id: Id, mtype: i64, text: &[u8], flags: i32) -> Answer<()> {
        let buffer = Buffer::of(mtype, text);
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.functions.msgsnd)(id, buffer.0.as_ptr().cast(), text.len(), flags) })
    }

    fn receive(&self, id: Id, text: &mut [u8], mtype: i64, flags: i32) -> Answer<(usize, i64)> {
        let mut buffer = Buffer::of(0, text);
        let start = buffer.0.as_mut_ptr().cast();
        // SAFETY: see the comment on this impl.
        let received = unsafe { (self.functions.msgrcv)(id, start, text.len(), mtype, flags) };
        let errno = Errno::last();
        text.copy_from_slice(&buffer.text()[..text.len()]);
        if received == -1 {
            return Err(errno.into());
        }
        Ok((received as usize, buffer.0[0] as i64))
    }

    fn stat(&self, id: Id, command: i32) -> Answer<(i32, Status)> {
        // SAFETY: the structure consists of integers, for which zero is valid.
        let mut status: msqid_ds = unsafe { mem::zeroed() };
        let returned = self.control(id, command, &mut status)?;
        Ok((returned, status.into()))
    }

    fn set(&self, id: Id, change: &Change) -> Answer<()> {
        // SAFETY: the structure consists of integers, for which zero is valid.
        let mut status: msqid_ds = unsafe { mem::zeroed() };
        status.msg_perm.uid = change.uid;
        status.msg_perm.gid = change.gid;
        // The type of the field `mode` depends on the architecture.
        #[allow(clippy::unnecessary_cast)]
        {
            status.msg_perm.mode = change.mode as _;
        }
        status.msg_qbytes = change.max_bytes;
        self.control(id, libc::IPC_SET, &mut status).map(drop)
    }

    fn remove(&self, id: Id) -> Answer<()> {
        // SAFETY: see the comment on this impl. The command takes no structure.
        nothing(unsafe { (self.functions.msgctl)(id, libc::IPC_RMID, ptr::null_mut()) })
    }

    fn info(&self, command: i32) -> Answer<(i32, Info)> {
        // SAFETY: the structure consists of integers, for which zero is valid.
        let mut info: msginfo = unsafe { mem::zeroed() };
        let returned = self.control(0, command, &mut info)?;
        Ok((returned, info.into()))
    }

    fn is_library(&self) -> bool {
        self.namespace.is_some()
    }

    fn functions(&self) -> Answer<&Functions> {
        Ok(&self.functions)
    }

    fn limit_queues(&self, max_queues: u32) -> Answer<()> {
        if let Some(namespace) = &self.namespace {
            return set_limits(namespace, |limits| limits.msgmni = max_queues);
        }
        std::fs::write("/proc/sys/kernel/msgmni", max_queues.to_string())
            .map_err(|_| Failure::Unsupported("only root can limit the kernel's queues"))
    }

    fn want_id(&self, id: u32) -> Answer<()> {
        if let Some(namespace) = &self.namespace {
            return set_limits(namespace, |limits| limits.next_id = Some(id));
        }
        std::fs::write("/proc/sys/kernel/msg_next_id", id.to_string())
            .map_err(|_| Failure::Unsupported("only root can choose the kernel's identifiers"))
    }
}

impl From<msqid_ds> for Status {
    fn from(from: msqid_ds) -> Status {
        let perm = from.msg_perm;
        Status {
            key: perm.__key,
            uid: perm.uid,
            gid: perm.gid,
            creator_uid: perm.cuid,
            creator_gid: perm.cgid,
            mode: perm.mode.into(),
            sequence: perm.__seq.into(),
            sent: from.msg_stime,
            received: from.msg_rtime,
            changed: from.msg_ctime,
            bytes: from.__msg_cbytes,
            messages: from.msg_qnum,
            max_bytes: from.msg_qbytes,
            last_sender: from.msg_lspid,
            last_receiver: from.msg_lrpid,
        }
    }
}

impl From<msginfo> for Info {
    fn from(from: msginfo) -> Info {
        Info {
            pool: from.msgpool,
            map: from.msgmap,
            max: from.msgmax,
            mnb: from.msgmnb,
            mni: from.msgmni,
            ssz: from.msgssz,
            tql: from.msgtql,
            seg: from.msgseg.into(),
        }
    }
}
