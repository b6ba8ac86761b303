//! Several users and one namespace: the drop-in against the kernel. Needs root.

mod support;

cases_on_both! { "users":
    each_user_may_do_what_the_mode_grants_him,
    root_does_what_it_wants,
    a_name_that_its_owner_gave_up_is_anybodys,
    a_poller_is_told_of_what_other_users_send,
    who_gave_up_his_user_still_polls,
}
