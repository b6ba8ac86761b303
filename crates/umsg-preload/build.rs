//! Link options of the drop-in.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Handlers of fork and of signals, and the addresses in other libraries' tables, lead into the library until the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
