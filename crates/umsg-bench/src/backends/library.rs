//! Libraries that this program loads.

use std::ffi::{CStr, CString, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A library that this program has loaded, and never unloads.
pub struct Library {
    handle: *mut c_void,
    path: PathBuf,
}

impl Library {
    /// Loads the library, which runs its constructors.
    ///
    /// # Errors
    /// Fails if the library can't be loaded. The error has the loader's reason.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Failure::new("the path of a library contains a zero byte"))?;
        // SAFETY: the path ends with zero. The library belongs to this project, so its constructors may run. It is never unloaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let library = Self {
            handle,
            path: path.to_owned(),
        };
        if handle.is_null() {
            return Err(library.error());
        }
        Ok(library)
    }

    /// Returns the address of a function that the library itself defines.
    pub fn symbol(&self, name: &CStr) -> Result<*mut c_void, Failure> {
        // SAFETY: dlopen returned the handle, and the name ends with a zero.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if address.is_null() {
            return Err(self.error());
        }
        // If the library lacks a name, dlsym continues in the dependencies of the library, and finds the function of libc.
        if object_of(address) == object_of(libc::strlen as *mut c_void) {
            let (path, name) = (self.path.display(), name.to_string_lossy());
            return Err(Failure::new(format!("{path} does not export {name}")));
        }
        Ok(address)
    }

    fn error(&self) -> Failure {
        // SAFETY: dlerror gives null or a string that lives until the next call of this thread.
        let reason = unsafe {
            let reason = libc::dlerror();
            if reason.is_null() {
                "a name is missing".into()
            } else {
                CStr::from_ptr(reason).to_string_lossy().into_owned()
            }
        };
        Failure::new(format!("{}: {reason}", self.path.display()))
    }
}

/// Returns the start address of the library or program that contains `function`, or null.
fn object_of(function: *mut c_void) -> *mut c_void {
    // SAFETY: all-zero is a valid Dl_info, which the call fills if it knows the address.
    unsafe {
        let mut info: libc::Dl_info = mem::zeroed();
        libc::dladdr(function, &raw mut info);
        info.dli_fbase
    }
}
