//! The conformance cases in programs that were started with the drop-in preloaded and call the plain C names.

use umsg_conformance::backend::Kind;
use umsg_conformance::library;

fn preloaded() -> Kind {
    let library = library::path().unwrap_or_else(|why| panic!("{why}"));
    Kind::Preloaded(library.to_path_buf())
}

umsg_conformance::instantiate!(preloaded());
