//! The statistics of queues of both kinds.

/// Defines the type `Statistics` of an API: the events that all kinds of queues have, the `events` of this API, and its counts of `repairs`.
macro_rules! statistics {
    (
        events { $($(#[$doc:meta])* $event:ident: $name:ident,)* }
        repairs { $($(#[$repair_doc:meta])* $repair:ident,)+ }
    ) => {
        /// Counts of events since the creation of the queue. The last event of a killed process may be missing.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Statistics {
            /// Number of sends that found no room and waited.
            pub sends_blocked: u64,
            /// Number of receives that found no wanted message and waited.
            pub receives_blocked: u64,
            /// Number of messages that were handed off to a waiting receiver.
            pub handed_over: u64,
            /// Number of waits that ended while the thread was spinning.
            pub spins_paid: u64,
            /// Number of waits that ended with a time-out or a signal.
            pub given_up: u64,
            /// Number of waiting threads whose death was noticed.
            pub waiters_died: u64,
            /// Number of leased messages that came back to the queue.
            pub returned: u64,
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$repair_doc])* pub $repair: u32,)+
        }

        impl Statistics {
            /// Sums the counters of all processors.
            fn of(counters: &umsg_shm::counters::Counters, $($repair: u32),+) -> Statistics {
                use umsg_shm::counters::Event;
                let sum = |event| counters.sum(event);
                Statistics {
                    sends_blocked: sum(Event::SendBlocked),
                    receives_blocked: sum(Event::ReceiveBlocked),
                    handed_over: sum(Event::HandedOver),
                    spins_paid: sum(Event::SpinPaid),
                    given_up: sum(Event::GivenUp),
                    waiters_died: sum(Event::WaiterDied),
                    returned: sum(Event::Returned),
                    $($name: sum(Event::$event),)*
                    $($repair),+
                }
            }
        }
    };
}

pub(crate) use statistics;
