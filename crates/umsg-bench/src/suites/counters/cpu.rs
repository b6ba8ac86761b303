//! One cache line for each CPU: the kernel has kept its totals in this way since 2022.

use super::ways::{Lines, Way};
use crate::failure::Failure;

/// One cache line for each CPU. A thread asks for its CPU and adds to the line of this CPU. The scheduler may move the thread before the addition, so
/// the addition is atomic.
pub struct PerCpuAtomic(Lines);

impl Way for PerCpuAtomic {
    fn make(_threads: usize) -> Result<Self, Failure> {
        Lines::new(cpus()).map(Self)
    }

    #[inline]
    fn add(&self, _thread: usize, messages: i64, bytes: i64) {
        // SAFETY: the call only returns a number. A kernel without this call returns -1.
        let cpu = unsafe { libc::sched_getcpu() }.max(0);
        self.0.add_atomically(cpu as usize, messages, bytes);
    }

    fn read(&self) -> (i64, i64) {
        self.0.sum()
    }
}

/// Returns the number of CPUs that the machine may have.
fn cpus() -> usize {
    // SAFETY: the call only returns a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).unwrap_or(1).max(1)
}

#[cfg(not(target_arch = "x86_64"))]
pub use elsewhere::PerCpu;
#[cfg(target_arch = "x86_64")]
pub use restartable::PerCpu;

/// The method by which the kernel keeps its own counters, done with a restartable sequence (rseq(2)): the thread finds its CPU and adds with one
/// plain instruction. If the thread is moved or interrupted before this instruction, the sequence starts over.
#[cfg(target_arch = "x86_64")]
mod restartable {
    use std::arch::asm;
    use std::mem;

    use super::{Lines, Way};
    use crate::failure::Failure;

    /// The size of a line is 2 to the power of this number, in bytes.
    const LINE_SHIFT: u32 = 7;
    const _: () = assert!(super::super::ways::WORDS * 8 == 1 << LINE_SHIFT);

    /// One cache line for each CPU, and the offset from a thread's thread pointer to its rseq area, which glibc has set up.
    pub struct PerCpu {
        lines: Lines,
        area: isize,
    }

    impl Way for PerCpu {
        fn make(_threads: usize) -> Result<Self, Failure> {
            Ok(Self {
                lines: Lines::new(super::cpus())?,
                area: area()?,
            })
        }

        #[inline]
        fn add(&self, _thread: usize, messages: i64, bytes: i64) {
            let first = self.lines.start();
            // SAFETY: `make` has found the area, and there is a line for every CPU with two words.
            unsafe {
                add(self.area, first.cast_mut().cast(), messages);
                add(self.area, first.add(1).cast_mut().cast(), bytes);
            }
        }

        fn read(&self) -> (i64, i64) {
            self.lines.sum()
        }
    }

    /// Adds to the word of the CPU that the thread is on.
    ///
    /// # Safety
    /// The threads of this process have a registered rseq area at the offset `area` from the thread pointer. `first` is the word of CPU 0, and the
    /// words of the other CPUs follow at intervals of a cache line.
    #[inline]
    unsafe fn add(area: isize, first: *mut i64, value: i64) {
        // SAFETY: the area belongs to this thread; its fields cpu_id and rseq_cs lie 4 and 8 bytes into it. The descriptor says that the sequence
        // is from label 4 to label 5, and that a thread that is moved or interrupted in between continues at label 6. The four bytes before label 6
        // are the signature that glibc has registered. Only the last instruction of the sequence has an effect. The word belongs to this value, and
        // is only accessed in this way by threads on its CPU, or when no thread adds.
        unsafe {
            asm!(
                "2:",
                "lea {scratch}, [rip + 3f]",
                "mov qword ptr fs:[{area} + 8], {scratch}",
                "4:",
                "mov {scratch:e}, dword ptr fs:[{area} + 4]",
                "shl {scratch}, {line_shift}",
                "add qword ptr [{first} + {scratch}], {value}",
                "5:",
                ".pushsection __rseq_cs, \"aw\"",
                ".balign 32",
                "3:",
                ".long 0, 0",
                ".quad 4b, 5b - 4b, 6f",
                ".popsection",
                ".pushsection __rseq_failure, \"ax\"",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "6:",
                "jmp 2b",
                ".popsection",
                area = in(reg) area,
                first = in(reg) first,
                value = in(reg) value,
                scratch = out(reg) _,
                line_shift = const LINE_SHIFT,
                options(nostack),
            );
        }
    }

    /// Returns the offset from the thread pointer to the rseq area that glibc (since 2.35) registers for each thread.
    fn area() -> Result<isize, Failure> {
        let symbol = |name: &std::ffi::CStr| {
            // SAFETY: the name ends with zero.
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
        };
        let (offset, size) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size"));
        if offset.is_null() || size.is_null() {
            return Err(Failure::new("this libc registers no rseq area"));
        }
        // SAFETY: glibc documents both symbols as constants of these types.
        let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<u32>()) };
        if size == 0 {
            return Err(Failure::new("the kernel has no rseq, or it is turned off"));
        }
        const { assert!(mem::size_of::<isize>() == 8) };
        Ok(offset)
    }
}

/// On processors other than x86-64, this method is missing.
#[cfg(not(target_arch = "x86_64"))]
mod elsewhere {
    use super::Way;
    use crate::failure::Failure;

    pub struct PerCpu;

    impl Way for PerCpu {
        fn make(_threads: usize) -> Result<Self, Failure> {
            Err(Failure::new(
                "the restartable sequence is written for x86-64 only",
            ))
        }

        fn add(&self, _thread: usize, _messages: i64, _bytes: i64) {}

        fn read(&self) -> (i64, i64) {
            (0, 0)
        }
    }
}
