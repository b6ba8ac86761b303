//! Link options of the drop-in.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=near.ld");
    // The library must never be unloaded: handlers of fork and of signals, and the tables of other libraries, have addresses in it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let directory = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rustc-cdylib-link-arg=-Wl,-T,{directory}/near.ld");
}
