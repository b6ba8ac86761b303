//! Tests the structures of libc: the drop-in must fill them as the kernel does.

mod support;

cases_on_both! { "layout":
    msgctl_fills_every_field,
    msg_info_fills_every_field,
    mq_getattr_fills_every_field,
    a_deadline_beyond_2106_is_a_deadline,
}
