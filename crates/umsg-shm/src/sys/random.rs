//! Random numbers.

/// Returns an unpredictable number, not 0.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    // If the call fails, a predictable number must do: the file's mode also protects it.
    let fallback = super::clock::realtime() ^ u64::from(std::process::id()).rotate_left(40);
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes).max(1),
        _ => fallback.max(1),
    }
}
