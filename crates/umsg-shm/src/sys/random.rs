//! Random numbers, and numbers that look random.

/// Returns an unpredictable number, not 0.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    // If the call fails, a predictable number is used: the mode of the file also protects the queue.
    let fallback = super::clock::realtime() ^ u64::from(std::process::id()).rotate_left(40);
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes).max(1),
        _ => fallback.max(1),
    }
}

/// Mixes the bits of a word: each bit of the result depends on each bit of `word` (the finalizer of splitmix64).
pub const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
