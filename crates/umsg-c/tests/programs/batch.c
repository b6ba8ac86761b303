/* Several messages in one call. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <time.h>

enum { SEVERAL = 5 };

static const struct timespec past = {1, 0};

/* Messages of one letter each, a, b, c, ..., of priority 0. */
static char letters[26] = "abcdefghijklmnopqrstuvwxyz";

static void fill(struct umsg_mq_message *messages, size_t n)
{
    size_t i;
    memset(messages, 0, n * sizeof *messages);
    for (i = 0; i < n; i++) {
        messages[i].data = &letters[i];
        messages[i].len = 1;
    }
}

/* Receives all messages of a non-blocking queue, and checks their letters. */
static void expect_letters(umsg_mqd_t queue, const char *expected)
{
    char buffer[16], found[32];
    size_t n = 0;
    ssize_t length;
    while ((length = umsg_mq_receive(queue, buffer, sizeof buffer, NULL)) >= 0)
        if (length == 1)
            found[n++] = buffer[0];
    CHECK(errno == EAGAIN);
    found[n] = 0;
    CHECK(strcmp(found, expected) == 0);
}

static void a_batch_is_sent_whole_and_by_priority(void)
{
    umsg_mqd_t queue = make("/batch", 10, 16, O_NONBLOCK);
    struct umsg_mq_message messages[SEVERAL];
    fill(messages, SEVERAL);
    messages[3].priority = 9;
    CHECK(umsg_mq_send_batch(queue, messages, SEVERAL, NULL) == 0);
    expect_letters(queue, "dabce");
    CHECK(umsg_mq_send_batch(queue, NULL, 0, NULL) == 0);
    messages[0].data = NULL;
    messages[0].len = 0;
    CHECK(umsg_mq_send_batch(queue, messages, 1, NULL) == 0);
    expect_letters(queue, "");
    done(queue, "/batch");
}

static void a_batch_for_which_there_is_no_room_is_not_sent(void)
{
    umsg_mqd_t queue = make("/no-room", 4, 16, O_NONBLOCK), waits = umsg_mq_open("/no-room", O_RDWR);
    struct umsg_mq_message messages[SEVERAL];
    fill(messages, SEVERAL);
    FAILS(umsg_mq_send_batch(queue, messages, SEVERAL, NULL), EMSGSIZE);
    CHECK(strstr(umsg_last_error(), "5 messages") != NULL);
    CHECK(umsg_mq_send_batch(queue, messages, 3, NULL) == 0);
    FAILS(umsg_mq_send_batch(queue, messages, 2, NULL), EAGAIN);
    FAILS(umsg_mq_send_batch(waits, messages, 2, &past), ETIMEDOUT);
    expect_letters(queue, "abc");
    CHECK(umsg_mq_close(waits) == 0);
    done(queue, "/no-room");
}

static void some_are_as_many_as_fit(void)
{
    umsg_mqd_t queue = make("/some", 3, 16, O_NONBLOCK), waits = umsg_mq_open("/some", O_RDWR);
    struct umsg_mq_message messages[SEVERAL];
    fill(messages, SEVERAL);
    CHECK(umsg_mq_send_some(queue, messages, 0, NULL) == 0);
    CHECK(umsg_mq_send_some(queue, messages, SEVERAL, NULL) == 3);
    FAILS(umsg_mq_send_some(queue, messages + 3, 2, NULL), EAGAIN);
    FAILS(umsg_mq_send_some(waits, messages + 3, 2, &past), ETIMEDOUT);
    expect_letters(queue, "abc");
    CHECK(umsg_mq_send_some(queue, messages + 3, 2, &past) == 2);
    expect_letters(queue, "de");
    CHECK(umsg_mq_close(waits) == 0);
    done(queue, "/some");
}

static void *receive_three(void *queue)
{
    char buffer[16];
    int i;
    for (i = 0; i < 3; i++)
        CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 1);
    return NULL;
}

static void a_batch_waits_until_there_is_room_for_all(void)
{
    umsg_mqd_t queue = make("/waits", 3, 16, 0);
    struct umsg_mq_message messages[SEVERAL];
    struct umsg_mq_attr attr;
    pthread_t thread;
    fill(messages, SEVERAL);
    CHECK(umsg_mq_send_batch(queue, messages, 3, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, receive_three, queue) == 0);
    CHECK(umsg_mq_send_batch(queue, messages, 3, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(umsg_mq_getattr(queue, &attr) == 0 && attr.mq_curmsgs == 3);
    done(queue, "/waits");
}

static void what_can_not_be_sent_keeps_the_others_back(void)
{
    umsg_mqd_t queue = make("/wrong", 10, 16, O_NONBLOCK);
    umsg_mqd_t reads = umsg_mq_open("/wrong", O_RDONLY);
    struct umsg_mq_message messages[SEVERAL];
    fill(messages, SEVERAL);
    messages[4].priority = 32768;
    FAILS(umsg_mq_send_batch(queue, messages, SEVERAL, NULL), EINVAL);
    FAILS(umsg_mq_send_some(queue, messages, SEVERAL, NULL), EINVAL);
    fill(messages, SEVERAL);
    messages[4].len = 17;
    FAILS(umsg_mq_send_batch(queue, messages, SEVERAL, NULL), EMSGSIZE);
    messages[4].len = SIZE_MAX;
    FAILS(umsg_mq_send_some(queue, messages, SEVERAL, NULL), EMSGSIZE);
    fill(messages, SEVERAL);
    messages[4].data = NULL;
    FAILS(umsg_mq_send_batch(queue, messages, SEVERAL, NULL), EFAULT);
    FAILS(umsg_mq_send_batch(queue, NULL, 1, NULL), EFAULT);
    FAILS(umsg_mq_send_batch(queue, messages, SIZE_MAX, NULL), EFAULT);
    FAILS(umsg_mq_send_batch(NONE, messages, 1, NULL), EBADF);
    FAILS(umsg_mq_send_some(reads, messages, 1, NULL), EBADF);
    expect_letters(queue, "");
    CHECK(umsg_mq_close(reads) == 0);
    done(queue, "/wrong");
}

/* Prepares `n` messages to receive, each with a buffer of 16 bytes. */
static void make_places(struct umsg_mq_message *places, char (*room)[16], size_t n)
{
    size_t i;
    memset(places, 0xff, n * sizeof *places);
    memset(room, 0, n * 16);
    for (i = 0; i < n; i++) {
        places[i].data = room[i];
        places[i].size = 16;
    }
}

static void what_is_there_is_received_in_order_of_delivery(void)
{
    umsg_mqd_t queue = make("/receive", 10, 16, O_NONBLOCK), waits = umsg_mq_open("/receive", O_RDWR);
    struct umsg_mq_message messages[SEVERAL], places[SEVERAL];
    char room[SEVERAL][16];
    fill(messages, SEVERAL);
    messages[3].priority = 9;
    make_places(places, room, SEVERAL);
    FAILS(umsg_mq_receive_batch(queue, places, SEVERAL, NULL), EAGAIN);
    FAILS(umsg_mq_receive_batch(waits, places, SEVERAL, &past), ETIMEDOUT);
    CHECK(umsg_mq_receive_batch(queue, places, 0, NULL) == 0);
    CHECK(umsg_mq_send_batch(queue, messages, SEVERAL, NULL) == 0);
    CHECK(umsg_mq_receive_batch(queue, places, 2, NULL) == 2);
    CHECK(places[0].len == 1 && places[0].priority == 9 && room[0][0] == *(char *)messages[3].data);
    CHECK(places[1].len == 1 && places[1].priority == 0 && room[1][0] == *(char *)messages[0].data);
    CHECK(places[2].len == SIZE_MAX);
    CHECK(umsg_mq_receive_batch(queue, places, SEVERAL, NULL) == 3);
    CHECK(room[2][0] == *(char *)messages[4].data && room[3][0] == 0);
    CHECK(umsg_mq_close(waits) == 0);
    done(queue, "/receive");
}

static void a_message_that_does_not_fit_ends_the_batch_and_stays(void)
{
    umsg_mqd_t queue = make("/fit", 10, 16, O_NONBLOCK);
    struct umsg_mq_message places[SEVERAL];
    char room[SEVERAL][16];
    make_places(places, room, SEVERAL);
    places[2].size = 3;
    places[3].size = 0;
    places[3].data = NULL;
    CHECK(umsg_mq_send(queue, "0123456789", 10, 3) == 0);
    CHECK(umsg_mq_send(queue, "abc", 3, 2) == 0);
    CHECK(umsg_mq_send(queue, "long", 4, 1) == 0);
    CHECK(umsg_mq_receive_batch(queue, places, SEVERAL, NULL) == 2);
    CHECK(places[0].len == 10 && places[1].len == 3 && memcmp(room[1], "abc", 3) == 0);
    CHECK(umsg_mq_receive(queue, room[0], 16, NULL) == 4);
    CHECK(umsg_mq_send(queue, "x", 1, 3) == 0 && umsg_mq_send(queue, "", 0, 2) == 0);
    CHECK(umsg_mq_receive_batch(queue, places, 1, NULL) == 1);
    FAILS(umsg_mq_receive_batch(queue, places + 2, 2, NULL), EMSGSIZE);
    done(queue, "/fit");
}

static void places_that_can_not_be_are_refused(void)
{
    umsg_mqd_t queue = make("/places", 10, 16, O_NONBLOCK);
    umsg_mqd_t sends = umsg_mq_open("/places", O_WRONLY);
    struct umsg_mq_message places[SEVERAL];
    char room[SEVERAL][16];
    CHECK(umsg_mq_send(queue, "stays", 5, 0) == 0);
    make_places(places, room, SEVERAL);
    FAILS(umsg_mq_receive_batch(queue, NULL, 1, NULL), EFAULT);
    FAILS(umsg_mq_receive_batch(queue, places, SIZE_MAX, NULL), EFAULT);
    FAILS(umsg_mq_receive_batch(sends, places, 1, NULL), EBADF);
    FAILS(umsg_mq_receive_batch(NONE, places, 1, NULL), EBADF);
    places[4].data = NULL;
    FAILS(umsg_mq_receive_batch(queue, places, SEVERAL, NULL), EFAULT);
    CHECK(umsg_mq_receive_batch(queue, places, 4, NULL) == 1);
    CHECK(umsg_mq_close(sends) == 0);
    done(queue, "/places");
}

static const struct test_case cases[] = {
    CASE(a_batch_is_sent_whole_and_by_priority),
    CASE(a_batch_for_which_there_is_no_room_is_not_sent),
    CASE(some_are_as_many_as_fit),
    CASE(a_batch_waits_until_there_is_room_for_all),
    CASE(what_can_not_be_sent_keeps_the_others_back),
    CASE(what_is_there_is_received_in_order_of_delivery),
    CASE(a_message_that_does_not_fit_ends_the_batch_and_stays),
    CASE(places_that_can_not_be_are_refused),
};

MAIN(cases)
