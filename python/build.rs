//! Sets the cfgs that describe the build of the target Python, such as `Py_GIL_DISABLED`.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
