/* The status of a queue, peeking at messages, and the version and the errors of the library. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <time.h>
#include <unistd.h>

static void the_status_tells_what_was_done(void)
{
    umsg_mqd_t queue = make("/status", 4, 100, O_NONBLOCK);
    struct umsg_mq_status status;
    int64_t now = (int64_t)time(NULL) * 1000000000;
    int64_t minute = (int64_t)60 * 1000000000;
    char buffer[100];
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.messages == 0 && status.last_send == 0 && status.last_receive == 0);
    CHECK(status.created > now - minute && status.created < now + minute);
    CHECK(umsg_mq_send(queue, "12345", 5, 0) == 0 && umsg_mq_send(queue, "123", 3, 1) == 0);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 3);
    memset(&status, 0xff, sizeof status);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.max_messages == 4 && status.message_size == 100);
    CHECK(status.messages == 1 && status.bytes == 5);
    CHECK(status.mode == 0600 && status.uid == geteuid() && status.gid == getegid());
    CHECK(status.creator == (uint32_t)getpid());
    CHECK(status.last_send > now - minute && status.last_send < now + minute);
    CHECK(status.last_receive > now - minute && status.last_receive < now + minute);
    CHECK(status.blocked_senders == 0 && status.blocked_receivers == 0);
    CHECK(status.slots >= 1 && status.memory > 0 && status.damaged == 0);
    done(queue, "/status");
}

static void a_shorter_or_longer_status_is_filled_as_far_as_it_is_known(void)
{
    umsg_mqd_t queue = make("/sizes", 4, 100, 0);
    struct {
        struct umsg_mq_status known;
        char unknown[8];
    } later;
    CHECK(umsg_mq_send(queue, "1", 1, 0) == 0);
    memset(&later, 0xff, sizeof later);
    CHECK(umsg_mq_status(queue, &later.known, 2 * sizeof(uint64_t)) == 0);
    CHECK(later.known.message_size == 100 && later.known.messages == UINT64_MAX);
    CHECK(umsg_mq_status(queue, &later.known, sizeof later) == 0);
    CHECK(later.known.messages == 1 && later.known.damaged == 0 && later.unknown[7] == 0);
    FAILS(umsg_mq_status(queue, NULL, sizeof later.known), EFAULT);
    FAILS(umsg_mq_status(NONE, &later.known, sizeof later.known), EBADF);
    done(queue, "/sizes");
}

static void messages_can_be_looked_at_in_the_order_of_delivery(void)
{
    umsg_mqd_t queue = make("/peek", 4, 100, 0);
    char buffer[100];
    struct umsg_mq_peeked peeked;
    int64_t now = (int64_t)time(NULL) * 1000000000;
    CHECK(umsg_mq_send(queue, "second", 6, 0) == 0 && umsg_mq_send(queue, "first", 5, 9) == 0);
    memset(&peeked, 0xff, sizeof peeked);
    peeked.data = buffer;
    peeked.size = sizeof buffer;
    CHECK(umsg_mq_peek(queue, 0, &peeked) == 0);
    CHECK(peeked.len == 5 && memcmp(buffer, "first", 5) == 0);
    CHECK(peeked.priority == 9 && peeked.pid == getpid() && peeked.returns == 0 && peeked.reserved[1] == 0);
    CHECK(peeked.due == 0 && peeked.unused == 0 && sizeof peeked == 64);
    CHECK(peeked.sent > now - (int64_t)60 * 1000000000);
    peeked.size = 3;
    CHECK(umsg_mq_peek(queue, 1, &peeked) == 0);
    CHECK(peeked.len == 6 && memcmp(buffer, "secst", 5) == 0 && peeked.priority == 0);
    peeked.data = NULL;
    FAILS(umsg_mq_peek(queue, 1, &peeked), EFAULT);
    peeked.size = 0;
    CHECK(umsg_mq_peek(queue, 1, &peeked) == 0 && peeked.len == 6);
    FAILS(umsg_mq_peek(queue, 2, &peeked), ENOMSG);
    FAILS(umsg_mq_peek(queue, SIZE_MAX, &peeked), ENOMSG);
    FAILS(umsg_mq_peek(queue, 0, NULL), EFAULT);
    done(queue, "/peek");
}

static void delayed_messages_can_be_looked_at_in_the_order_of_their_times(void)
{
    umsg_mqd_t queue = make("/delayed", 4, 100, 0);
    char buffer[100];
    struct umsg_mq_peeked peeked = {.data = buffer, .size = sizeof buffer};
    int64_t minute = (int64_t)60 * 1000000000;
    CHECK(umsg_mq_send_after(queue, "later", 5, 3, 2 * minute) == 0);
    CHECK(umsg_mq_send_after(queue, "soon", 4, 3, minute) == 0 && umsg_mq_send(queue, "now", 3, 3) == 0);
    CHECK(umsg_mq_peek_delayed(queue, 0, &peeked) == 0 && memcmp(buffer, "soon", 4) == 0);
    CHECK(peeked.len == 4 && peeked.priority == 3 && peeked.pid == getpid() && peeked.returns == 0);
    CHECK(peeked.due > peeked.sent && peeked.due < peeked.sent + 2 * minute);
    CHECK(umsg_mq_peek_delayed(queue, 1, &peeked) == 0 && memcmp(buffer, "later", 5) == 0);
    FAILS(umsg_mq_peek_delayed(queue, 2, &peeked), ENOMSG);
    FAILS(umsg_mq_peek_delayed(queue, SIZE_MAX, &peeked), ENOMSG);
    FAILS(umsg_mq_peek_delayed(queue, 0, NULL), EFAULT);
    FAILS(umsg_mq_peek_delayed(NONE, 0, &peeked), EBADF);
    CHECK(umsg_mq_peek(queue, 0, &peeked) == 0 && peeked.due == 0);
    FAILS(umsg_mq_peek(queue, 1, &peeked), ENOMSG);
    done(queue, "/delayed");
}

static void how_to_wait_can_be_chosen(void)
{
    umsg_mqd_t queue = make("/waiting", 1, 16, 0);
    struct timespec past = {1, 0};
    char buffer[16];
    int waiting;
    for (waiting = UMSG_WAITING_ADAPTIVE; waiting <= UMSG_WAITING_SPINNING; waiting++) {
        CHECK(umsg_mq_set_waiting(queue, waiting) == 0);
        FAILS(umsg_mq_timedreceive(queue, buffer, 16, NULL, &past), ETIMEDOUT);
    }
    FAILS(umsg_mq_set_waiting(queue, 3), EINVAL);
    FAILS(umsg_mq_set_waiting(queue, -1), EINVAL);
    FAILS(umsg_mq_set_waiting(NONE, 0), EBADF);
    done(queue, "/waiting");
}

static void the_last_error_says_why(void)
{
    struct umsg_mq_attr attr;
    umsg_mqd_t queue = make("/why", 1, 16, 0);
    CHECK(strcmp(umsg_last_error(), "") == 0);
    memset(&attr, 0, sizeof attr);
    attr.mq_maxmsg = 2000000000;
    attr.mq_msgsize = 1;
    OPENS_NOT(umsg_mq_open("/why-not", O_CREAT | O_RDWR, 0600, &attr), EINVAL);
    CHECK(strstr(umsg_last_error(), "2000000000") != NULL);
    FAILS(umsg_mq_send(queue, "12345678901234567", 17, 0), EMSGSIZE);
    CHECK(strstr(umsg_last_error(), "17 bytes") != NULL);
    CHECK(umsg_mq_send(queue, "x", 1, 0) == 0);
    CHECK(strstr(umsg_last_error(), "17 bytes") != NULL);
    FAILS(umsg_mq_close(NONE), EBADF);
    CHECK(strstr(umsg_last_error(), "handle") != NULL);
    done(queue, "/why");
}

static void the_library_and_the_header_are_of_one_version(void)
{
    char version[32];
    CHECK(strcmp(umsg_version(), UMSG_VERSION) == 0);
    sprintf(version, "%d.%d.%d", UMSG_VERSION_MAJOR, UMSG_VERSION_MINOR, UMSG_VERSION_PATCH);
    CHECK(strcmp(umsg_version(), version) == 0);
}

static const struct test_case cases[] = {
    CASE(the_last_error_says_why),
    CASE(the_status_tells_what_was_done),
    CASE(a_shorter_or_longer_status_is_filled_as_far_as_it_is_known),
    CASE(messages_can_be_looked_at_in_the_order_of_delivery),
    CASE(delayed_messages_can_be_looked_at_in_the_order_of_their_times),
    CASE(how_to_wait_can_be_chosen),
    CASE(the_library_and_the_header_are_of_one_version),
};

MAIN(cases)
