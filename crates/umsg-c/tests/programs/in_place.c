/* Leases and reservations. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct timespec past = {1, 0};

static struct timespec in_seconds(time_t seconds)
{
    struct timespec time;
    CHECK(clock_gettime(CLOCK_REALTIME, &time) == 0);
    time.tv_sec += seconds;
    return time;
}

static void a_leased_message_stays_until_it_is_acknowledged(void)
{
    umsg_mqd_t queue = make("/lease", 2, 4096, O_NONBLOCK);
    struct umsg_mq_lease lease;
    struct umsg_mq_status status;
    char message[4096];
    memset(message, 'm', sizeof message);
    CHECK(umsg_mq_send(queue, message, sizeof message, 7) == 0);
    CHECK(umsg_mq_lease(queue, &lease, NULL) == 0);
    CHECK(lease.len == sizeof message && memcmp(lease.data, message, lease.len) == 0);
    CHECK(lease.priority == 7 && lease.deliveries == 1 && lease.pid == getpid());
    CHECK(lease.sent != 0 && lease.id != 0 && lease.reserved == 0);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0 && status.leased == 1);
    CHECK(umsg_mq_acknowledge(&lease) == 0);
    CHECK(lease.data == NULL && lease.id == 0);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.leased == 0 && status.messages == 0 && status.returned == 0);
    FAILS(umsg_mq_acknowledge(&lease), EINVAL);
    FAILS(umsg_mq_return(&lease), EINVAL);
    FAILS(umsg_mq_lease(queue, &lease, NULL), EAGAIN);
    done(queue, "/lease");
}

static void a_returned_message_comes_first_again(void)
{
    umsg_mqd_t queue = make("/returned", 4, 16, 0);
    struct umsg_mq_lease lease, copy;
    struct umsg_mq_peeked peeked;
    CHECK(umsg_mq_send(queue, "first", 5, 0) == 0 && umsg_mq_send(queue, "second", 6, 0) == 0);
    CHECK(umsg_mq_lease(queue, &lease, NULL) == 0);
    copy = lease;
    CHECK(umsg_mq_return(&lease) == 0);
    FAILS(umsg_mq_acknowledge(&copy), EINVAL);
    memset(&peeked, 0, sizeof peeked);
    CHECK(umsg_mq_peek(queue, 0, &peeked) == 0 && peeked.len == 5 && peeked.returns == 1);
    CHECK(umsg_mq_lease(queue, &lease, NULL) == 0);
    CHECK(memcmp(lease.data, "first", 5) == 0 && lease.deliveries == 2);
    CHECK(umsg_mq_acknowledge(&lease) == 0);
    CHECK(umsg_mq_lease(queue, &lease, NULL) == 0 && memcmp(lease.data, "second", 6) == 0);
    CHECK(umsg_mq_acknowledge(&lease) == 0);
    done(queue, "/returned");
}

static void a_lease_with_a_limit_ends_by_itself(void)
{
    const struct timespec millisecond = {0, 1000000}, fifty = {0, 50000000};
    const struct timespec wrong = {0, -1};
    umsg_mqd_t queue = make("/limit", 4, 16, 0);
    struct umsg_mq_lease lease, second;
    struct timespec later = in_seconds(20);
    CHECK(umsg_mq_send(queue, "slow", 4, 0) == 0);
    CHECK(umsg_mq_lease(queue, &lease, NULL) == 0);
    FAILS(umsg_mq_lease_limit(&lease, &wrong), EINVAL);
    FAILS(umsg_mq_lease_limit(&lease, NULL), EFAULT);
    CHECK(umsg_mq_lease_limit(&lease, &millisecond) == 0);
    nanosleep(&fifty, NULL);
    CHECK(umsg_mq_lease(queue, &second, &later) == 0 && second.deliveries == 2);
    FAILS(umsg_mq_acknowledge(&lease), ESTALE);
    FAILS(umsg_mq_acknowledge(&lease), EINVAL);
    CHECK(umsg_mq_acknowledge(&second) == 0);
    done(queue, "/limit");
}

static void a_lease_outlives_its_handle(void)
{
    umsg_mqd_t queue = make("/outlives", 4, 16, 0);
    umsg_mqd_t other = umsg_mq_open("/outlives", O_RDWR);
    struct umsg_mq_lease lease;
    struct umsg_mq_reservation reservation;
    struct umsg_mq_attr attr;
    char buffer[16];
    CHECK(umsg_mq_send(queue, "kept", 4, 0) == 0);
    CHECK(umsg_mq_lease(queue, &lease, NULL) == 0);
    CHECK(umsg_mq_reserve(queue, 8, &reservation, NULL) == 0);
    CHECK(umsg_mq_close(queue) == 0);
    CHECK(memcmp(lease.data, "kept", 4) == 0 && umsg_mq_acknowledge(&lease) == 0);
    memcpy(reservation.data, "reserved", 8);
    CHECK(umsg_mq_commit(&reservation, 8, 0) == 0);
    CHECK(umsg_mq_receive(other, buffer, sizeof buffer, NULL) == 8);
    CHECK(umsg_mq_getattr(other, &attr) == 0 && attr.mq_curmsgs == 0);
    done(other, "/outlives");
}

static volatile int limited;

static void *limit_until_it_ends(void *lease)
{
    const struct timespec hour = {3600, 0};
    const struct umsg_mq_lease copy = *(struct umsg_mq_lease *)lease;
    do
        limited = 1;
    while (umsg_mq_lease_limit(&copy, &hour) == 0);
    CHECK(errno == ESTALE || errno == EINVAL);
    return NULL;
}

static void a_lease_is_ended_beside_a_thread_that_limits_it(void)
{
    umsg_mqd_t queue = make("/beside", 4, 16, 0);
    int i;
    for (i = 0; i < 200; i++) {
        struct umsg_mq_lease lease, ended;
        pthread_t thread;
        CHECK(umsg_mq_send(queue, "job", 3, 0) == 0);
        CHECK(umsg_mq_lease(queue, &lease, NULL) == 0);
        ended = lease;
        limited = 0;
        CHECK(pthread_create(&thread, NULL, limit_until_it_ends, &lease) == 0);
        while (!limited)
            ;
        CHECK((i % 2 ? umsg_mq_acknowledge(&ended) : umsg_mq_return(&ended)) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        if (i % 2 == 0)
            CHECK(umsg_mq_lease(queue, &lease, NULL) == 0 && umsg_mq_acknowledge(&lease) == 0);
    }
    done(queue, "/beside");
}

static void expect_exit(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_forked_child_does_not_own_its_parents_leases(void)
{
    umsg_mqd_t queue = make("/not-own", 4, 16, 0);
    struct umsg_mq_lease lease;
    struct umsg_mq_reservation reservation;
    pid_t child;
    CHECK(umsg_mq_send(queue, "mine", 4, 0) == 0);
    CHECK(umsg_mq_lease(queue, &lease, NULL) == 0);
    CHECK(umsg_mq_reserve(queue, 8, &reservation, NULL) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(umsg_mq_acknowledge(&lease), ESTALE);
        FAILS(umsg_mq_commit(&reservation, 8, 0), EBADF);
        _exit(0);
    }
    expect_exit(child);
    CHECK(umsg_mq_acknowledge(&lease) == 0);
    CHECK(umsg_mq_commit(&reservation, 8, 0) == 0);
    done(queue, "/not-own");
}

static void what_a_killed_process_held_is_there_again(void)
{
    umsg_mqd_t queue = make("/held", 2, 16, 0);
    struct timespec later = in_seconds(20);
    struct umsg_mq_lease lease;
    int status;
    pid_t child;
    CHECK(umsg_mq_send(queue, "survives", 8, 0) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct umsg_mq_reservation reservation;
        CHECK(umsg_mq_lease(queue, &lease, NULL) == 0);
        CHECK(umsg_mq_reserve(queue, 8, &reservation, NULL) == 0);
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(umsg_mq_lease(queue, &lease, &later) == 0);
    CHECK(lease.len == 8 && memcmp(lease.data, "survives", 8) == 0 && lease.deliveries == 2);
    CHECK(umsg_mq_timedsend(queue, "room", 4, 0, &later) == 0);
    CHECK(umsg_mq_acknowledge(&lease) == 0);
    done(queue, "/held");
}

static void a_message_is_written_where_it_will_lie(void)
{
    umsg_mqd_t queue = make("/reserve", 4, 4096, 0);
    struct umsg_mq_reservation reservation;
    struct umsg_mq_status status;
    char buffer[4096];
    unsigned priority;
    CHECK(umsg_mq_reserve(queue, 4096, &reservation, NULL) == 0);
    CHECK(reservation.len == 4096 && reservation.id != 0);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.reserved == 1);
    memset(reservation.data, 'r', 4096);
    CHECK(umsg_mq_send(queue, "before", 6, 3) == 0);
    CHECK(umsg_mq_commit(&reservation, 4000, 3) == 0);
    CHECK(reservation.data == NULL && reservation.id == 0);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, &priority) == 6);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, &priority) == 4000 && priority == 3);
    CHECK(buffer[0] == 'r' && buffer[3999] == 'r');
    FAILS(umsg_mq_commit(&reservation, 1, 0), EINVAL);
    done(queue, "/reserve");
}

static void a_commit_that_can_not_be_leaves_the_reservation(void)
{
    umsg_mqd_t queue = make("/commit", 4, 16, 0);
    struct umsg_mq_reservation reservation;
    struct umsg_mq_attr attr;
    FAILS(umsg_mq_reserve(queue, 17, &reservation, NULL), EMSGSIZE);
    CHECK(umsg_mq_reserve(queue, 10, &reservation, NULL) == 0);
    FAILS(umsg_mq_commit(&reservation, 11, 0), EMSGSIZE);
    FAILS(umsg_mq_commit(&reservation, 10, 32768), EINVAL);
    memcpy(reservation.data, "0123456789", 10);
    CHECK(umsg_mq_commit(&reservation, 0, 0) == 0);
    CHECK(umsg_mq_getattr(queue, &attr) == 0 && attr.mq_curmsgs == 1);
    done(queue, "/commit");
}

static void reserved_room_counts_until_it_is_given_back(void)
{
    umsg_mqd_t queue = make("/cancel", 1, 16, O_NONBLOCK), waits = umsg_mq_open("/cancel", O_RDWR);
    struct umsg_mq_reservation reservation, second;
    CHECK(umsg_mq_reserve(queue, 16, &reservation, NULL) == 0);
    FAILS(umsg_mq_send(queue, "x", 1, 0), EAGAIN);
    FAILS(umsg_mq_reserve(queue, 16, &second, NULL), EAGAIN);
    FAILS(umsg_mq_reserve(waits, 16, &second, &past), ETIMEDOUT);
    CHECK(umsg_mq_close(waits) == 0);
    CHECK(umsg_mq_cancel(&reservation) == 0);
    FAILS(umsg_mq_cancel(&reservation), EINVAL);
    CHECK(umsg_mq_send(queue, "x", 1, 0) == 0);
    done(queue, "/cancel");
}

static void a_handle_with_o_nonblock_does_not_wait_whatever_the_time(void)
{
    umsg_mqd_t queue = make("/patience", 1, 16, O_NONBLOCK);
    const struct timespec wrong = {0, 1000000000};
    struct umsg_mq_lease lease;
    const struct timespec later = in_seconds(1000), *times[] = {NULL, &past, &later};
    struct umsg_mq_reservation room;
    struct umsg_mq_message message = {NULL, 16, 0, 0};
    char buffer[16];
    size_t i;
    message.data = buffer;
    for (i = 0; i < 3; i++) {
        FAILS(umsg_mq_lease(queue, &lease, times[i]), EAGAIN);
        FAILS(umsg_mq_timedreceive(queue, buffer, 16, NULL, times[i]), EAGAIN);
        FAILS(umsg_mq_receive_batch(queue, &message, 1, times[i]), EAGAIN);
    }
    FAILS(umsg_mq_lease(queue, &lease, &wrong), EINVAL);
    CHECK(umsg_mq_send(queue, "x", 1, 0) == 0);
    for (i = 0; i < 3; i++) {
        FAILS(umsg_mq_reserve(queue, 16, &room, times[i]), EAGAIN);
        FAILS(umsg_mq_timedsend(queue, "x", 1, 0, times[i]), EAGAIN);
        FAILS(umsg_mq_send_batch(queue, &message, 1, times[i]), EAGAIN);
        FAILS(umsg_mq_send_some(queue, &message, 1, times[i]), EAGAIN);
    }
    FAILS(umsg_mq_send_after(queue, "x", 1, 0, 0), EAGAIN);
    FAILS(umsg_mq_send_at(queue, "x", 1, 0, &later), EAGAIN);
    done(queue, "/patience");
}

static void what_is_none_is_refused(void)
{
    umsg_mqd_t queue = make("/none", 1, 16, O_NONBLOCK);
    umsg_mqd_t reads = umsg_mq_open("/none", O_RDONLY), writes = umsg_mq_open("/none", O_WRONLY);
    struct umsg_mq_lease lease;
    struct umsg_mq_reservation reservation;
    memset(&lease, 0xff, sizeof lease);
    memset(&reservation, 0xff, sizeof reservation);
    FAILS(umsg_mq_acknowledge(&lease), EINVAL);
    FAILS(umsg_mq_lease_limit(&lease, &past), EINVAL);
    FAILS(umsg_mq_commit(&reservation, 0, 0), EINVAL);
    FAILS(umsg_mq_cancel(&reservation), EINVAL);
    FAILS(umsg_mq_acknowledge(NULL), EFAULT);
    FAILS(umsg_mq_return(NULL), EFAULT);
    FAILS(umsg_mq_commit(NULL, 0, 0), EFAULT);
    FAILS(umsg_mq_lease(queue, NULL, NULL), EFAULT);
    FAILS(umsg_mq_reserve(queue, 1, NULL, NULL), EFAULT);
    FAILS(umsg_mq_lease(NONE, &lease, NULL), EBADF);
    FAILS(umsg_mq_lease(writes, &lease, NULL), EBADF);
    FAILS(umsg_mq_reserve(reads, 1, &reservation, NULL), EBADF);
    CHECK(umsg_mq_close(reads) == 0 && umsg_mq_close(writes) == 0);
    done(queue, "/none");
}

static void a_message_for_later_comes_later(void)
{
    const uint64_t moment = 50 * 1000000;
    struct umsg_mq_status status;
    struct umsg_mq_lease lease;
    umsg_mqd_t queue = make("/later", 2, 16, 0);
    const struct timespec never = in_seconds(100000), wrong = {0, -1};
    char buffer[16];
    CHECK(umsg_mq_send_after(queue, "later", 5, 3, moment) == 0);
    FAILS(umsg_mq_send_after(queue, "later", 5, 32768, moment), EINVAL);
    FAILS(umsg_mq_send_after(queue, "later", 17, 0, moment), EMSGSIZE);
    FAILS(umsg_mq_send_after(NULL, "later", 5, 0, moment), EBADF);
    FAILS(umsg_mq_send_at(queue, "later", 5, 3, NULL), EFAULT);
    FAILS(umsg_mq_send_at(queue, "later", 5, 3, &wrong), EINVAL);
    CHECK(umsg_mq_send_at(queue, "never", 5, 9, &never) == 0);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.messages + status.delayed == 2);
    CHECK(umsg_mq_lease(queue, &lease, NULL) == 0 && lease.len == 5 && lease.deliveries == 1);
    CHECK(umsg_mq_return_after(&lease, moment) == 0);
    FAILS(umsg_mq_return_after(&lease, moment), EINVAL);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.messages + status.delayed == 2);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 5 && memcmp(buffer, "later", 5) == 0);
    CHECK(umsg_mq_send_at(queue, "now", 3, 0, &past) == 0);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 3);
    done(queue, "/later");
}

static void a_dead_letter_has_a_history_and_goes_back(void)
{
    struct umsg_mq_options options = {.size = sizeof options};
    struct umsg_mq_redrive which = {.size = sizeof which};
    struct umsg_mq_history history;
    struct umsg_mq_lease lease;
    umsg_mqd_t queue, dead;
    options.max_messages = 2;
    options.message_size = 16;
    options.max_deliveries = 1;
    options.dead_letter = "/failed";
    queue = umsg_mq_open_with("/jobs", O_RDWR | O_CREAT | O_NONBLOCK, 0600, &options);
    CHECK(queue != (umsg_mqd_t)-1);
    CHECK(umsg_mq_send(queue, "poison", 6, 3) == 0);
    CHECK(umsg_mq_lease(queue, &lease, NULL) == 0);
    CHECK(umsg_mq_lease_history(&lease, &history, sizeof history) == 0);
    CHECK(umsg_mq_return(&lease) == 0);
    dead = umsg_mq_open("/failed", O_RDONLY | O_NONBLOCK);
    CHECK(dead != (umsg_mqd_t)-1);
    memset(&history, 'x', sizeof history);
    CHECK(umsg_mq_dead_letter(dead, 0, &history, sizeof history) == 1);
    CHECK(strcmp(history.source, "/jobs") == 0 && history.reason == UMSG_DEAD_UNDELIVERED);
    CHECK(history.deliveries == 1 && history.redrives == 0 && history.pid == getpid());
    CHECK(history.uid == -1 || history.uid == (int64_t)getuid());
    CHECK(history.sent != 0 && history.sent <= history.first_delivery);
    CHECK(history.first_delivery == history.last_delivery && history.last_delivery <= history.dead);
    CHECK(umsg_mq_dead_letter(dead, 1, &history, sizeof history) == 0);
    FAILS(umsg_mq_dead_letter(dead, 0, NULL, sizeof history), EFAULT);
    FAILS(umsg_mq_dead_letter(NULL, 0, &history, sizeof history), EBADF);

    which.reason = UMSG_DEAD_EXPIRED;
    CHECK(umsg_mq_redrive(dead, &which) == 0);
    which.reason = 9;
    FAILS(umsg_mq_redrive(dead, &which), EINVAL);
    which.reason = 0;
    which.to = "/failed";
    FAILS(umsg_mq_redrive(dead, &which), EINVAL);
    which.to = "/none";
    FAILS(umsg_mq_redrive(dead, &which), ENOENT);
    which.to = NULL;
    which.source = "/jobs";
    which.id = history.id;
    which.count = 1;
    CHECK(umsg_mq_redrive(dead, &which) == 1);
    CHECK(umsg_mq_redrive(dead, NULL) == 0);
    CHECK(umsg_mq_lease(queue, &lease, NULL) == 0 && lease.deliveries == 1 && lease.priority == 3);
    CHECK(umsg_mq_lease_history(&lease, &history, sizeof history) == 1 && history.redrives == 1);
    CHECK(umsg_mq_acknowledge(&lease) == 0);
    FAILS(umsg_mq_lease_history(&lease, &history, sizeof history), EINVAL);
    done(queue, "/jobs");
    done(dead, "/failed");
}

static void a_delayed_send_waits_for_room_as_told(void)
{
    const uint64_t hour = (uint64_t)3600 * 1000000000;
    const struct timespec wrong = {0, -1};
    const struct umsg_mq_attr nonblocking = {.mq_flags = O_NONBLOCK};
    umsg_mqd_t queue = make("/room", 1, 16, 0);
    CHECK(umsg_mq_timedsend_after(queue, "later", 5, 0, hour, NULL) == 0);
    FAILS(umsg_mq_timedsend_after(queue, "later", 5, 0, hour, &past), ETIMEDOUT);
    FAILS(umsg_mq_timedsend_after(queue, "later", 5, 0, hour, &wrong), EINVAL);
    CHECK(umsg_mq_setattr(queue, &nonblocking, NULL) == 0);
    FAILS(umsg_mq_send_after(queue, "later", 5, 0, hour), EAGAIN);
    FAILS(umsg_mq_timedsend_after(queue, "later", 5, 0, hour, &past), EAGAIN);
    done(queue, "/room");
}

static const struct test_case cases[] = {
    CASE(a_dead_letter_has_a_history_and_goes_back),
    CASE(a_message_for_later_comes_later),
    CASE(a_delayed_send_waits_for_room_as_told),
    CASE(a_leased_message_stays_until_it_is_acknowledged),
    CASE(a_returned_message_comes_first_again),
    CASE(a_lease_with_a_limit_ends_by_itself),
    CASE(a_lease_outlives_its_handle),
    CASE(a_lease_is_ended_beside_a_thread_that_limits_it),
    CASE(a_forked_child_does_not_own_its_parents_leases),
    CASE(what_a_killed_process_held_is_there_again),
    CASE(a_message_is_written_where_it_will_lie),
    CASE(a_commit_that_can_not_be_leaves_the_reservation),
    CASE(reserved_room_counts_until_it_is_given_back),
    CASE(a_handle_with_o_nonblock_does_not_wait_whatever_the_time),
    CASE(what_is_none_is_refused),
};

MAIN(cases)
