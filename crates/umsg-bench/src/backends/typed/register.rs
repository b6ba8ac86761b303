//! The kernel's System V queues outlive their creators. So the measuring process records each queue before its creation, in memory that it shares
//! with the supervisor. At the end, the supervisor removes the remaining queues, even if the measuring process was killed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::backends::Errno;
use crate::failure::Failure;
use crate::shared::SharedWords;

/// The maximum number of recorded queues at a time. The suites have up to 80.
const ENTRIES: usize = 256;

/// The first key of the benchmark: the letters `um` in its upper half, and a number in the lower half.
const FIRST_KEY: u32 = 0x756d_0000;

/// The keys of the recorded queues; 0 for an unused entry.
static REGISTER: OnceLock<SharedWords> = OnceLock::new();

/// Makes the register. Children that are forked later share the register.
pub fn prepare() -> Result<(), Failure> {
    let words = SharedWords::new(ENTRIES)?;
    REGISTER.get_or_init(|| words);
    Ok(())
}

/// Removes the kernel's queues that are still in the register.
pub fn sweep() {
    let Some(register) = REGISTER.get() else {
        return;
    };
    for index in 0..ENTRIES {
        let key = register.get(index);
        if key == 0 {
            continue;
        }
        // SAFETY: the call takes two numbers, and IPC_RMID accesses no memory of this process.
        unsafe {
            let id = libc::msgget(key as libc::key_t, 0);
            if id >= 0 {
                libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut());
            }
        }
        register.set(index, 0);
    }
}

/// The recorded key of a queue that is about to be made. The drop removes the record.
pub struct Entry {
    index: usize,
    key: libc::key_t,
}

impl Entry {
    /// Chooses a key that no queue has, and records the key.
    pub fn new() -> Result<Self, Failure> {
        let register = REGISTER
            .get()
            .ok_or_else(|| Failure::new("the register of the kernel's queues was not created"))?;
        let index = (0..ENTRIES)
            .find(|&index| register.get(index) == 0)
            .ok_or_else(|| Failure::new("the register of the kernel's queues is full"))?;
        let key = unused_key();
        register.set(index, key as u64);
        Ok(Self { index, key })
    }

    pub fn key(&self) -> libc::key_t {
        self.key
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(register) = REGISTER.get() {
            register.set(self.index, 0);
        }
    }
}

/// Returns a key without a queue. If another process takes the key first, the creation of the queue fails, and so does the measurement.
fn unused_key() -> libc::key_t {
    // Relaxed: each caller only needs a unique number.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % 0x1_0000;
        let key = (FIRST_KEY + number) as libc::key_t;
        // SAFETY: the call takes two numbers.
        if unsafe { libc::msgget(key, 0) } < 0 && Errno::last().0 == libc::ENOENT {
            return key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::typed::kernel::KernelQueue;
    use crate::backends::typed::{DEFAULT_BYTES, TypedQueue as _};

    /// One test checks everything, because there is only one register.
    #[test]
    fn a_queue_left_behind_is_removed_and_a_removed_one_leaves_nothing_behind() {
        prepare().unwrap();
        let left_behind = KernelQueue::make(DEFAULT_BYTES).unwrap();
        drop(KernelQueue::make(DEFAULT_BYTES).unwrap());
        let taken = || {
            let register = REGISTER.get().unwrap();
            (0..ENTRIES)
                .filter(|&index| register.get(index) != 0)
                .count()
        };
        assert_eq!(taken(), 1);
        sweep();
        assert_eq!(taken(), 0);
        assert_eq!(left_behind.try_send(1, 7).unwrap_err().0, libc::EINVAL);
    }
}
