//! Runs the conformance cases against the drop-in. `dlsym` looks up each C function of `libumsg_preload.so`.

use umsg_conformance::backend::Kind;
use umsg_conformance::library;

fn dropin() -> Kind {
    let library = library::path().unwrap_or_else(|why| panic!("{why}"));
    Kind::Dropin(library.to_path_buf())
}

umsg_conformance::instantiate!(dropin());
