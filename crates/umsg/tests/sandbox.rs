//! Sandboxes: the behaviour of a queue where the kernel refuses a system call.

mod support;

#[path = "sandbox/calls.rs"]
mod calls;
#[path = "sandbox/changing.rs"]
mod changing;
#[path = "sandbox/containers.rs"]
mod containers;
#[path = "sandbox/expected.rs"]
mod expected;
#[path = "sandbox/listing.rs"]
mod listing;
#[path = "sandbox/matrix.rs"]
mod matrix;
#[path = "sandbox/mounts.rs"]
mod mounts;
#[path = "sandbox/paths.rs"]
mod paths;
#[path = "sandbox/profiles.rs"]
mod profiles;
#[path = "sandbox/robust.rs"]
mod robust;
#[path = "sandbox/trace.rs"]
mod trace;
#[path = "sandbox/unwiped.rs"]
mod unwiped;
