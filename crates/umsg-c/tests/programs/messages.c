/* Sending and receiving. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <limits.h>
#include <time.h>

/* Returns the time that is this number of milliseconds from now. */
static struct timespec soon(long milliseconds)
{
    struct timespec time;
    CHECK(clock_gettime(CLOCK_REALTIME, &time) == 0);
    time.tv_nsec += milliseconds * 1000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void the_highest_priority_comes_first_and_the_oldest_of_it(void)
{
    umsg_mqd_t queue = make("/order", 10, 16, 0);
    const char *sent[] = {"low", "first", "second", "high"};
    const unsigned priorities[] = {0, 5, 5, 32767};
    const char *expected[] = {"high", "first", "second", "low"};
    char buffer[16];
    unsigned priority;
    int i;
    for (i = 0; i < 4; i++)
        CHECK(umsg_mq_send(queue, sent[i], strlen(sent[i]), priorities[i]) == 0);
    for (i = 0; i < 4; i++) {
        ssize_t length = umsg_mq_receive(queue, buffer, sizeof buffer, &priority);
        CHECK(length == (ssize_t)strlen(expected[i]));
        CHECK(memcmp(buffer, expected[i], (size_t)length) == 0);
        CHECK(priority == (i == 0 ? 32767 : i == 3 ? 0 : 5));
    }
    done(queue, "/order");
}

static void a_message_may_be_empty_or_as_long_as_the_queue_says(void)
{
    umsg_mqd_t queue = make("/lengths", 10, 5000, 0);
    char *message = malloc(5000);
    char *buffer = malloc(5000);
    CHECK(message != NULL && buffer != NULL);
    memset(message, 'm', 5000);
    CHECK(umsg_mq_send(queue, NULL, 0, 1) == 0);
    CHECK(umsg_mq_send(queue, message, 5000, 0) == 0);
    CHECK(umsg_mq_receive(queue, buffer, 5000, NULL) == 0);
    CHECK(umsg_mq_receive(queue, buffer, 5000, NULL) == 5000);
    CHECK(memcmp(buffer, message, 5000) == 0);
    free(message);
    free(buffer);
    done(queue, "/lengths");
}

static void what_can_not_be_is_refused(void)
{
    umsg_mqd_t queue = make("/refused", 10, 16, 0);
    char buffer[16];
    FAILS(umsg_mq_send(queue, "x", 1, 32768), EINVAL);
    FAILS(umsg_mq_send(queue, "x", 17, 0), EMSGSIZE);
    FAILS(umsg_mq_send(queue, "x", SIZE_MAX, 0), EMSGSIZE);
    FAILS(umsg_mq_send(queue, NULL, 3, 0), EFAULT);
    FAILS(umsg_mq_send(queue, (char *)8, 3, 0), EFAULT);
    FAILS(umsg_mq_receive(queue, buffer, 15, NULL), EMSGSIZE);
    done(queue, "/refused");
}

static void a_message_that_has_no_place_to_go_is_gone(void)
{
    umsg_mqd_t queue = make("/gone", 10, 16, O_NONBLOCK);
    char buffer[16];
    CHECK(umsg_mq_send(queue, "1", 1, 0) == 0 && umsg_mq_send(queue, "2", 1, 0) == 0);
    FAILS(umsg_mq_receive(queue, NULL, 16, NULL), EFAULT);
    FAILS(umsg_mq_receive(queue, buffer, 16, (unsigned *)8), EFAULT);
    FAILS(umsg_mq_receive(queue, buffer, 16, NULL), EAGAIN);
    done(queue, "/gone");
}

static void o_nonblock_is_eagain_when_full_or_empty(void)
{
    umsg_mqd_t queue = make("/nonblock", 1, 16, O_NONBLOCK);
    struct timespec past = {1, 0};
    char buffer[16];
    FAILS(umsg_mq_receive(queue, buffer, 16, NULL), EAGAIN);
    FAILS(umsg_mq_timedreceive(queue, buffer, 16, NULL, &past), EAGAIN);
    CHECK(umsg_mq_send(queue, "x", 1, 0) == 0);
    FAILS(umsg_mq_send(queue, "x", 1, 0), EAGAIN);
    FAILS(umsg_mq_timedsend(queue, "x", 1, 0, &past), EAGAIN);
    done(queue, "/nonblock");
}

static void a_wait_ends_when_its_time_comes(void)
{
    umsg_mqd_t queue = make("/timed", 1, 16, 0);
    struct timespec past = {1, 0}, later = soon(30);
    char buffer[16];
    FAILS(umsg_mq_timedreceive(queue, buffer, 16, NULL, &past), ETIMEDOUT);
    FAILS(umsg_mq_timedreceive(queue, buffer, 16, NULL, &later), ETIMEDOUT);
    CHECK(umsg_mq_timedsend(queue, "x", 1, 0, &past) == 0);
    FAILS(umsg_mq_timedsend(queue, "x", 1, 0, &past), ETIMEDOUT);
    later = soon(30);
    FAILS(umsg_mq_timedsend(queue, "x", 1, 0, &later), ETIMEDOUT);
    CHECK(umsg_mq_timedreceive(queue, buffer, 16, NULL, NULL) == 1);
    CHECK(umsg_mq_timedsend(queue, "x", 1, 0, NULL) == 0);
    CHECK(umsg_mq_timedreceive(queue, buffer, 16, NULL, &past) == 1);
    done(queue, "/timed");
}

static void a_time_that_is_none_is_the_first_error(void)
{
    umsg_mqd_t queue = make("/no-time", 1, 16, O_NONBLOCK);
    const struct timespec wrong[] = {{0, -1}, {0, 1000000000}, {-1, 0}};
    char buffer[16];
    size_t i;
    for (i = 0; i < 3; i++) {
        FAILS(umsg_mq_timedsend(NONE, "x", 1, UINT_MAX, &wrong[i]), EINVAL);
        FAILS(umsg_mq_timedsend(queue, "x", 1, 0, &wrong[i]), EINVAL);
        FAILS(umsg_mq_timedreceive(NONE, buffer, 16, NULL, &wrong[i]), EINVAL);
    }
    FAILS(umsg_mq_timedsend(queue, "x", 1, 0, (struct timespec *)8), EFAULT);
    FAILS(umsg_mq_timedreceive(queue, buffer, 16, NULL, (struct timespec *)8), EFAULT);
    done(queue, "/no-time");
}

static void the_flag_can_be_set_and_cleared(void)
{
    umsg_mqd_t queue = make("/flag", 1, 16, 0);
    struct umsg_mq_attr attr, old;
    char buffer[16];
    memset(&attr, 0xff, sizeof attr);
    attr.mq_flags = O_NONBLOCK;
    CHECK(umsg_mq_setattr(queue, &attr, &old) == 0);
    CHECK(old.mq_flags == 0 && old.mq_maxmsg == 1 && old.mq_msgsize == 16);
    FAILS(umsg_mq_receive(queue, buffer, 16, NULL), EAGAIN);
    CHECK(umsg_mq_setattr(queue, NULL, &old) == 0 && old.mq_flags == O_NONBLOCK);
    attr.mq_flags = 0;
    CHECK(umsg_mq_setattr(queue, &attr, NULL) == 0);
    CHECK(umsg_mq_getattr(queue, &old) == 0 && old.mq_flags == 0);
    attr.mq_flags = O_APPEND;
    FAILS(umsg_mq_setattr(queue, &attr, NULL), EINVAL);
    FAILS(umsg_mq_setattr(queue, (struct umsg_mq_attr *)8, NULL), EFAULT);
    FAILS(umsg_mq_setattr(queue, NULL, (struct umsg_mq_attr *)8), EFAULT);
    FAILS(umsg_mq_getattr(queue, NULL), EFAULT);
    done(queue, "/flag");
}

static void a_closed_queue_is_drained_and_then_at_its_end(void)
{
    struct umsg_mq_status status;
    umsg_mqd_t queue = make("/closed", 2, 16, 0);
    char buffer[16];
    CHECK(umsg_mq_send(queue, "last", 4, 0) == 0);
    CHECK(umsg_mq_close_send(queue) == 1 && umsg_mq_close_send(queue) == 0);
    FAILS(umsg_mq_send(queue, "no", 2, 0), EPIPE);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0 && status.send_closed == 1);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 4);
    FAILS(umsg_mq_receive(queue, buffer, sizeof buffer, NULL), EPIPE);
    CHECK(umsg_mq_reopen_send(queue) == 1 && umsg_mq_reopen_send(queue) == 0);
    CHECK(umsg_mq_send(queue, "more", 4, 0) == 0);
    FAILS(umsg_mq_close_send(NULL), EBADF);
    FAILS(umsg_mq_reopen_send(NULL), EBADF);
    done(queue, "/closed");
}

static void a_queue_closes_with_its_last_producer(void)
{
    struct umsg_mq_options options;
    umsg_mqd_t queue;
    char buffer[16];
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.message_size = 16;
    options.flags = UMSG_CLOSE_WITH_LAST_PRODUCER;
    queue = umsg_mq_open_with("/produced", O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &options);
    CHECK(queue != NONE);
    CHECK(umsg_mq_end_producing(queue) == 0);
    CHECK(umsg_mq_begin_to_produce(queue) == 0 && umsg_mq_begin_to_produce(queue) == 0);
    CHECK(umsg_mq_send(queue, "one", 3, 0) == 0);
    CHECK(umsg_mq_end_producing(queue) == 1);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 3);
    FAILS(umsg_mq_receive(queue, buffer, sizeof buffer, NULL), EAGAIN);
    CHECK(umsg_mq_end_producing(queue) == 1);
    FAILS(umsg_mq_receive(queue, buffer, sizeof buffer, NULL), EPIPE);
    FAILS(umsg_mq_begin_to_produce(queue), EPIPE);
    done(queue, "/produced");
}

static const struct test_case cases[] = {
    CASE(a_queue_closes_with_its_last_producer),
    CASE(a_closed_queue_is_drained_and_then_at_its_end),
    CASE(the_highest_priority_comes_first_and_the_oldest_of_it),
    CASE(a_message_may_be_empty_or_as_long_as_the_queue_says),
    CASE(what_can_not_be_is_refused),
    CASE(a_message_that_has_no_place_to_go_is_gone),
    CASE(o_nonblock_is_eagain_when_full_or_empty),
    CASE(a_wait_ends_when_its_time_comes),
    CASE(a_time_that_is_none_is_the_first_error),
    CASE(the_flag_can_be_set_and_cleared),
};

MAIN(cases)
