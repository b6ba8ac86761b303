//! The conformance cases. Each file covers one subject, and the name of each case is a sentence.
//!
//! Each case is a function of a [`Site`](crate::site::Site) that panics if the behaviour differs from the case's name. Each case was checked against
//! the kernel first, and every run of the tests checks it again.

/// Lists the cases of a file and makes the macro that turns them into tests.
///
/// The list is the file's table of contents. The compiler reports a case that is missing in the list as dead code. The cases use the calls of a
/// [`Family`](crate::backend::Family), by default POSIX.
macro_rules! subject {
    ($dollar:tt $subject:ident, $tests:ident: $($case:ident)*) => {
        subject! { $dollar $subject, $tests, $crate::backend::Posix: $($case)* }
    };
    ($dollar:tt $subject:ident, $tests:ident, $family:ty: $($case:ident)*) => {
        /// The cases, for [`instantiate!`](crate::instantiate).
        #[allow(missing_docs)]
        pub mod listed {
            $(pub fn $case(site: &<$family as $crate::backend::Family>::Site) {
                super::$case(site)
            })*
        }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! $tests {
            ($dollar kind:expr, [$dollar($dollar folder:tt)*]) => {
                $(#[test]
                fn $case() {
                    let helper = std::path::Path::new(env!("CARGO_BIN_EXE_mq_probe"));
                    let kind: $crate::backend::Kind<$family> = $dollar kind;
                    let title = concat!(stringify!($subject), "::", stringify!($case));
                    $crate::runner::run(&kind, helper, title, $dollar($dollar folder)*::$subject::listed::$case);
                })*
            };
        }
    };
}

/// Makes a test of every case, on the backend of this [`Kind`](crate::backend::Kind).
#[macro_export]
macro_rules! instantiate {
    ($kind:expr) => {
        $crate::instantiate! { $kind, $crate::cases =>
            names names_cases
            open_and_modes open_and_modes_cases
            send_and_receive send_and_receive_cases
            errors_and_their_order errors_and_their_order_cases
            timeouts timeouts_cases
            priorities priorities_cases
            unlink_and_lifetime unlink_and_lifetime_cases
            descriptor descriptor_cases
            polling polling_cases
            getattr_setattr getattr_setattr_cases
            blocking_and_waiters blocking_and_waiters_cases
            signals_and_waiters signals_and_waiters_cases
            notification notification_cases
            fork fork_cases
        }
    };
    ($kind:expr, $root:tt::$($folder:ident)::* => $($subject:ident $tests:ident)*) => {
        $crate::instantiate! { @ $kind, [$root::$($folder)::*] => $($subject $tests)* }
    };
    (@ $kind:expr, $folder:tt => $($subject:ident $tests:ident)*) => {
        $(mod $subject {
            use super::*;
            $crate::$tests!($kind, $folder);
        })*
    };
}

pub mod blocking_and_waiters;
pub mod descriptor;
pub mod errors_and_their_order;
pub mod fork;
pub mod getattr_setattr;
pub mod names;
pub mod notification;
pub mod open_and_modes;
pub mod polling;
pub mod priorities;
pub mod send_and_receive;
pub mod signals_and_waiters;
pub mod timeouts;
pub mod unlink_and_lifetime;
