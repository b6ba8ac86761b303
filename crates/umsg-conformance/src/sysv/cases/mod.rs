//! The cases of System V queues. Each file covers one subject, and the name of each case is a sentence.
//!
//! Each case is a function of a [`Site`](crate::sysv::site::Site) that panics if the behaviour differs from the case's name.

/// Does the same as [`subject!`], for the calls of System V queues.
macro_rules! subject_of_sysv {
    ($dollar:tt $subject:ident, $tests:ident: $($case:ident)*) => {
        subject! { $dollar $subject, $tests, $crate::sysv::SystemV: $($case)* }
    };
}

/// Makes a test of every case of System V queues, on the backend of this [`Kind`](crate::backend::Kind).
#[macro_export]
macro_rules! instantiate_sysv {
    ($kind:expr) => {
        $crate::instantiate! { $kind, $crate::sysv::cases =>
            keys_and_identifiers keys_and_identifiers_cases
            permissions permissions_cases
            messages messages_cases
            types types_cases
            copies copies_cases
            errors_and_their_order sysv_errors_and_their_order_cases
            room room_cases
            waiters waiters_cases
            control control_cases
            changes changes_cases
            totals totals_cases
            signals_and_threads signals_and_threads_cases
        }
    };
}

pub mod changes;
pub mod control;
pub mod copies;
pub mod errors_and_their_order;
pub mod keys_and_identifiers;
pub mod messages;
pub mod permissions;
pub mod room;
pub mod signals_and_threads;
pub mod totals;
pub mod types;
pub mod waiters;
