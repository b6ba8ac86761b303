/* Threads that use and close descriptors at the same time. */
#include "check.h"
#include <pthread.h>

static volatile mqd_t queue;
static volatile int stop;

static void *receive_one(void *unused) {
    (void)unused;
    char buffer[16];
    EXPECT(mq_receive(queue, buffer, 16, NULL) == 4);
    return NULL;
}

CASE(closing_the_descriptor_neither_wakes_nor_breaks_a_blocked_receiver) {
    queue = create(O_RDWR, 4);
    mqd_t other = mq_open(name(), O_RDWR);
    EXPECT(mq_unlink(name()) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, receive_one, NULL) == 0);
    usleep(50000);
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

/* Opens and closes a different queue in each thread: more threads in all than there are records of threads. */
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

static pthread_barrier_t barrier;
static int cleaned_up;

static void clean_up(void *unused) {
    (void)unused;
    cleaned_up++;
}

static void *send_when_cancelled(void *unused) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    pthread_cleanup_push(clean_up, NULL);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    mq_send(queue, "x", 1, 0);
    pthread_cleanup_pop(0);
    return unused;
}

CASE(a_cancelled_thread_ends_on_entry_to_mq_send) {
    queue = create(O_RDWR | O_NONBLOCK, 4);
    pthread_barrier_init(&barrier, NULL, 2);
    for (int round = 1; round <= 3; round++) {
        pthread_t thread;
        void *result;
        EXPECT(pthread_create(&thread, NULL, send_when_cancelled, NULL) == 0);
        pthread_barrier_wait(&barrier);
        EXPECT(pthread_cancel(thread) == 0);
        pthread_barrier_wait(&barrier);
        EXPECT(pthread_join(thread, &result) == 0);
        EXPECT(result == PTHREAD_CANCELED && cleaned_up == round && count(queue) == 0);
    }
}

static long blocked_call(int side) {
    char buffer[16];
    return side == 's' ? mq_send(queue, "blocked", 7, 0) : mq_receive(queue, buffer, 16, NULL);
}

static void *block_in_call(void *side) {
    pthread_cleanup_push(clean_up, NULL);
    pthread_barrier_wait(&barrier);
    blocked_call(*(char *)side);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Cancels threads that are blocked, are about to be, or spin. They take nothing and leave nothing. */
static void cancel_blocked(char *side) {
    queue = create(O_RDWR, 1);
    if (*side == 's') EXPECT(mq_send(queue, "full", 4, 0) == 0);
    pthread_barrier_init(&barrier, NULL, 2);
    for (int round = 1; round <= 300; round++) {
        pthread_t thread;
        void *result;
        EXPECT(pthread_create(&thread, NULL, block_in_call, side) == 0);
        pthread_barrier_wait(&barrier);
        if (round % 100 == 0) usleep(150000);
        for (volatile int i = 0; i < round % 100 * 1000; i++) {}
        EXPECT(pthread_cancel(thread) == 0);
        EXPECT(pthread_join(thread, &result) == 0);
        EXPECT(result == PTHREAD_CANCELED && cleaned_up == round);
    }
    char buffer[16];
    if (*side == 'r') EXPECT(mq_send(queue, "mine", 4, 0) == 0 && count(queue) == 1);
    EXPECT(mq_receive(queue, buffer, 16, NULL) == 4 && count(queue) == 0);
}

CASE(cancelled_threads_end_in_a_blocked_receive) { cancel_blocked("r"); }

CASE(cancelled_threads_end_in_a_blocked_send) { cancel_blocked("s"); }

static void *receive_uncancelled(void *unused) {
    char buffer[16];
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cleanup_push(clean_up, NULL);
    pthread_barrier_wait(&barrier);
    EXPECT(mq_receive(queue, buffer, 16, NULL) == 4);
    EXPECT(cleaned_up == 0);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    mq_receive(queue, buffer, 16, NULL);
    pthread_cleanup_pop(0);
    return unused;
}

CASE(where_cancellation_is_disabled_a_blocked_receive_goes_on) {
    queue = create(O_RDWR, 1);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    void *result;
    EXPECT(pthread_create(&thread, NULL, receive_uncancelled, NULL) == 0);
    pthread_barrier_wait(&barrier);
    usleep(50000);
    EXPECT(pthread_cancel(thread) == 0);
    usleep(50000);
    EXPECT(pthread_tryjoin_np(thread, NULL) == EBUSY);
    EXPECT(mq_send(queue, "late", 4, 0) == 0);
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && cleaned_up == 1);
}
