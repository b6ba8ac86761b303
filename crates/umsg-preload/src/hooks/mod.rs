//! The exported functions: libc's names, a subject a file.
//!
//! Each first asks whether the descriptor is ours, which for those that concern any file costs a look at an array,
//! and hands on what is not to the next library. fcntl and mq_open are variadic in C; on x86-64 and aarch64 Linux,
//! variadic arguments travel in the registers of named ones, so a function with a fixed list receives them.

mod close;
mod credentials;
pub(crate) mod dlopen;
mod dup;
mod epoll;
mod fchmod;
mod fcntl;
mod lseek;
mod mmap;
mod mq_attr;
mod mq_notify;
mod mq_open;
mod mq_receive;
mod mq_send;
mod mq_unlink;
mod msgctl;
mod msgget;
mod msgrcv;
mod msgsnd;
mod open;
mod poll;
mod read;
mod readlink;
mod recvmsg;
mod select;
mod sigaction;
mod stat;
mod write;
