//! Runs the System V cases against the C library: `umsg_msg*` of `libumsg.so`.

use umsg_conformance::backend::Kind;
use umsg_conformance::library;
use umsg_conformance::sysv::SystemV;

fn c() -> Kind<SystemV> {
    let library = library::c_path().unwrap_or_else(|why| panic!("{why}"));
    Kind::C(library.to_path_buf())
}

umsg_conformance::instantiate_sysv!(c());
