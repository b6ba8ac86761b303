//! The structures of libc: the drop-in against the kernel.

mod support;

cases_on_both! { "layout":
    msgctl_fills_every_field,
    msg_info_fills_every_field,
    mq_getattr_fills_every_field,
    a_deadline_beyond_2106_is_a_deadline,
}
