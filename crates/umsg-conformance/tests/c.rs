//! Runs the conformance cases against the C library. `dlsym` looks up each function of `libumsg.so`.

use umsg_conformance::backend::Kind;
use umsg_conformance::library;

fn c() -> Kind {
    let library = library::c_path().unwrap_or_else(|why| panic!("{why}"));
    Kind::C(library.to_path_buf())
}

umsg_conformance::instantiate!(c());
