//! System V queues: the backends that answer their calls, the cases, and the comparison with the kernel.
//!
//! This module has the same structure as the code for POSIX queues, and uses the same [`runner`](crate::runner) and [`compare`](crate::compare).
//!
//! The kernel's queues belong to an IPC namespace, not to a process. If permitted, each case and each history has a private namespace. The kernel
//! removes the queues with the namespace, and the totals include no queues of other processes. Without permission, the case or history removes its
//! queues itself, and skips the questions that need a private namespace.

pub mod backend;
pub mod cases;
pub mod compare;
pub mod site;

use std::path::Path;

use crate::backend::{Family, Kind};
use crate::sys;
use backend::{Backend, Called, Flaw, Flawed, Native};
use site::Site;

/// System V message queues: `msgget`, `msgsnd`, `msgrcv`, `msgctl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemV;

impl Family for SystemV {
    type Flaw = Flaw;
    type Backend = dyn Backend;
    type Site = Site;

    fn make(kind: &Kind<SystemV>, directory: &Path) -> Result<Box<dyn Backend>, String> {
        Ok(match kind {
            Kind::Kernel => Box::new(Called::kernel()),
            Kind::Dropin(library) => Box::new(Called::dropin(library, directory)?),
            Kind::Preloaded(_) => Box::new(Called::preloaded(directory)?),
            Kind::Native => Box::new(Native::new(directory)?),
            Kind::C(library) => Box::new(Called::c(library, directory)?),
            Kind::Flawed(flaw) => Box::new(Flawed::new(Called::kernel(), *flaw)),
        })
    }

    fn site(kind: &Kind<SystemV>, backend: Box<dyn Backend>, _: &Path) -> Site {
        let alone = kind.needs_directory() || sys::enter_private_ipc_namespace().is_some();
        Site::new(backend, alone)
    }

    fn remove_from_kernel(notice: &[u8]) {
        if let Ok(id) = notice.try_into().map(i32::from_le_bytes) {
            // The case may have removed the queue already, so an error is ignored.
            let _ = Called::kernel().remove(id);
        }
    }
}
