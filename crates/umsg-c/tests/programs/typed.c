/* Functions that System V queues lack: time-outs, batches, leases, peeking, and errors with a cause. */
#define _GNU_SOURCE
#include "check.h"
#include "times.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/msg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEVERAL 5
#define NO_KEY IPC_PRIVATE

struct message {
    long type;
    char text[100];
};

static int make_typed(void)
{
    int queue = umsg_msgget(NO_KEY, 0600);
    CHECK(queue >= 0);
    return queue;
}

static void remove_typed(int queue)
{
    CHECK(umsg_msgctl(queue, IPC_RMID, NULL) == 0);
}

static void put(int queue, long type, const char *text)
{
    struct message message;
    message.type = type;
    strcpy(message.text, text);
    CHECK(umsg_msgsnd(queue, &message, strlen(text), IPC_NOWAIT) == 0);
}

static void get(int queue, long wanted, long type, const char *text)
{
    struct message message;
    ssize_t length = umsg_msgrcv(queue, &message, sizeof message.text, wanted, IPC_NOWAIT);
    CHECK(length == (ssize_t)strlen(text) && memcmp(message.text, text, strlen(text)) == 0);
    CHECK(message.type == type);
}

static void set_qbytes(int queue, unsigned long bytes)
{
    struct msqid_ds stat;
    CHECK(umsg_msgctl(queue, IPC_STAT, &stat) == 0);
    stat.msg_qbytes = bytes;
    CHECK(umsg_msgctl(queue, IPC_SET, &stat) == 0);
}

/* Ends a child with status 0, by an execve: at an exit, valgrind would read all of the queue's memory. */
static void leave(void)
{
    execlp("true", "true", (char *)NULL);
    _exit(1);
}

static void a_wait_ends_when_its_time_comes(void)
{
    int queue = make_typed();
    struct timespec later = in_milliseconds(30);
    struct message message = {3, "x"};
    FAILS(umsg_msg_timedreceive(queue, &message, 100, 0, 0, &past), ETIMEDOUT);
    FAILS(umsg_msg_timedreceive(queue, &message, 100, 0, 0, &later), ETIMEDOUT);
    FAILS(umsg_msg_timedreceive(queue, &message, 100, 0, IPC_NOWAIT, &later), ENOMSG);
    CHECK(umsg_msg_timedsend(queue, &message, 1, 0, &past) == 0);
    FAILS(umsg_msg_timedreceive(queue, &message, 100, 4, 0, &past), ETIMEDOUT);
    CHECK(umsg_msg_timedreceive(queue, &message, 100, 3, 0, &past) == 1);
    set_qbytes(queue, 1);
    CHECK(umsg_msg_timedsend(queue, &message, 1, 0, NULL) == 0);
    FAILS(umsg_msg_timedsend(queue, &message, 1, 0, &past), ETIMEDOUT);
    later = in_milliseconds(30);
    FAILS(umsg_msg_timedsend(queue, &message, 1, 0, &later), ETIMEDOUT);
    FAILS(umsg_msg_timedsend(queue, &message, 1, IPC_NOWAIT, &later), EAGAIN);
    remove_typed(queue);
}

static void a_time_that_is_none_is_the_first_error(void)
{
    struct message message = {0, "x"};
    struct umsg_msg_lease lease;
    FAILS(umsg_msg_timedsend(-1, NULL, 1, 0, &wrong), EINVAL);
    CHECK(strstr(umsg_last_error(), "nanoseconds") != NULL);
    FAILS(umsg_msg_timedreceive(-1, NULL, 1, 0, 0, &wrong), EINVAL);
    FAILS(umsg_msg_timedsend(-1, &message, 1, 0, (struct timespec *)8), EFAULT);
    FAILS(umsg_msg_lease(-1, &lease, 0, 0, (struct timespec *)8), EFAULT);
}

static void the_last_error_says_why(void)
{
    int queue = make_typed();
    struct message message = {0, "12345"};
    struct msqid_ds stat;
    FAILS(umsg_msgsnd(queue, &message, 1, 0), EINVAL);
    CHECK(strstr(umsg_last_error(), "type must be at least 1") != NULL);
    message.type = 1;
    FAILS(umsg_msgsnd(queue, &message, 8193, 0), EINVAL);
    CHECK(strstr(umsg_last_error(), "8193 bytes is too long") != NULL);
    FAILS(umsg_msgrcv(queue, &message, 1, 0, IPC_NOWAIT), ENOMSG);
    CHECK(strstr(umsg_last_error(), "no matching message") != NULL);
    put(queue, 1, "12345");
    FAILS(umsg_msgrcv(queue, &message, 1, 0, IPC_NOWAIT), E2BIG);
    CHECK(strstr(umsg_last_error(), "longer than the buffer of 1 bytes") != NULL);
    FAILS(umsg_msgrcv(queue, &message, 1, 0, MSG_COPY), EINVAL);
    CHECK(strstr(umsg_last_error(), "MSG_COPY requires IPC_NOWAIT") != NULL);
    set_qbytes(queue, 5);
    FAILS(umsg_msgsnd(queue, &message, 1, IPC_NOWAIT), EAGAIN);
    CHECK(strstr(umsg_last_error(), "the queue is full") != NULL);
    FAILS(umsg_msgctl(queue, 4711, &stat), EINVAL);
    CHECK(strstr(umsg_last_error(), "none of the commands") != NULL);
    remove_typed(queue);
    FAILS(umsg_msgsnd(queue, &message, 1, 0), EINVAL);
    CHECK(strstr(umsg_last_error(), "no queue has this identifier") != NULL);
    FAILS(umsg_msgctl(queue, IPC_STAT, &stat), EINVAL);
    CHECK(strstr(umsg_last_error(), "no queue has this identifier") != NULL);
    FAILS(umsg_msgget(0x1234, 0), ENOENT);
    CHECK(strstr(umsg_last_error(), "no queue has this key") != NULL);
}

static void an_owner_raises_his_queue_beyond_msgmnb(void)
{
    int queue = make_typed();
    struct msqid_ds stat;
    set_qbytes(queue, 1 << 20);
    CHECK(umsg_msgctl(queue, IPC_STAT, &stat) == 0 && stat.msg_qbytes == 1 << 20);
    stat.msg_perm.uid = (uid_t)-1;
    FAILS(umsg_msgctl(queue, IPC_SET, &stat), EINVAL);
    CHECK(strstr(umsg_last_error(), "must not be -1") != NULL);
    remove_typed(queue);
}

static void make_batch(struct umsg_msg_message *messages)
{
    static char *texts[] = {"one", "", "three", "four", "five"};
    int i;
    for (i = 0; i < SEVERAL; i++) {
        memset(&messages[i], 0, sizeof messages[i]);
        messages[i].data = i == 1 ? NULL : texts[i];
        messages[i].len = strlen(texts[i]);
        messages[i].mtype = i % 2 + 1;
    }
}

static void a_batch_is_sent_whole_or_not_at_all(void)
{
    int queue = make_typed();
    struct umsg_msg_message messages[SEVERAL];
    struct msqid_ds stat;
    make_batch(messages);
    CHECK(umsg_msg_send_batch(queue, messages, SEVERAL, 0, NULL) == 0);
    get(queue, 2, 2, "");
    get(queue, 0, 1, "one");
    get(queue, 2, 2, "four");
    get(queue, 0, 1, "three");
    get(queue, 0, 1, "five");
    CHECK(umsg_msg_send_batch(queue, NULL, 0, 0, NULL) == 0);
    set_qbytes(queue, 20);
    put(queue, 7, "12345");
    FAILS(umsg_msg_send_batch(queue, messages, SEVERAL, IPC_NOWAIT, NULL), EAGAIN);
    FAILS(umsg_msg_send_batch(queue, messages, SEVERAL, 0, &past), ETIMEDOUT);
    CHECK(umsg_msgctl(queue, IPC_STAT, &stat) == 0 && stat.msg_qnum == 1);
    set_qbytes(queue, 10);
    FAILS(umsg_msg_send_batch(queue, messages, SEVERAL, 0, NULL), EMSGSIZE);
    remove_typed(queue);
}

static void what_can_not_be_sent_keeps_the_others_back(void)
{
    int queue = make_typed();
    struct umsg_msg_message messages[SEVERAL];
    struct msqid_ds stat;
    make_batch(messages);
    messages[4].mtype = 0;
    FAILS(umsg_msg_send_batch(queue, messages, SEVERAL, 0, NULL), EINVAL);
    make_batch(messages);
    messages[4].len = 8193;
    FAILS(umsg_msg_send_batch(queue, messages, SEVERAL, 0, NULL), EINVAL);
    make_batch(messages);
    messages[4].data = NULL;
    FAILS(umsg_msg_send_batch(queue, messages, SEVERAL, 0, NULL), EFAULT);
    FAILS(umsg_msg_send_batch(queue, NULL, 1, 0, NULL), EFAULT);
    FAILS(umsg_msg_send_batch(queue, messages, SIZE_MAX, 0, NULL), EFAULT);
    make_batch(messages);
    FAILS(umsg_msg_send_batch(queue, messages, SEVERAL, MSG_NOERROR, NULL), EINVAL);
    CHECK(umsg_msgctl(queue, IPC_STAT, &stat) == 0 && stat.msg_qnum == 0);
    remove_typed(queue);
    FAILS(umsg_msg_send_batch(queue, messages, SEVERAL, 0, NULL), EINVAL);
}

static void make_places(struct umsg_msg_message *places, char (*room)[16])
{
    int i;
    for (i = 0; i < SEVERAL; i++) {
        memset(&places[i], 0xff, sizeof places[i]);
        places[i].data = room[i];
        places[i].size = 16;
    }
}

static void several_are_received_by_type(void)
{
    int queue = make_typed();
    struct umsg_msg_message messages[SEVERAL], places[SEVERAL];
    char room[SEVERAL][16];
    make_batch(messages);
    make_places(places, room);
    FAILS(umsg_msg_receive_batch(queue, places, SEVERAL, 0, IPC_NOWAIT, NULL), ENOMSG);
    CHECK(umsg_msg_send_batch(queue, messages, SEVERAL, 0, NULL) == 0);
    CHECK(umsg_msg_receive_batch(queue, places, 2, 1, 0, NULL) == 2);
    CHECK(places[0].len == 3 && memcmp(room[0], "one", 3) == 0 && places[0].mtype == 1);
    CHECK(places[1].len == 5 && memcmp(room[1], "three", 5) == 0);
    CHECK(umsg_msg_receive_batch(queue, places, SEVERAL, 1, MSG_EXCEPT, NULL) == 2);
    CHECK(places[0].len == 0 && places[1].len == 4 && places[1].mtype == 2);
    CHECK(umsg_msg_receive_batch(queue, places, SEVERAL, -9, 0, NULL) == 1);
    CHECK(umsg_msg_receive_batch(queue, places, 0, 0, 0, NULL) == 0);
    FAILS(umsg_msg_receive_batch(queue, places, 1, 0, MSG_NOERROR, NULL), EINVAL);
    FAILS(umsg_msg_receive_batch(queue, NULL, 1, 0, 0, NULL), EFAULT);
    put(queue, 1, "fits"), put(queue, 1, "does not fit in"), put(queue, 1, "");
    places[1].size = 4;
    CHECK(umsg_msg_receive_batch(queue, places, SEVERAL, 0, 0, NULL) == 1);
    FAILS(umsg_msg_receive_batch(queue, places + 1, 1, 0, 0, NULL), E2BIG);
    get(queue, 0, 1, "does not fit in");
    get(queue, 0, 1, "");
    remove_typed(queue);
}

static void *receive_several(void *queue)
{
    struct umsg_msg_message place;
    static char room[8192];
    memset(&place, 0, sizeof place);
    place.data = room;
    place.size = sizeof room;
    CHECK(umsg_msg_receive_batch(*(int *)queue, &place, 1, 7, 0, NULL) == 1);
    CHECK(place.mtype == 7 && place.len == 6 && memcmp(room, "wanted", 6) == 0);
    return NULL;
}

static void a_batch_waits_for_one_message(void)
{
    int queue = make_typed();
    struct umsg_msg_status status;
    struct umsg_msg_message place;
    struct timespec later = in_milliseconds(10000);
    const struct timespec millisecond = {0, 1000000};
    char room[16];
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, receive_several, &queue) == 0);
    do {
        nanosleep(&millisecond, NULL);
        CHECK(umsg_msg_status(queue, &status, sizeof status) == 0);
    } while (status.blocked_receivers == 0);
    put(queue, 6, "other"), put(queue, 7, "wanted");
    CHECK(pthread_join(thread, NULL) == 0);
    memset(&place, 0, sizeof place);
    place.data = room;
    place.size = sizeof room;
    FAILS(umsg_msg_receive_batch(queue, &place, 1, 7, 0, &later), E2BIG);
    FAILS(umsg_msg_receive_batch(queue, &place, 1, 7, 0, &past), ETIMEDOUT);
    get(queue, 0, 6, "other");
    remove_typed(queue);
}

static void a_leased_message_stays_until_it_is_acknowledged(void)
{
    int queue = make_typed();
    struct umsg_msg_lease lease;
    struct umsg_msg_status status;
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    put(queue, 4, "other"), put(queue, 5, "leased");
    CHECK(umsg_msg_lease(queue, &lease, 5, 0, NULL) == 0);
    CHECK(lease.len == 6 && memcmp(lease.data, "leased", 6) == 0 && lease.mtype == 5);
    CHECK(lease.deliveries == 1 && lease.pid == getpid() && lease.id != 0);
    CHECK(lease.sent > ((int64_t)now.tv_sec - 60) * 1000000000);
    CHECK(umsg_msg_status(queue, &status, sizeof status) == 0);
    CHECK(status.leased == 1 && status.leased_bytes == 6);
    CHECK(umsg_msg_acknowledge(&lease) == 0 && lease.data == NULL && lease.id == 0);
    FAILS(umsg_msg_acknowledge(&lease), EINVAL);
    FAILS(umsg_msg_return(&lease), EINVAL);
    FAILS(umsg_msg_lease(queue, &lease, 5, IPC_NOWAIT, NULL), ENOMSG);
    FAILS(umsg_msg_lease(queue, &lease, 5, 0, &past), ETIMEDOUT);
    FAILS(umsg_msg_lease(queue, &lease, 5, MSG_NOERROR, NULL), EINVAL);
    FAILS(umsg_msg_lease(queue, NULL, 4, 0, NULL), EFAULT);
    CHECK(umsg_msg_status(queue, &status, sizeof status) == 0);
    CHECK(status.leased == 0 && status.messages == 1);
    remove_typed(queue);
}

static void a_returned_message_goes_back_to_its_place(void)
{
    int queue = make_typed();
    struct umsg_msg_lease lease;
    struct umsg_msg_peeked peeked;
    put(queue, 2, "first"), put(queue, 2, "second");
    CHECK(umsg_msg_lease(queue, &lease, 0, 0, NULL) == 0);
    CHECK(umsg_msg_return(&lease) == 0);
    memset(&peeked, 0, sizeof peeked);
    CHECK(umsg_msg_peek(queue, 0, &peeked) == 0 && peeked.len == 5 && peeked.returns == 1);
    get(queue, 0, 2, "first");
    get(queue, 0, 2, "second");
    remove_typed(queue);
}

static void a_lease_with_a_limit_ends_by_itself(void)
{
    const struct timespec millisecond = {0, 1000000}, fifty = {0, 50000000};
    int queue = make_typed();
    struct umsg_msg_lease lease, second;
    struct timespec later = in_milliseconds(20000);
    put(queue, 1, "slow");
    CHECK(umsg_msg_lease(queue, &lease, 0, 0, NULL) == 0);
    FAILS(umsg_msg_lease_limit(&lease, &wrong), EINVAL);
    FAILS(umsg_msg_lease_limit(&lease, NULL), EFAULT);
    CHECK(umsg_msg_lease_limit(&lease, &millisecond) == 0);
    nanosleep(&fifty, NULL);
    CHECK(umsg_msg_lease(queue, &second, 0, 0, &later) == 0 && second.deliveries == 2);
    FAILS(umsg_msg_acknowledge(&lease), ESTALE);
    CHECK(umsg_msg_acknowledge(&second) == 0);
    remove_typed(queue);
}

static int put_later(int queue, const char *text, int flags, uint64_t delay, const struct timespec *deadline)
{
    struct message message;
    message.type = 5;
    strcpy(message.text, text);
    return umsg_msg_timedsend_after(queue, &message, strlen(text), flags, delay, deadline);
}

static void a_message_is_sent_or_returned_for_later(void)
{
    const uint64_t moment = 50 * 1000000, hour = (uint64_t)3600 * 1000000000;
    const struct timespec past = {1, 0};
    struct message message = {.type = 5, .text = "later"};
    struct umsg_msg_status status;
    struct umsg_msg_lease lease;
    int queue = make_typed();
    CHECK(umsg_msg_send_after(queue, &message, 5, 0, hour) == 0);
    FAILS(umsg_msg_send_after(queue, NULL, 5, 0, moment), EFAULT);
    FAILS(umsg_msg_send_after(-1, &message, 5, 0, moment), EINVAL);
    CHECK(umsg_msg_status(queue, &status, sizeof status) == 0);
    CHECK(status.messages == 0 && status.leased == 0 && status.delayed == 1 && status.leased_bytes == 5);
    FAILS(umsg_msgrcv(queue, &message, sizeof message.text, 0, IPC_NOWAIT), ENOMSG);
    message.type = 0;
    FAILS(umsg_msg_send_after(queue, &message, 5, 0, moment), EINVAL);
    message.type = 6;
    CHECK(umsg_msg_send_after(queue, &message, 4, 0, moment) == 0);
    CHECK(umsg_msg_lease(queue, &lease, 6, 0, NULL) == 0 && lease.len == 4 && lease.deliveries == 1);
    CHECK(umsg_msg_return_after(&lease, moment) == 0);
    FAILS(umsg_msg_return_after(&lease, moment), EINVAL);
    CHECK(umsg_msgrcv(queue, &message, sizeof message.text, 0, 0) == 4 && message.type == 6);
    set_qbytes(queue, 10);
    CHECK(put_later(queue, "later", IPC_NOWAIT, hour, NULL) == 0);
    FAILS(put_later(queue, "later", IPC_NOWAIT, hour, NULL), EAGAIN);
    FAILS(put_later(queue, "later", 0, hour, &past), ETIMEDOUT);
    remove_typed(queue);
    FAILS(put_later(queue, "later", 0, hour, NULL), EINVAL);
}

static void a_stream_ends_by_a_call_or_with_its_last_producer(void)
{
    struct umsg_msg_options options = {.size = sizeof options, .flags = UMSG_CLOSE_WITH_LAST_PRODUCER};
    struct umsg_msg_status status;
    struct message message = {.type = 1, .text = ""};
    int queue, key = 0x7e57;
    options.retry_delay = 1000;
    options.retry_delay_max = 2000;
    queue = umsg_msgget_with(key, IPC_CREAT | 0600, &options);
    CHECK(queue >= 0 && umsg_msgget_with(key, 0600, &options) == queue && umsg_msgget_with(key, 0, NULL) == queue);
    options.retry_delay = 1001;
    FAILS(umsg_msgget_with(key, 0600, &options), EINVAL);
    options.retry_delay = 1000;
    options.flags = 1;
    FAILS(umsg_msgget_with(key, 0600, &options), EINVAL);
    options.flags = 0;
    options.reserved = 1;
    FAILS(umsg_msgget_with(key, 0600, &options), EINVAL);
    options.size = 3;
    FAILS(umsg_msgget_with(key, 0600, &options), EINVAL);
    CHECK(umsg_msg_begin_to_produce(queue) == 0);
    CHECK(umsg_msg_status(queue, &status, sizeof status) == 0);
    CHECK(status.producers == 1 && status.retry_delay == 1000 && status.retry_delay_max == 2000);
    put(queue, 1, "last");
    CHECK(umsg_msg_end_producing(queue) == 1 && umsg_msg_end_producing(queue) == 0);
    FAILS(umsg_msgsnd(queue, &message, 0, 0), EPIPE);
    FAILS(umsg_msg_begin_to_produce(queue), EPIPE);
    CHECK(umsg_msg_status(queue, &status, sizeof status) == 0 && status.send_closed == 1);
    get(queue, 0, 1, "last");
    FAILS(umsg_msgrcv(queue, &message, sizeof message.text, 0, 0), EPIPE);
    CHECK(umsg_msg_reopen_send(queue) == 1 && umsg_msg_reopen_send(queue) == 0);
    put(queue, 1, "again");
    CHECK(umsg_msg_close_send(queue) == 1 && umsg_msg_close_send(queue) == 0);
    get(queue, 0, 1, "again");
    FAILS(umsg_msgrcv(queue, &message, sizeof message.text, 0, IPC_NOWAIT), EPIPE);
    remove_typed(queue);
    FAILS(umsg_msg_close_send(queue), EINVAL);
}

static void a_lease_of_a_removed_queue_can_be_read_and_not_acknowledged(void)
{
    int queue = make_typed();
    struct umsg_msg_lease lease;
    put(queue, 1, "still there");
    CHECK(umsg_msg_lease(queue, &lease, 0, 0, NULL) == 0);
    remove_typed(queue);
    CHECK(memcmp(lease.data, "still there", 11) == 0);
    FAILS(umsg_msg_acknowledge(&lease), ESTALE);
    FAILS(umsg_msg_lease(queue, &lease, 0, 0, NULL), EINVAL);
}

static void what_a_killed_process_held_is_there_again(void)
{
    int queue = make_typed(), status;
    struct umsg_msg_lease lease;
    struct timespec later = in_milliseconds(20000);
    pid_t child;
    put(queue, 9, "survives");
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(umsg_msg_lease(queue, &lease, 0, 0, NULL) == 0);
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(umsg_msg_lease(queue, &lease, 9, 0, &later) == 0 && lease.deliveries == 2);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(umsg_msg_acknowledge(&lease), ESTALE);
        leave();
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(umsg_msg_acknowledge(&lease) == 0);
    remove_typed(queue);
}

static void *acknowledge(void *lease)
{
    CHECK(umsg_msg_acknowledge(lease) == 0);
    return NULL;
}

static void another_thread_may_end_a_lease_and_many_leases_may_be_held(void)
{
    int queue = make_typed(), i;
    struct umsg_msg_lease leases[SEVERAL];
    struct msqid_ds stat;
    pthread_t thread;
    for (i = 0; i < SEVERAL; i++) {
        put(queue, i + 1, "held");
        CHECK(umsg_msg_lease(queue, &leases[i], -LONG_MAX, 0, NULL) == 0);
        CHECK(leases[i].mtype == i + 1);
    }
    for (i = SEVERAL - 1; i >= 0; i--) {
        CHECK(pthread_create(&thread, NULL, acknowledge, &leases[i]) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(umsg_msgctl(queue, IPC_STAT, &stat) == 0 && stat.msg_qnum == 0);
    remove_typed(queue);
}

static void messages_can_be_looked_at_in_order_of_arrival(void)
{
    int queue = make_typed();
    char buffer[100];
    struct umsg_msg_peeked peeked;
    put(queue, 9, "first"), put(queue, 1, "second");
    memset(&peeked, 0xff, sizeof peeked);
    peeked.data = buffer;
    peeked.size = sizeof buffer;
    CHECK(umsg_msg_peek(queue, 0, &peeked) == 0);
    CHECK(peeked.len == 5 && memcmp(buffer, "first", 5) == 0 && peeked.mtype == 9);
    CHECK(peeked.pid == getpid() && peeked.returns == 0 && peeked.reserved[3] == 0);
    peeked.size = 3;
    CHECK(umsg_msg_peek(queue, 1, &peeked) == 0);
    CHECK(peeked.len == 6 && memcmp(buffer, "secst", 5) == 0 && peeked.mtype == 1);
    peeked.data = NULL;
    FAILS(umsg_msg_peek(queue, 1, &peeked), EFAULT);
    peeked.size = 0;
    CHECK(umsg_msg_peek(queue, 1, &peeked) == 0 && peeked.len == 6);
    FAILS(umsg_msg_peek(queue, 2, &peeked), ENOMSG);
    FAILS(umsg_msg_peek(queue, SIZE_MAX, &peeked), ENOMSG);
    FAILS(umsg_msg_peek(queue, 0, NULL), EFAULT);
    FAILS(umsg_msg_peek(-1, 0, &peeked), EINVAL);
    remove_typed(queue);
}

static void types_are_told_with_their_counts(void)
{
    int queue = make_typed();
    struct umsg_msg_type types[SEVERAL];
    memset(types, 0xff, sizeof types);
    CHECK(umsg_msg_types(queue, types, SEVERAL) == 0);
    put(queue, 9, "a"), put(queue, 2, "b"), put(queue, 9, "c");
    CHECK(umsg_msg_types(queue, types, SEVERAL) == 2);
    CHECK(types[0].mtype == 2 && types[0].messages == 1 && types[0].reserved == 0);
    CHECK(types[1].mtype == 9 && types[1].messages == 2);
    CHECK(umsg_msg_types(queue, types, 1) == 1 && types[0].mtype == 2);
    CHECK(umsg_msg_types(queue, NULL, 0) == 0);
    FAILS(umsg_msg_types(queue, NULL, 1), EFAULT);
    remove_typed(queue);
    FAILS(umsg_msg_types(queue, types, 1), EINVAL);
}

static void the_status_tells_what_was_done(void)
{
    int queue = make_typed();
    struct umsg_msg_status status;
    struct {
        struct umsg_msg_status known;
        char unknown[8];
    } later;
    int64_t now = (int64_t)time(NULL) * 1000000000, minute = (int64_t)60 * 1000000000;
    put(queue, 1, "12345"), put(queue, 2, "678");
    get(queue, 2, 2, "678");
    memset(&status, 0xff, sizeof status);
    CHECK(umsg_msg_status(queue, &status, sizeof status) == 0);
    CHECK(status.messages == 1 && status.bytes == 5 && status.qbytes == 16384 && status.msgmax == 8192);
    CHECK(status.id == queue && status.key == 0 && status.mode == 0600);
    CHECK(status.uid == geteuid() && status.cgid == getegid());
    CHECK(status.creator == (uint32_t)getpid() && status.last_receiver == (uint32_t)getpid());
    CHECK(status.created > now - minute && status.last_send > now - minute);
    CHECK(status.last_receive > now - minute && status.changed > now - minute);
    CHECK(status.memory > 0 && status.damaged == 0 && status.repairs == 0);
    memset(&later, 0xff, sizeof later);
    CHECK(umsg_msg_status(queue, &later.known, 2 * sizeof(uint64_t)) == 0);
    CHECK(later.known.bytes == 5 && later.known.qbytes == UINT64_MAX);
    CHECK(umsg_msg_status(queue, &later.known, sizeof later) == 0);
    CHECK(later.known.qbytes == 16384 && later.unknown[7] == 0);
    FAILS(umsg_msg_status(queue, NULL, sizeof status), EFAULT);
    FAILS(umsg_msg_status(-1, &status, sizeof status), EINVAL);
    remove_typed(queue);
}

static void how_to_wait_can_be_chosen(void)
{
    int queue = make_typed(), waiting;
    struct message message;
    for (waiting = UMSG_WAITING_ADAPTIVE; waiting <= UMSG_WAITING_SPINNING; waiting++) {
        CHECK(umsg_msg_set_waiting(queue, waiting) == 0);
        FAILS(umsg_msg_timedreceive(queue, &message, 100, 0, 0, &past), ETIMEDOUT);
    }
    FAILS(umsg_msg_set_waiting(queue, waiting), EINVAL);
    FAILS(umsg_msg_set_waiting(-1, UMSG_WAITING_BLOCKING), EINVAL);
    remove_typed(queue);
}

static void a_process_that_changes_its_user_can_have_that_noticed(void)
{
    int queue = make_typed(), status;
    struct message message = {1, "x"};
    struct msqid_ds stat;
    pid_t child;
    CHECK(umsg_msg_forget_caller() == 0);
    if (geteuid() != 0) {
        remove_typed(queue);
        return;
    }
    CHECK(umsg_msgctl(queue, IPC_STAT, &stat) == 0);
    stat.msg_perm.mode = 0622;
    CHECK(umsg_msgctl(queue, IPC_SET, &stat) == 0);
    put(queue, 1, "x");
    get(queue, 0, 1, "x");
    /* The other user needs access to the directory of the queues. */
    CHECK(chmod(getenv("UMSG_DIR"), 0755) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
        CHECK(umsg_msg_forget_caller() == 0);
        CHECK(umsg_msgsnd(queue, &message, 1, 0) == 0);
        FAILS(umsg_msgrcv(queue, &message, 100, 0, IPC_NOWAIT), EACCES);
        CHECK(strstr(umsg_last_error(), "does not let you receive") != NULL);
        FAILS(umsg_msgctl(queue, IPC_STAT, &stat), EACCES);
        FAILS(umsg_msgctl(queue, IPC_RMID, NULL), EPERM);
        CHECK(strstr(umsg_last_error(), "owner") != NULL);
        FAILS(umsg_msgctl(queue, IPC_SET, &stat), EPERM);
        CHECK(strstr(umsg_last_error(), "owner") != NULL);
        leave();
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(chmod(getenv("UMSG_DIR"), 0700) == 0);
    remove_typed(queue);
}

enum { USERS = 3, ROUNDS = 200 };

static volatile int current, over;

/* Sends to the current queue and receives from it, until the test is over. */
static void *use_whatever_there_is(void *unused)
{
    struct message message = {1, "x"};
    (void)unused;
    while (!over) {
        int queue = current;
        if (umsg_msgsnd(queue, &message, 1, IPC_NOWAIT) != 0)
            CHECK(errno == EAGAIN || errno == EINVAL || errno == EIDRM);
        if (umsg_msgrcv(queue, &message, sizeof message.text, 0, IPC_NOWAIT) < 0)
            CHECK(errno == ENOMSG || errno == EINVAL || errno == EIDRM);
        message.type = 1;
        /* valgrind runs one thread at a time, in long turns. The yield lets the thread that creates the queues run. */
        sched_yield();
    }
    return NULL;
}

/* Returns the number of mapped queues. */
static int mapped(void)
{
    char line[1000];
    FILE *maps = fopen("/proc/self/maps", "r");
    int count = 0;
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "/msg/") != NULL;
    CHECK(fclose(maps) == 0);
    return count;
}

static void queues_come_and_go_under_threads_that_use_them_and_are_unmapped(void)
{
    pthread_t threads[USERS];
    int i, last;
    current = make_typed();
    over = 0;
    for (i = 0; i < USERS; i++)
        CHECK(pthread_create(&threads[i], NULL, use_whatever_there_is, NULL) == 0);
    for (i = 0; i < ROUNDS; i++) {
        last = current;
        current = make_typed();
        remove_typed(last);
    }
    over = 1;
    for (i = 0; i < USERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(mapped() <= 2 + USERS);
    remove_typed(current);
}

static const struct test_case cases[] = {
    CASE(a_wait_ends_when_its_time_comes),
    CASE(a_time_that_is_none_is_the_first_error),
    CASE(the_last_error_says_why),
    CASE(an_owner_raises_his_queue_beyond_msgmnb),
    CASE(a_batch_is_sent_whole_or_not_at_all),
    CASE(what_can_not_be_sent_keeps_the_others_back),
    CASE(several_are_received_by_type),
    CASE(a_batch_waits_for_one_message),
    CASE(a_leased_message_stays_until_it_is_acknowledged),
    CASE(a_returned_message_goes_back_to_its_place),
    CASE(a_lease_with_a_limit_ends_by_itself),
    CASE(a_message_is_sent_or_returned_for_later),
    CASE(a_stream_ends_by_a_call_or_with_its_last_producer),
    CASE(a_lease_of_a_removed_queue_can_be_read_and_not_acknowledged),
    CASE(what_a_killed_process_held_is_there_again),
    CASE(another_thread_may_end_a_lease_and_many_leases_may_be_held),
    CASE(messages_can_be_looked_at_in_order_of_arrival),
    CASE(types_are_told_with_their_counts),
    CASE(the_status_tells_what_was_done),
    CASE(how_to_wait_can_be_chosen),
    CASE(a_process_that_changes_its_user_can_have_that_noticed),
    CASE(queues_come_and_go_under_threads_that_use_them_and_are_unmapped),
};

MAIN(cases)
