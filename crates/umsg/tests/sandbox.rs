//! Sandboxes: what a queue does where the kernel refuses a system call.

mod support;

#[path = "sandbox/robust.rs"]
mod robust;
