//! The only switch between the real atomics and those of the model checker.
//!
//! All words of a segment have types of this module. Under `--cfg loom` these are loom's types. So the models in `model/tests` explore the
//! shipped code.
//!
//! There are three kinds of words. An *atomic* is also read without the lock of its side; each use explains its ordering. A *guarded* word is
//! accessed only under its lock, or by the single owner that the protocol names. To the machine, a guarded word is a relaxed atomic, because a
//! hostile peer may write it at any time, and this write must not be undefined behaviour. To loom, a guarded word is plain memory, so loom reports a
//! missing barrier as a race. A *loose* word is written like a guarded word, and a thread may also read it without proof that the thread owns the
//! word. This thread uses the value only if a later compare-and-swap proves that the thread did own the word. To loom, a loose word is atomic. With
//! `LOOM_LOCATION=1`, loom reports the place of a race on a guarded word.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A futex word: 32 bits, or the low half of 64.
pub trait Futex {
    /// Returns the address of the 32 bits that the kernel reads. This process accesses the whole word, so both halves of 64 bits change together.
    #[cfg(not(loom))]
    fn address(&self) -> *mut u32;

    /// Returns the reference by which the model's kernel identifies the word.
    #[cfg(loom)]
    fn named(&self) -> crate::model::futex::Named;
}

#[cfg(not(loom))]
impl Futex for AtomicU32 {
    #[inline(always)]
    fn address(&self) -> *mut u32 {
        self.as_ptr()
    }
}

#[cfg(not(loom))]
impl Futex for AtomicU64 {
    #[inline(always)]
    fn address(&self) -> *mut u32 {
        const { assert!(cfg!(target_endian = "little"), "the low half is the first") };
        self.as_ptr().cast()
    }
}

/// Acts as a full barrier if the call directly follows a locked read-modify-write instruction.
///
/// On x86-64, the locked instruction is itself the barrier, so a compiler fence is enough. On aarch64 an acquire-release instruction is not a full
/// barrier, so the function has a real fence. Loom models the weaker machine, and has the fence, too.
#[inline(always)]
pub fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    fence(Ordering::SeqCst);
}

/// Tells the core that this loop is a spin-wait. Under loom, lets another thread run.
#[inline(always)]
pub fn spin_hint() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

macro_rules! loose {
    ($(#[$doc:meta])* $name:ident, $value:ty, $atomic:ty) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Default)]
        pub struct $name($atomic);

        impl $name {
            /// Returns the value. Relaxed: the lock that guards the word orders the access, or the caller discards the value.
            #[inline(always)]
            pub fn get(&self) -> $value {
                self.0.load(Ordering::Relaxed)
            }

            /// Stores the value with a release. The release serves a repair after the death of this thread, not other threads: the stores of a killed
            /// thread must be a prefix of the stores of its program. The compiler does not move a release store up. A release costs nothing on
            /// x86-64.
            #[inline(always)]
            pub fn set(&self, value: $value) {
                self.0.store(value, Ordering::Release);
            }
        }
    };
}

macro_rules! guarded {
    ($(#[$doc:meta])* $name:ident, $value:ty, $atomic:ty) => {
        #[cfg(not(loom))]
        loose!($(#[$doc])* $name, $value, $atomic);

        $(#[$doc])*
        #[cfg(loom)]
        #[derive(Default)]
        pub struct $name(loom::cell::UnsafeCell<$value>);

        #[cfg(loom)]
        impl $name {
            #[track_caller]
            pub fn get(&self) -> $value {
                // SAFETY: loom checks that no write is concurrent with this read and fails the model otherwise.
                self.0.with(|value| unsafe { *value })
            }

            #[track_caller]
            pub fn set(&self, value: $value) {
                // SAFETY: loom checks that no access is concurrent with this write and fails the model otherwise.
                self.0.with_mut(|place| unsafe { *place = value });
            }
        }

        // SAFETY: the protocol gives the word to one thread at a time; loom verifies exactly that.
        #[cfg(loom)]
        unsafe impl Sync for $name {}
        // SAFETY: as for `Sync`.
        #[cfg(loom)]
        unsafe impl Send for $name {}
    };
}

guarded!(
    /// A 32-bit word that only the owner of its lock accesses.
    Guarded32, u32, std::sync::atomic::AtomicU32
);
guarded!(
    /// A 64-bit word that only the owner of its lock accesses.
    Guarded64, u64, std::sync::atomic::AtomicU64
);

loose!(
    /// A 32-bit word that only the owner of its lock writes. Other threads may read it, and check the value.
    Loose32, u32, AtomicU32
);
loose!(
    /// A 64-bit word that only the owner of its lock writes. Other threads may read it, and check the value.
    Loose64, u64, AtomicU64
);

/// Defines a view of a structure's words by name. The structure keeps its fields private, and changes them by named steps; a
/// diagnosis and tests that forge words use the view.
macro_rules! words {
    ($(#[$doc:meta])* $view:ident of $owner:ty {
        $($word:ty: $($name:ident $(= $($field:ident).+)?),+;)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $view<'a> {
            $($(pub $name: &'a $word,)+)+
        }

        impl $owner {
            /// Returns the words by name.
            pub fn words(&self) -> $view<'_> {
                $view {
                    $($($name: words!(@ self $name $(= $($field).+)?),)+)+
                }
            }
        }
    };
    (@ $owner:ident $name:ident) => { &$owner.$name };
    (@ $owner:ident $name:ident = $($field:ident).+) => { &$owner.$($field).+ };
}

pub(crate) use words;
