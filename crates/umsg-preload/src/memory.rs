//! The library's own allocator, so that a queue can be opened and closed even when the program's malloc must not be called.
//!
//! close is async-signal-safe, and a handler may close or unlink a queue. The handler may have interrupted the program's malloc, or that malloc may
//! map its memory through the drop-in's mmap. So this library allocates from its own memory, without a lock, and only little: paths, the names of
//! queues. There is one stack of free blocks for each power of two. A freed block returns to its stack. A block that was never used comes from a
//! chunk, which all sizes share. The first chunk is a part of the library. So a process that allocates little touches few pages, and maps none. Only
//! large blocks, which are mappings, return to the system.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

const SMALLEST: usize = 32;
const LARGEST: usize = 32 * 1024;
const CLASSES: usize = (LARGEST / SMALLEST).trailing_zeros() as usize + 1;
/// The length of a chunk, in bytes.
const CHUNK: usize = 16 * 1024;
/// The size of the largest block that comes from the chunk of small blocks. Larger blocks do not share pages with small blocks.
const SMALL: usize = 1024;

/// Blocks that are mappings start at a page.
const PAGE: usize = 4096;

/// The library's allocator; see the module.
pub(crate) struct Memory {
    free: [Stack; CLASSES],
    /// The unused ends of the present chunks: one chunk for small blocks, and one for larger blocks.
    fresh: [Fresh; 2],
    /// The first chunk of small blocks, which is a part of the library instead of a mapping.
    first: Option<&'static FirstChunk>,
}

#[cfg_attr(not(test), global_allocator)]
#[cfg_attr(
    test,
    expect(dead_code, reason = "the tests have allocators of their own")
)]
static MEMORY: Memory = Memory {
    first: Some(&FIRST),
    ..Memory::new()
};

static FIRST: FirstChunk = FirstChunk(UnsafeCell::new([0; CHUNK]));

/// The memory of the first chunk. It begins in a page that the library's own words share; see near.ld.
#[repr(C, align(64))]
struct FirstChunk(UnsafeCell<[u8; CHUNK]>);

// SAFETY: the bytes are reached through blocks only, each of which has one user.
unsafe impl Sync for FirstChunk {}

impl Memory {
    pub(crate) const fn new() -> Memory {
        Memory {
            free: [const { Stack(AtomicU64::new(0)) }; CLASSES],
            fresh: [const { Fresh(AtomicU64::new(0)) }; 2],
            first: None,
        }
    }

    fn take(&self, class: usize) -> *mut u8 {
        self.free[class].pop().unwrap_or_else(|| self.begin(class))
    }

    /// Returns a block that was never used.
    #[cold]
    fn begin(&self, class: usize) -> *mut u8 {
        let size = SMALLEST << class;
        let [small, large] = &self.fresh;
        let block = match size > SMALL {
            true => large.take(size),
            false => {
                self.first.iter().for_each(|first| small.begin_with(first));
                small.take(size)
            }
        };
        block.unwrap_or(std::ptr::null_mut())
    }
}

/// The unused end of a chunk: its address in the lower 48 bits, and its length in the upper bits. Each block advances the address, and chunks are
/// never unmapped, so the word never has the same value twice.
struct Fresh(AtomicU64);

const LENGTH: u32 = 48;

impl Fresh {
    fn word(address: u64, length: u64) -> u64 {
        address | length << LENGTH
    }

    /// Makes `chunk` the first chunk, unless there is already a chunk.
    fn begin_with(&self, chunk: &'static FirstChunk) {
        let word = Fresh::word(chunk.0.get().expose_provenance() as u64, CHUNK as u64);
        // Relaxed: the word publishes no other data. A word with an address is never 0 again, so the chunk is used only once.
        let _ = self
            .0
            .compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes a block of `size` bytes, a power of two, aligned to its size or a page.
    fn take(&self, size: usize) -> Option<*mut u8> {
        let (align, size) = (size.min(PAGE) as u64, size as u64);
        // Relaxed, for all accesses: the word publishes no other data. A chunk contains zeroes, even if another thread has mapped it.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let (address, length) = (word & ((1 << LENGTH) - 1), word >> LENGTH);
            let block = address.next_multiple_of(align);
            let Some(rest) = length.checked_sub(block - address + size) else {
                return self.take_of_new_chunk(word, size);
            };
            let new = Fresh::word(block + size, rest);
            match self
                .0
                .compare_exchange_weak(word, new, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some(std::ptr::with_exposed_provenance_mut(block as usize)),
                Err(now) => word = now,
            }
        }
    }

    /// Maps a chunk, and takes its first block. The rest of the new chunk replaces the rest of the old chunk, which is too short. If another thread
    /// has replaced the old chunk first, the rest of this chunk stays unused. An unused rest costs addresses, but no memory.
    fn take_of_new_chunk(&self, old: u64, size: u64) -> Option<*mut u8> {
        let bytes = CHUNK.max(size as usize);
        let chunk = map(bytes)?;
        let rest = Fresh::word(chunk.expose_provenance() as u64 + size, bytes as u64 - size);
        let _ = self
            .0
            .compare_exchange(old, rest, Ordering::Relaxed, Ordering::Relaxed);
        Some(chunk)
    }
}

/// Returns the index of the stack that has blocks for a layout. `None` if the block needs its own mapping. A block is aligned to its size, up to a
/// page.
fn class_of(layout: Layout) -> Option<usize> {
    let size = layout
        .size()
        .max(layout.align())
        .max(SMALLEST)
        .next_power_of_two();
    (size <= LARGEST).then(|| (size / SMALLEST).trailing_zeros() as usize)
}

fn map(bytes: usize) -> Option<*mut u8> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the call requests no address, so it replaces no existing mapping.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE)
    };
    mapped.ok().map(|address| address.cast())
}

// SAFETY: the stack's compare-and-swap gives a block to only one caller at a time. The block is a mapping, or `class_of` makes sure that it is
// large enough and aligned. It exists until it is freed. No function here unwinds.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of(layout) {
            Some(class) => self.take(class),
            None if layout.align() > PAGE => std::ptr::null_mut(),
            None => map(layout.size()).unwrap_or(std::ptr::null_mut()),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class_of(layout) {
            // SAFETY: the caller guarantees that the block came from `alloc` with this layout, and is no longer used.
            Some(class) => unsafe { self.free[class].push(block) },
            // SAFETY: the caller guarantees that the block came from `alloc` with this layout, and is no longer used. A block without a class is a
            // whole mapping.
            None => drop(unsafe { rustix::mm::munmap(block.cast(), layout.size()) }),
        }
    }
}

/// A stack of free blocks, linked through their first words. The stack's word has the address of the first block. In the unused bits of that address,
/// which is aligned to 32, it has a number that each operation changes. The number shows whether another thread took the first block and put it back
/// meanwhile.
struct Stack(AtomicU64);

const ADDRESS: u64 = (1 << 48) - SMALLEST as u64;

impl Stack {
    fn with_next_number(head: u64, address: u64) -> u64 {
        // The number's lower five bits are the lowest bits of the word. Its upper sixteen bits are the highest bits of the word.
        let number = (head >> 48 << 5 | head & 31).wrapping_add(1);
        number >> 5 << 48 | address | number & 31
    }

    fn link_of(address: u64) -> *const AtomicU64 {
        std::ptr::with_exposed_provenance(address as usize)
    }

    /// # Safety
    /// The block is at least [`SMALLEST`] bytes, aligned to that number, and unused.
    unsafe fn push(&self, block: *mut u8) {
        let address = block.expose_provenance() as u64;
        // SAFETY: by this function's contract. Other threads may read the link, as `pop` does.
        let link = unsafe { &*block.cast::<AtomicU64>() };
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            link.store(head & ADDRESS, Ordering::Relaxed);
            let new = Stack::with_next_number(head, address);
            // Release: publishes the writes of the block's last user, and the link.
            match self
                .0
                .compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop(&self) -> Option<*mut u8> {
        // Acquire: pairs with the release in `push`.
        let mut head = self.0.load(Ordering::Acquire);
        loop {
            let first = head & ADDRESS;
            if first == 0 {
                return None;
            }
            // SAFETY: blocks are never unmapped. Another thread may have taken this block and may be writing to it. Then the link is invalid, but
            // the number has changed, so the exchange fails.
            let next = unsafe { (*Stack::link_of(first)).load(Ordering::Relaxed) } & ADDRESS;
            let new = Stack::with_next_number(head, next);
            match self
                .0
                .compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some(std::ptr::with_exposed_provenance_mut(first as usize)),
                Err(now) => head = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn blocks_are_aligned_and_apart() {
        let memory = Memory::new();
        let layouts = [
            (1, 1),
            (32, 8),
            (33, 64),
            (200, 128),
            (5000, 4096),
            (100_000, 8),
            (40, 2048),
        ];
        let mut blocks = Vec::new();
        for (number, (size, align)) in (0_u8..).zip(layouts.repeat(20)) {
            // SAFETY: the size is not zero, and the block is written within its size.
            let block = unsafe {
                let block = memory.alloc(layout(size, align));
                block.write_bytes(number, size);
                block
            };
            assert_eq!(block.addr() % align, 0);
            blocks.push((block, size, align, number));
        }
        for (block, size, align, number) in blocks {
            // SAFETY: the block was allocated above with this layout, and is initialised.
            unsafe {
                assert!(
                    std::slice::from_raw_parts(block, size)
                        .iter()
                        .all(|&byte| byte == number)
                );
                memory.dealloc(block, layout(size, align));
            }
        }
    }

    #[test]
    fn a_block_given_back_is_used_again() {
        let memory = Memory::new();
        // SAFETY: each block is given back with its layout.
        unsafe {
            let first = memory.alloc(layout(100, 8));
            memory.dealloc(first, layout(100, 8));
            let second = memory.alloc(layout(128, 8));
            assert_eq!(first, second);
            memory.dealloc(second, layout(128, 8));
        }
    }

    #[test]
    fn threads_never_get_the_same_block() {
        static SHARED: Memory = Memory::new();
        let work = |number: usize| {
            for round in 0..20_000 {
                let layout = layout(16 + round % 100, 8);
                // SAFETY: the block has a size above zero, is written only within this size, and is freed with its layout.
                unsafe {
                    let block = SHARED.alloc(layout).cast::<[usize; 2]>();
                    block.write([number, round]);
                    std::hint::spin_loop();
                    assert_eq!(block.read(), [number, round]);
                    SHARED.dealloc(block.cast(), layout);
                }
            }
        };
        std::thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || work(number));
            }
        });
    }
}
