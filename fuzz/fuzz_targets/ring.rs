#![no_main]

use std::sync::OnceLock;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static HOME: OnceLock<umsg_fuzz::Home> = OnceLock::new();
    umsg_fuzz::ring::run(HOME.get_or_init(umsg_fuzz::Home::new), data);
});
