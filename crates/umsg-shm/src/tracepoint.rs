//! Static tracepoints (USDT) for bpftrace, perf, SystemTap and gdb.
//!
//! A tracepoint is one instruction that does nothing, and an entry in the section `.note.stapsdt`. The entry contains the name of the tracepoint and
//! the places of its arguments. The crate `probe` makes the instruction and the entry. docs/guide/see.md lists the tracepoints and their arguments.

/// Places the tracepoint `umsg:$name`.
#[macro_export]
#[doc(hidden)]
macro_rules! tracepoint {
    ($name:ident $(, $argument:expr)*) => {
        #[cfg(not(any(loom, miri)))]
        {
            $crate::probe::probe!(umsg, $name $(, $argument)*);
        }
    };
}
