//! umsg as an existing program meets it: through the libc names of the drop-in library.
//!
//! The library is loaded beside libc instead of before it, so that one process can compare both. Its
//! functions are called through pointers, which costs what a call through the linkage table costs.

use std::ffi::{CStr, CString, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::descriptor::{self, Close, DescriptorQueue, Names, Open, Receive, Send, Unlink};
use crate::failure::Failure;

/// A queue of umsg behind the C names.
pub struct DropinQueue(DescriptorQueue);

descriptor::message_queue!(DropinQueue, |spec| {
    let names = NAMES
        .get()
        .ok_or_else(|| Failure::new("the drop-in is not loaded"))?;
    descriptor::make(*names, spec, "the drop-in's")
});

static NAMES: OnceLock<Names> = OnceLock::new();

/// Loads the drop-in, by default the one that was built along with this program.
pub fn load(path: Option<&Path>) -> Result<(), Failure> {
    let names = match path {
        Some(path) => open(path)?,
        None => open(&beside_program()?)?,
    };
    // A second load finds the same library; its names are the same.
    NAMES.get_or_init(|| names);
    Ok(())
}

fn beside_program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    let beside = program.with_file_name("libumsg_preload.so");
    // A test or an example runs from a directory below.
    let above = program
        .ancestors()
        .nth(2)
        .map(|above| above.join("libumsg_preload.so"));
    let found = [Some(beside), above]
        .into_iter()
        .flatten()
        .find(|path| path.exists());
    found.ok_or_else(|| {
        Failure::new("libumsg_preload.so is not beside this program: build the whole workspace")
    })
}

fn open(path: &Path) -> Result<Names, Failure> {
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Failure::new("the path of the drop-in holds a zero byte"))?;
    // SAFETY: the path ends with zero. The library's constructors run; it is the one of this project,
    // and is never unloaded.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(loader_error(path));
    }
    let symbol = |name: &CStr| {
        // SAFETY: a library that dlopen gave, and a name that ends with zero.
        let address = unsafe { libc::dlsym(library, name.as_ptr()) };
        if address.is_null() {
            Err(loader_error(path))
        } else {
            Ok(address)
        }
    };
    // SAFETY: each symbol is the function of that name in <mqueue.h>, which has the type that it is
    // given here; function pointers and data pointers have one representation on Linux.
    unsafe {
        Ok(Names {
            open: mem::transmute::<*mut c_void, Open>(symbol(c"mq_open")?),
            close: mem::transmute::<*mut c_void, Close>(symbol(c"mq_close")?),
            unlink: mem::transmute::<*mut c_void, Unlink>(symbol(c"mq_unlink")?),
            send: mem::transmute::<*mut c_void, Send>(symbol(c"mq_send")?),
            receive: mem::transmute::<*mut c_void, Receive>(symbol(c"mq_receive")?),
        })
    }
}

fn loader_error(path: &Path) -> Failure {
    // SAFETY: dlerror gives null or a string that lives until the next call of this thread.
    let reason = unsafe {
        let reason = libc::dlerror();
        if reason.is_null() {
            "a name is missing".into()
        } else {
            CStr::from_ptr(reason).to_string_lossy().into_owned()
        }
    };
    Failure::new(format!("{}: {reason}", path.display()))
}
