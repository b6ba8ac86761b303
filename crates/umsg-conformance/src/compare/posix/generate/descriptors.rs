//! Random histories: calls that duplicate a queue's descriptor, or that get or set its attributes or flags, such as `dup2`, `mq_getattr` and `fcntl`.

use super::{Call, Generator};

impl Generator {
    /// Returns a random call on a queue's descriptor, such as `dup2` or `fcntl`.
    pub(super) fn descriptor(&mut self) -> Call {
        let (slot, to) = (self.slot(), self.slot());
        let nonblock = if self.blocks() { 0 } else { libc::O_NONBLOCK };
        let many = if self.bounds.descriptors { 24 } else { 7 };
        match self.random.below(many) {
            0..4 => Call::GetAttributes { slot },
            4 => Call::SetAttributes {
                slot,
                flags: i64::from(nonblock),
            },
            5 | 6 => Call::Dup { slot, to },
            7 => {
                let wrong = [
                    libc::O_APPEND,
                    libc::O_RDWR,
                    -1,
                    libc::O_NONBLOCK | libc::O_CREAT,
                    libc::O_CLOEXEC,
                ];
                Call::SetAttributes {
                    slot,
                    flags: i64::from(self.random.pick(&wrong)),
                }
            }
            8 => Call::Dup2 { slot, onto: to },
            9 => Call::DupAbove {
                slot,
                to,
                close_on_exec: self.random.percent(50),
            },
            10 => Call::Fcntl {
                slot,
                command: libc::F_SETFL,
                argument: nonblock,
            },
            11 => Call::Fcntl {
                slot,
                command: libc::F_GETFL,
                argument: 0,
            },
            12 => Call::Fcntl {
                slot,
                command: libc::F_GETFD,
                argument: 0,
            },
            13 => Call::Fcntl {
                slot,
                command: libc::F_SETFD,
                argument: self.random.pick(&[0, libc::FD_CLOEXEC]),
            },
            14..17 => Call::Status { slot },
            17 | 18 if self.character.open_to_all => Call::Status { slot },
            17 => Call::ChangeMode {
                slot,
                mode: self.random.pick(&[0o600, 0o666, 0o640, 0, 0o444, 0o1777]),
            },
            18 if self.bounds.users => {
                let (uid, gid) =
                    self.random
                        .pick(&[(0, 0), (65534, 65534), (65533, 0), (u32::MAX, u32::MAX)]);
                Call::ChangeOwner { slot, uid, gid }
            }
            18..20 => Call::Read {
                slot,
                length: self.random.pick(&[1, 10, 100]),
            },
            20 => Call::Write { slot },
            21 => {
                let whence = self.random.pick(&[
                    libc::SEEK_SET,
                    libc::SEEK_SET,
                    libc::SEEK_CUR,
                    libc::SEEK_END,
                    9,
                ]);
                Call::Seek {
                    slot,
                    offset: self.random.pick(&[0, 0, 5, -5, 100]),
                    whence,
                }
            }
            22 => Call::Sync { slot },
            _ => Call::Map { slot },
        }
    }
}
