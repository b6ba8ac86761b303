//! Pointers that a program hands in.
//!
//! The kernel answers a bad address with EFAULT. The drop-in can't ask the kernel about each pointer without a system
//! call, but what programs get wrong in practice (NULL, a small number taken for a pointer, an address of the
//! kernel's half) is seen at once. Other bad addresses end in SIGSEGV, as they do in all of libc.

/// Addresses below are never mapped (vm.mmap_min_addr is at least a page wherever it matters).
const LOWEST: isize = 4096;

/// Whether an address can't be one of user space.
#[inline(always)]
pub(crate) fn is_bad<T: ?Sized>(pointer: *const T) -> bool {
    // Addresses of the kernel's half are negative.
    (pointer.cast::<u8>().addr() as isize) < LOWEST
}

#[cfg(test)]
mod tests {
    use super::is_bad;

    #[test]
    fn null_small_numbers_and_kernel_addresses_are_bad() {
        assert!(is_bad(std::ptr::null::<u8>()));
        assert!(is_bad(std::ptr::without_provenance::<u8>(8)));
        assert!(is_bad(std::ptr::without_provenance::<u8>(usize::MAX)));
        assert!(!is_bad(&raw const LOCAL));
    }

    static LOCAL: u8 = 0;
}
