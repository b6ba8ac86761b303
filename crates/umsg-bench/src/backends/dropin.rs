//! umsg as an existing program uses it: through the libc names of the drop-in library.
//!
//! The library is loaded after libc instead of before it, so that one process can compare the kernel's queues with umsg's. The functions of the
//! library are called through pointers, at the same cost as a call through the linkage table.

use std::ffi::c_void;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::descriptor::{self, Close, DescriptorQueue, Names, Open, Receive, Send, Unlink};
use super::library::Library;
use super::typed::identifier::{self, Names as TypedNames};
use crate::failure::Failure;

/// A queue of umsg, used through the C functions of the drop-in.
pub struct DropinQueue(DescriptorQueue);

descriptor::message_queue!(DropinQueue, |spec| {
    let names = NAMES
        .get()
        .ok_or_else(|| Failure::new("the drop-in is not loaded"))?;
    descriptor::make(*names, spec, "the drop-in's")
});

static NAMES: OnceLock<Names> = OnceLock::new();
static TYPED_NAMES: OnceLock<Result<TypedNames, Failure>> = OnceLock::new();

/// Loads the drop-in, by default the one that was built along with this program, and returns its path.
pub fn load(path: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = path.map_or_else(beside_program, |path| Ok(path.to_owned()))?;
    let library = Library::open(&path)?;
    let names = names(&library)?;
    // If the library was loaded before, `NAMES` keeps the functions of the first load. They are the same functions.
    NAMES.get_or_init(|| names);
    TYPED_NAMES.get_or_init(|| typed_names_of(&library));
    Ok(path.canonicalize()?)
}

/// Returns the drop-in's functions of `<sys/msg.h>`.
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
    // Programs of tests and examples are one directory below the library.
    let above = program
        .ancestors()
        .nth(2)
        .map(|above| above.join("libumsg_preload.so"));
    let found = [Some(beside), above]
        .into_iter()
        .flatten()
        .find(|path| path.exists());
    found.ok_or_else(|| {
        Failure::new(
            "libumsg_preload.so is not in the directory of this program: build the whole workspace",
        )
    })
}

fn names(library: &Library) -> Result<Names, Failure> {
    // SAFETY: each symbol is the function of that name in <mqueue.h>, with the type that this block gives to the function; function pointers and data
    // pointers have one representation on Linux.
    unsafe {
        Ok(Names {
            open: mem::transmute::<*mut c_void, Open>(library.symbol(c"mq_open")?),
            close: mem::transmute::<*mut c_void, Close>(library.symbol(c"mq_close")?),
            unlink: mem::transmute::<*mut c_void, Unlink>(library.symbol(c"mq_unlink")?),
            send: mem::transmute::<*mut c_void, Send>(library.symbol(c"mq_send")?),
            receive: mem::transmute::<*mut c_void, Receive>(library.symbol(c"mq_receive")?),
        })
    }
}

fn typed_names_of(library: &Library) -> Result<TypedNames, Failure> {
    // SAFETY: each symbol is the function of that name in <sys/msg.h>, with the type that this block gives to the function; function pointers and
    // data pointers have one representation on Linux.
    unsafe {
        Ok(TypedNames {
            get: mem::transmute::<*mut c_void, identifier::Get>(library.symbol(c"msgget")?),
            send: mem::transmute::<*mut c_void, identifier::Send>(library.symbol(c"msgsnd")?),
            receive: mem::transmute::<*mut c_void, identifier::Receive>(library.symbol(c"msgrcv")?),
            control: mem::transmute::<*mut c_void, identifier::Control>(library.symbol(c"msgctl")?),
        })
    }
}
