//! Tests several users in one namespace: the drop-in must behave as the kernel does. Needs root.

mod support;

cases_on_both! { "users":
    each_user_may_do_what_the_mode_grants_him,
    root_does_what_it_wants,
    a_name_that_its_owner_gave_up_is_anybodys,
    a_poller_is_told_of_what_other_users_send,
    who_gave_up_his_user_still_polls,
    a_process_with_another_effective_user_is_denied_the_queues_of_others,
}

#[test]
fn a_creation_where_only_root_can_prepare_the_namespace_is_denied() {
    support::holds_on_umsg(
        "users",
        "a_creation_where_only_root_can_prepare_the_namespace_is_denied",
    );
}
