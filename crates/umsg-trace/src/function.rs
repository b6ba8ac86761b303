//! The functions of libc that are traced.

/// Defines the functions with the numbers that identify them in a record.
macro_rules! functions {
    ($($variant:ident = $name:literal,)*) => {
        /// A function of libc on message queues.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the names are libc's")]
        pub enum Function {
            $($variant,)*
        }

        impl Function {
            /// All functions, in the order of their numbers.
            pub const ALL: &[Function] = &[$(Function::$variant,)*];

            /// Returns the name of the function in libc.
            pub fn name(self) -> &'static str {
                match self {
                    $(Function::$variant => $name,)*
                }
            }
        }
    };
}

functions! {
    MqOpen = "mq_open",
    MqClose = "mq_close",
    MqUnlink = "mq_unlink",
    MqSend = "mq_send",
    MqTimedSend = "mq_timedsend",
    MqReceive = "mq_receive",
    MqTimedReceive = "mq_timedreceive",
    MqNotify = "mq_notify",
    MqGetattr = "mq_getattr",
    MqSetattr = "mq_setattr",
    Msgget = "msgget",
    Msgsnd = "msgsnd",
    Msgrcv = "msgrcv",
    Msgctl = "msgctl",
}

impl Function {
    /// Returns the function that has this number in a record.
    pub fn of(number: u8) -> Option<Function> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the function that has this name in libc.
    pub fn named(name: &str) -> Option<Function> {
        Self::ALL.iter().copied().find(|it| it.name() == name)
    }

    /// Returns whether the function is one of System V queues.
    pub fn is_sysv(self) -> bool {
        self >= Function::Msgget
    }
}

#[cfg(test)]
mod tests {
    use super::Function;

    #[test]
    fn each_function_has_a_number_and_a_name_of_its_own() {
        for (number, &function) in Function::ALL.iter().enumerate() {
            assert_eq!(Function::of(number as u8), Some(function));
            assert_eq!(Function::named(function.name()), Some(function));
        }
        assert_eq!(Function::of(Function::ALL.len() as u8), None);
        assert_eq!(Function::named("mq_close2"), None);
    }
}
