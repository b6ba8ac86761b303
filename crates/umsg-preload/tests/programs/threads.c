/* Threads that use and close descriptors at the same time. */
#include "check.h"
#include <poll.h>
#include <pthread.h>

static volatile mqd_t queue;
static volatile int stop;
static volatile pid_t receiver;

static void *receive_one(void *unused) {
    (void)unused;
    char buffer[16];
    receiver = gettid();
    EXPECT(mq_receive(queue, buffer, 16, NULL) == 4);
    return NULL;
}

CASE(closing_the_descriptor_neither_wakes_nor_breaks_a_blocked_receiver) {
    queue = create(O_RDWR, 4);
    mqd_t other = mq_open(name(), O_RDWR);
    EXPECT(mq_unlink(name()) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, receive_one, NULL) == 0);
    while (!receiver) usleep(1000);
    await_sleep(receiver);
    EXPECT(mq_close(queue) == 0);
    usleep(50000);
    EXPECT(pthread_tryjoin_np(thread, NULL) == EBUSY);
    EXPECT(mq_send(other, "late", 4, 0) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
}

static void *send_until_stopped(void *unused) {
    (void)unused;
    long sent = 0;
    while (!stop)
        if (mq_send(queue, "x", 1, 0) == 0)
            sent++;
        else if (errno != EBADF && errno != EAGAIN) {
            perror("mq_send");
            exit(1);
        }
    return (void *)sent;
}

CASE(closing_and_opening_under_senders_loses_no_memory_access) {
    mqd_t keeper = create(O_RDWR | O_NONBLOCK, 8);
    queue = mq_open(name(), O_RDWR | O_NONBLOCK);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) EXPECT(pthread_create(&threads[i], NULL, send_until_stopped, NULL) == 0);
    long received = 0;
    char buffer[16];
    for (int round = 0; round < 3000; round++) {
        EXPECT(mq_close(queue) == 0);
        queue = mq_open(name(), O_RDWR | O_NONBLOCK);
        EXPECT(queue >= 0);
        while (mq_receive(keeper, buffer, 16, NULL) == 1) received++;
    }
    stop = 1;
    long sent = 0;
    for (int i = 0; i < 3; i++) {
        void *result;
        EXPECT(pthread_join(threads[i], &result) == 0);
        sent += (long)result;
    }
    while (mq_receive(keeper, buffer, 16, NULL) == 1) received++;
    EXPECT(sent == received);
}

/* Opens and closes a different queue in each thread. The tests use more threads than the library has records of threads. */
static void *one_message(void *number) {
    char own[80], buffer[16];
    snprintf(own, sizeof own, "%s-%ld", name(), (long)number);
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    mqd_t mine = mq_open(own, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    EXPECT(mine >= 0);
    EXPECT(mq_unlink(own) == 0);
    EXPECT(mq_send(mine, "x", 1, 0) == 0 && mq_receive(mine, buffer, 16, NULL) == 1);
    EXPECT(mq_close(mine) == 0);
    return NULL;
}

static long mapped_queues(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    long found = 0;
    while (fgets(line, sizeof line, maps)) found += strstr(line, "umsg-preload-test-") != NULL;
    fclose(maps);
    return found;
}

CASE(a_closed_queue_is_unmapped) {
    mqd_t first = create(O_RDWR, 4);
    EXPECT(mq_close(first) == 0);
    long before = mapped_queues();
    for (long round = 0; round < 300; round++) one_message((void *)round);
    EXPECT(mapped_queues() <= before);
}

CASE(threads_that_come_and_go_leave_nothing_mapped) {
    name();
    for (long round = 0; round < 40; round++) {
        pthread_t threads[30];
        for (long i = 0; i < 30; i++)
            EXPECT(pthread_create(&threads[i], NULL, one_message, (void *)(round * 30 + i)) == 0);
        for (int i = 0; i < 30; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    }
    one_message((void *)-1L);
    EXPECT(mapped_queues() == 0);
}

/* A few closed queues with a name stay mapped for the next opening, but no queue that was removed or polled. */
CASE(few_closed_queues_stay_mapped) {
    name();
    char own[80];
    long most = 0;
    for (int round = 0; round < 3; round++) {
        for (long i = 0; i < 30; i++) {
            snprintf(own, sizeof own, "%s-%ld", name(), i);
            struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
            mqd_t queue = mq_open(own, O_RDWR | O_CREAT, 0600, &attributes);
            EXPECT(queue >= 0 && mq_close(queue) == 0);
            if (mapped_queues() > most) most = mapped_queues();
        }
    }
    EXPECT(most <= 9);
    for (long i = 0; i < 30; i++) {
        snprintf(own, sizeof own, "%s-%ld", name(), i);
        if (i == 29) {
            mqd_t queue = mq_open(own, O_RDWR);
            struct pollfd polled = {.fd = queue, .events = POLLIN};
            int lowest = dup(queue);
            EXPECT(poll(&polled, 1, 5) == 0 && close(lowest) == 0 && mq_close(queue) == 0);
            EXPECT(mapped_queues() == 0);
        }
        EXPECT(mq_unlink(own) == 0);
    }
    EXPECT(mapped_queues() == 0);
}
