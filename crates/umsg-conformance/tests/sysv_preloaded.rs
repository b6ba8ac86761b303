//! The cases of System V queues in programs that were started with the drop-in preloaded and call the plain C names.

use umsg_conformance::backend::Kind;
use umsg_conformance::library;
use umsg_conformance::sysv::SystemV;

fn preloaded() -> Kind<SystemV> {
    let library = library::path().unwrap_or_else(|why| panic!("{why}"));
    Kind::Preloaded(library.to_path_buf())
}

umsg_conformance::instantiate_sysv!(preloaded());
