//! Conversion of C's `struct sigevent` to a [`Notify`], for the C library, the drop-in, and bindings for other languages.
//! Rust programs make a [`Notify`] by its own functions.

use super::{Notify, NotifyError};
use crate::error::QueueError;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

/// `void (*)(union sigval)`, called as a thread's first function. The calling convention passes a pointer like a `union sigval`, and the result of a
/// detached thread is not used. The library has no stack frame below the program's function, so the function may end its thread.
type Function = extern "C" fn(*mut c_void) -> *mut c_void;

/// The members of `struct sigevent` from `sigev_value` on, as glibc and musl lay them out on 64-bit machines.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    value: usize,
    signal: c_int,
    notify: c_int,
    function: Option<Function>,
    attributes: *const libc::pthread_attr_t,
}

const _: () = assert!(size_of::<Event>() <= size_of::<libc::sigevent>());

/// Converts the request for a notification in `event` to a [`Notify`].
///
/// # Errors
/// [`NotifyError::InvalidWay`], [`NotifyError::InvalidSignal`], [`NotifyError::NoFunction`] (EINVAL), [`QueueError::NoMemory`].
///
/// # Safety
/// `event` is readable. If the event requests a thread, its function is valid, and its attributes are initialised or NULL.
pub unsafe fn wanted(event: *const libc::sigevent) -> Result<Notify, NotifyError> {
    // SAFETY: by this function's contract `event` is readable; only the members of `Event` are read. As in the kernel, `event` may be unaligned.
    let event = unsafe { event.cast::<Event>().read_unaligned() };
    match event.notify {
        libc::SIGEV_NONE => Ok(Notify::Nothing),
        libc::SIGEV_SIGNAL => Notify::checked_signal(event.signal, event.value),
        // SAFETY: by this function's contract.
        libc::SIGEV_THREAD => unsafe { thread(&event) },
        _ => Err(NotifyError::InvalidWay),
    }
}

/// # Safety
/// The caller meets the conditions of [`wanted`].
unsafe fn thread(event: &Event) -> Result<Notify, NotifyError> {
    let function = event.function.ok_or(NotifyError::NoFunction)?;
    // SAFETY: by this function's contract.
    let attributes = unsafe { Attributes::copied(event.attributes) }
        .ok_or(NotifyError::Queue(QueueError::NoMemory))?;
    let value = event.value;
    Ok(Notify::Quick(Box::new(move |_| {
        attributes.start(function, std::ptr::with_exposed_provenance_mut(value));
    })))
}

unsafe extern "C" {
    fn pthread_attr_getguardsize(from: *const libc::pthread_attr_t, size: *mut usize) -> c_int;
    fn pthread_attr_setguardsize(to: *mut libc::pthread_attr_t, size: usize) -> c_int;
    fn pthread_attr_getinheritsched(from: *const libc::pthread_attr_t, value: *mut c_int) -> c_int;
    fn pthread_attr_setinheritsched(to: *mut libc::pthread_attr_t, value: c_int) -> c_int;
    fn pthread_attr_getschedpolicy(from: *const libc::pthread_attr_t, value: *mut c_int) -> c_int;
    fn pthread_attr_setschedpolicy(to: *mut libc::pthread_attr_t, value: c_int) -> c_int;
    fn pthread_attr_getschedparam(
        from: *const libc::pthread_attr_t,
        value: *mut libc::sched_param,
    ) -> c_int;
    fn pthread_attr_setschedparam(
        to: *mut libc::pthread_attr_t,
        value: *const libc::sched_param,
    ) -> c_int;
    fn pthread_attr_getstack(
        from: *const libc::pthread_attr_t,
        address: *mut *mut c_void,
        size: *mut usize,
    ) -> c_int;
    fn pthread_attr_setstack(
        to: *mut libc::pthread_attr_t,
        address: *mut c_void,
        size: usize,
    ) -> c_int;
    fn pthread_attr_getstacksize(from: *const libc::pthread_attr_t, size: *mut usize) -> c_int;
    fn pthread_attr_setstacksize(to: *mut libc::pthread_attr_t, size: usize) -> c_int;
    #[cfg(not(target_env = "musl"))]
    fn pthread_attr_getaffinity_np(
        from: *const libc::pthread_attr_t,
        len: usize,
        set: *mut libc::cpu_set_t,
    ) -> c_int;
    #[cfg(not(target_env = "musl"))]
    fn pthread_attr_setaffinity_np(
        to: *mut libc::pthread_attr_t,
        len: usize,
        set: *const libc::cpu_set_t,
    ) -> c_int;
}

/// A thread's attributes. The program may destroy its own copy after the registration.
struct Attributes(Box<libc::pthread_attr_t>);

// SAFETY: the attributes consist of numbers, and of addresses that are only passed to pthread_create.
unsafe impl Send for Attributes {}

impl Attributes {
    /// Copies the program's attributes, and makes the thread detached.
    ///
    /// # Safety
    /// `from` is NULL or initialised.
    unsafe fn copied(from: *const libc::pthread_attr_t) -> Option<Attributes> {
        let mut room = Box::new(MaybeUninit::<libc::pthread_attr_t>::uninit());
        // SAFETY: there is room for the attributes.
        if unsafe { libc::pthread_attr_init(room.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: pthread_attr_init has just initialised the attributes.
        let mut attributes = Attributes(unsafe { room.assume_init() });
        let to = &raw mut *attributes.0;
        // SAFETY: `to` is initialised.
        unsafe { libc::pthread_attr_setdetachstate(to, libc::PTHREAD_CREATE_DETACHED) };
        if !from.is_null() {
            // SAFETY: both attributes are initialised.
            unsafe { copy(from, to) };
        }
        Some(attributes)
    }

    /// Starts a thread with no signal masked. If the thread can't be started, the error is lost: no caller can receive it.
    fn start(mut self, function: Function, value: *mut c_void) {
        let unmasks = self.unmask();
        let mut thread = MaybeUninit::uninit();
        let mut start = || {
            // SAFETY: the attributes are initialised. The function belongs to the program, and takes this value.
            unsafe {
                libc::pthread_create(thread.as_mut_ptr(), &raw const *self.0, function, value)
            }
        };
        match unmasks {
            true => start(),
            // The new thread inherits the signal mask of its creator. So this thread unmasks its signals for the call, and a handler may run.
            false => umsg_shm::sys::mask::unmasked(start),
        };
    }

    /// Makes the thread begin with no signal masked, where libc can do so: glibc since 2.32.
    fn unmask(&mut self) -> bool {
        type Setter =
            unsafe extern "C" fn(*mut libc::pthread_attr_t, *const libc::sigset_t) -> c_int;
        // SAFETY: the name ends with a NUL.
        let found =
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pthread_attr_setsigmask_np".as_ptr()) };
        if found.is_null() {
            return false;
        }
        let mut none = MaybeUninit::uninit();
        // SAFETY: the symbol of this name has this signature. sigemptyset initialises the set first, and the function copies it.
        unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            std::mem::transmute::<*mut c_void, Setter>(found)(&raw mut *self.0, none.as_ptr()) == 0
        }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: the attributes are initialised, and not used again.
        unsafe { libc::pthread_attr_destroy(&raw mut *self.0) };
    }
}

/// Copies each attribute that libc can return. An attribute that was never set gets its default value.
///
/// # Safety
/// Both attributes are initialised.
unsafe fn copy(from: *const libc::pthread_attr_t, to: *mut libc::pthread_attr_t) {
    let (mut size, mut number, mut address) = (0, 0, std::ptr::null_mut());
    // SAFETY: the structure consists of numbers, for which zero is valid.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: by this function's contract, the attributes are valid. The other arguments are places for results.
    unsafe {
        if pthread_attr_getguardsize(from, &raw mut size) == 0 {
            pthread_attr_setguardsize(to, size);
        }
        if pthread_attr_getstack(from, &raw mut address, &raw mut size) == 0
            // For attributes without a stack, glibc gives a stack that ends at address 0.
            && address.addr().wrapping_add(size) != 0
            && !address.is_null()
        {
            pthread_attr_setstack(to, address, size);
        } else if pthread_attr_getstacksize(from, &raw mut size) == 0 && size != 0 {
            pthread_attr_setstacksize(to, size);
        }
        if pthread_attr_getinheritsched(from, &raw mut number) == 0 {
            pthread_attr_setinheritsched(to, number);
        }
        if pthread_attr_getschedpolicy(from, &raw mut number) == 0 {
            pthread_attr_setschedpolicy(to, number);
        }
        if pthread_attr_getschedparam(from, &raw mut parameters) == 0 {
            pthread_attr_setschedparam(to, &raw const parameters);
        }
        // musl's attributes have no set of processors.
        #[cfg(not(target_env = "musl"))]
        copy_processors(from, to);
    }
}

/// Copies the set of processors for the thread. If the program has set none, glibc returns all processors.
///
/// # Safety
/// The caller meets the conditions of [`copy`].
#[cfg(not(target_env = "musl"))]
unsafe fn copy_processors(from: *const libc::pthread_attr_t, to: *mut libc::pthread_attr_t) {
    // SAFETY: the structure consists of bits, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let len = size_of::<libc::cpu_set_t>();
    // SAFETY: by this function's contract, both attributes are initialised; the set has the given length.
    unsafe {
        if pthread_attr_getaffinity_np(from, len, &raw mut set) == 0
            && (0..libc::CPU_SETSIZE as usize).any(|cpu| !libc::CPU_ISSET(cpu, &set))
        {
            pthread_attr_setaffinity_np(to, len, &raw const set);
        }
    }
}
