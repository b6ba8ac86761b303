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
use super::typed::identifier::{self, Names as TypedNames};
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
static TYPED_NAMES: OnceLock<Result<TypedNames, Failure>> = OnceLock::new();

/// Loads the drop-in, by default the one that was built along with this program.
pub fn load(path: Option<&Path>) -> Result<(), Failure> {
    let path = path.map_or_else(beside_program, |path| Ok(path.to_owned()))?;
    let library = Library::open(&path)?;
    let names = library.names()?;
    // A second load finds the same library; its names are the same.
    NAMES.get_or_init(|| names);
    TYPED_NAMES.get_or_init(|| library.typed_names());
    Ok(())
}

/// Its functions of `<sys/msg.h>`.
pub fn typed_names() -> Result<TypedNames, Failure> {
    let loaded = TYPED_NAMES.get();
    loaded.map_or_else(
        || Err(Failure::new("the drop-in is not loaded")),
        Clone::clone,
    )
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

/// The library, loaded for good.
struct Library<'a> {
    handle: *mut c_void,
    path: &'a Path,
}

impl<'a> Library<'a> {
    fn open(path: &'a Path) -> Result<Self, Failure> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Failure::new("the path of the drop-in holds a zero byte"))?;
        // SAFETY: the path ends with zero. The library's constructors run; it is the one of this project,
        // and is never unloaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let library = Self { handle, path };
        if handle.is_null() {
            return Err(library.error());
        }
        Ok(library)
    }

    fn names(&self) -> Result<Names, Failure> {
        // SAFETY: each symbol is the function of that name in <mqueue.h>, which has the type that it is
        // given here; function pointers and data pointers have one representation on Linux.
        unsafe {
            Ok(Names {
                open: mem::transmute::<*mut c_void, Open>(self.symbol(c"mq_open")?),
                close: mem::transmute::<*mut c_void, Close>(self.symbol(c"mq_close")?),
                unlink: mem::transmute::<*mut c_void, Unlink>(self.symbol(c"mq_unlink")?),
                send: mem::transmute::<*mut c_void, Send>(self.symbol(c"mq_send")?),
                receive: mem::transmute::<*mut c_void, Receive>(self.symbol(c"mq_receive")?),
            })
        }
    }

    fn typed_names(&self) -> Result<TypedNames, Failure> {
        // SAFETY: as above, with <sys/msg.h>.
        unsafe {
            Ok(TypedNames {
                get: mem::transmute::<*mut c_void, identifier::Get>(self.symbol(c"msgget")?),
                send: mem::transmute::<*mut c_void, identifier::Send>(self.symbol(c"msgsnd")?),
                receive: mem::transmute::<*mut c_void, identifier::Receive>(
                    self.symbol(c"msgrcv")?,
                ),
                control: mem::transmute::<*mut c_void, identifier::Control>(
                    self.symbol(c"msgctl")?,
                ),
            })
        }
    }

    /// A function of the library itself.
    fn symbol(&self, name: &CStr) -> Result<*mut c_void, Failure> {
        // SAFETY: a library that dlopen gave, and a name that ends with zero.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if address.is_null() {
            return Err(self.error());
        }
        // Where the library lacks a name, the search goes on in what it depends on, and finds libc's.
        if object_of(address) == object_of(libc::strlen as *mut c_void) {
            let (path, name) = (self.path.display(), name.to_string_lossy());
            return Err(Failure::new(format!("{path} has no {name}")));
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

/// Where the library or program that holds this function begins; null if none does.
fn object_of(function: *mut c_void) -> *mut c_void {
    // SAFETY: all-zero is a valid Dl_info, which the call fills if it knows the address.
    unsafe {
        let mut info: libc::Dl_info = mem::zeroed();
        libc::dladdr(function, &raw mut info);
        info.dli_fbase
    }
}
