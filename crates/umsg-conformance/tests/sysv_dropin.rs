//! The cases of System V queues against the drop-in: each C function of `libumsg_preload.so`, taken by `dlsym`.

use umsg_conformance::backend::Kind;
use umsg_conformance::library;
use umsg_conformance::sysv::SystemV;

fn dropin() -> Kind<SystemV> {
    let library = library::path().unwrap_or_else(|why| panic!("{why}"));
    Kind::Dropin(library.to_path_buf())
}

umsg_conformance::instantiate_sysv!(dropin());
