/* poll, ppoll, select and pselect on queues' descriptors, alone and among other files. */
#include "check.h"
#include "cancelled.h"
#include "handled.h"
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { READABLE = POLLIN | POLLRDNORM, WRITABLE = POLLOUT | POLLWRNORM, ANYTHING = ~0 & 0x7fff };

static void send_one(mqd_t queue) { EXPECT(mq_send(queue, "x", 1, 0) == 0); }

static void receive_one(mqd_t queue) {
    char buffer[16];
    EXPECT(mq_receive(queue, buffer, 16, NULL) >= 0);
}

/* Returns the events that poll reports at once. A poll with a long time-out must report the same events. */
static short ready(int descriptor, short events) {
    struct pollfd one = {descriptor, events, -1}, again = {descriptor, events, -1};
    int found = poll(&one, 1, 0);
    EXPECT(found == (one.revents != 0));
    if (found) EXPECT(poll(&again, 1, 10000) == 1 && again.revents == one.revents);
    return one.revents;
}

CASE(a_descriptor_is_readable_while_there_is_a_message_and_writable_while_there_is_room) {
    mqd_t queue = create(O_RDWR, 2);
    EXPECT(ready(queue, ANYTHING) == WRITABLE);
    send_one(queue);
    EXPECT(ready(queue, ANYTHING) == (READABLE | WRITABLE));
    send_one(queue);
    EXPECT(ready(queue, ANYTHING) == READABLE);
    receive_one(queue);
    EXPECT(ready(queue, ANYTHING) == (READABLE | WRITABLE));
    receive_one(queue);
    EXPECT(ready(queue, ANYTHING) == WRITABLE);
}

CASE(only_what_was_asked_for_is_told) {
    mqd_t queue = create(O_RDWR, 2);
    send_one(queue);
    EXPECT(ready(queue, POLLIN) == POLLIN && ready(queue, POLLRDNORM) == POLLRDNORM);
    EXPECT(ready(queue, POLLOUT) == POLLOUT && ready(queue, POLLWRNORM) == POLLWRNORM);
    EXPECT(ready(queue, POLLPRI | POLLRDBAND | POLLWRBAND | POLLRDHUP) == 0 && ready(queue, 0) == 0);
}

CASE(the_access_mode_does_not_matter) {
    mqd_t queue = create(O_RDWR, 2);
    send_one(queue);
    EXPECT(ready(mq_open(name(), O_RDONLY), ANYTHING) == (READABLE | WRITABLE));
    EXPECT(ready(mq_open(name(), O_WRONLY | O_NONBLOCK), ANYTHING) == (READABLE | WRITABLE));
}

CASE(a_closed_descriptor_is_invalid) {
    mqd_t queue = create(O_RDWR, 2);
    struct pollfd three[] = {{queue, POLLIN, 0}, {mq_open(name(), O_RDWR), POLLOUT, 0}, {-queue, POLLIN, 5}};
    EXPECT(mq_close(queue) == 0);
    EXPECT(poll(three, 3, -1) == 2);
    EXPECT(three[0].revents == POLLNVAL && three[1].revents == POLLOUT && three[2].revents == 0);
    EXPECT(poll(three, 3, 0) == 2 && three[0].revents == POLLNVAL && three[1].revents == POLLOUT);
}

CASE(poll_times_out) {
    mqd_t queue = create(O_RDWR, 2);
    struct pollfd one = {queue, POLLIN, 77};
    struct timespec begun, ended, moment = {0, 50000000};
    clock_gettime(CLOCK_MONOTONIC, &begun);
    EXPECT(poll(&one, 1, 50) == 0 && one.revents == 0);
    EXPECT(ppoll(&one, 1, &moment, NULL) == 0 && moment.tv_nsec == 50000000);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    EXPECT((ended.tv_sec - begun.tv_sec) * 1000000000 + ended.tv_nsec - begun.tv_nsec >= 100000000);
    moment.tv_nsec = 1000000000;
    EXPECT_ERRNO(ppoll(&one, 1, &moment, NULL), EINVAL);
    EXPECT_ERRNO(poll(nowhere, 1, 0), EFAULT);
}

/* Starts a child that calls `act` on the queue after 50 milliseconds. */
static pid_t later(mqd_t queue, void (*act)(mqd_t)) {
    pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        act(queue);
        _exit(0);
    }
    return child;
}

CASE(a_blocked_poll_ends_when_another_process_sends) {
    mqd_t queue = create(O_RDWR, 2);
    for (int round = 0; round < 5; round++) {
        pid_t child = later(queue, send_one);
        struct pollfd one = {queue, POLLIN, 0};
        EXPECT(poll(&one, 1, round % 2 ? 20000 : -1) == 1 && one.revents == POLLIN);
        expect_success(child);
        receive_one(queue);
    }
}

CASE(a_blocked_poll_ends_when_another_process_receives) {
    mqd_t queue = create(O_RDWR, 2);
    send_one(queue), send_one(queue);
    for (int round = 0; round < 5; round++) {
        pid_t child = later(queue, receive_one);
        struct pollfd one = {queue, POLLOUT, 0};
        EXPECT(poll(&one, 1, -1) == 1 && one.revents == POLLOUT);
        expect_success(child);
        send_one(queue);
    }
}

/* Opens the queue by its name, and sends. The child that runs this function has not polled the queue. */
static void send_by_name(mqd_t unused) {
    (void)unused;
    send_one(mq_open(name(), O_WRONLY));
}

CASE(a_sender_that_opened_the_queue_itself_ends_a_blocked_poll) {
    mqd_t queue = create(O_RDWR, 2);
    pid_t child = later(queue, send_by_name);
    struct pollfd one = {queue, POLLIN, 0};
    EXPECT(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
    expect_success(child);
}

CASE(a_sender_that_closes_what_it_does_not_know_still_ends_polls) {
    closefrom(3);
    mqd_t queue = create(O_RDWR, 1);
    struct pollfd one = {queue, POLLIN, 0};
    EXPECT(poll(&one, 1, 1) == 0);
    int rounds[2];
    EXPECT(pipe(rounds) == 0);
    pid_t child = fork();
    if (child == 0) {
        mqd_t own = mq_open(name(), O_RDWR);
        EXPECT(own == 6 && close(queue) == 0);
        char byte;
        while (read(rounds[0], &byte, 1) == 1 && byte != 'e') {
            for (int descriptor = 7; descriptor < 2000; descriptor++) EXPECT_ERRNO(close(descriptor), EBADF);
            EXPECT(close_range(7, ~0U, 0) == 0);
            int lowest = dup(0);
            EXPECT(lowest == queue && close(lowest) == 0);
            send_one(own);
        }
        _exit(0);
    }
    for (int i = 0; i < 20; i++) {
        EXPECT(write(rounds[1], "x", 1) == 1);
        EXPECT(poll(&one, 1, 20000) == 1 && one.revents == POLLIN);
        receive_one(queue);
        EXPECT(poll(&one, 1, 10) == 0);
    }
    EXPECT(write(rounds[1], "e", 1) == 1);
    expect_success(child);
}

CASE(a_queue_without_a_name_is_polled_too) {
    mqd_t queue = create(O_RDWR, 2);
    EXPECT(mq_unlink(name()) == 0);
    pid_t child = later(queue, send_one);
    struct pollfd one = {queue, POLLIN, 0};
    EXPECT(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
    expect_success(child);
}

CASE(queues_are_polled_among_pipes_and_sockets) {
    mqd_t queue = create(O_RDWR, 1), second = mq_open(name(), O_RDONLY);
    int pipes[2], sockets[2];
    EXPECT(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    struct pollfd all[] = {{pipes[0], POLLIN, 0}, {queue, POLLIN, 0},    {sockets[0], POLLIN, 0},
                           {-1, POLLIN, 0},       {second, POLLOUT, 0},  {pipes[1], POLLOUT, 0},
                           {queue, POLLOUT, 0},   {sockets[1], POLLIN, 0}};
    short expected[][8] = {{0, 0, 0, 0, POLLOUT, POLLOUT, POLLOUT, 0},
                           {0, POLLIN, 0, 0, 0, POLLOUT, 0, 0},
                           {POLLIN, POLLIN, 0, 0, 0, POLLOUT, 0, 0},
                           {POLLIN, POLLIN, 0, 0, 0, POLLOUT, 0, POLLIN}};
    for (int step = 0; step < 4; step++) {
        if (step == 1) send_one(queue);
        if (step == 2) EXPECT(write(pipes[1], "x", 1) == 1);
        if (step == 3) EXPECT(write(sockets[0], "x", 1) == 1);
        for (int timeout = -1; timeout < 2; timeout++) {
            int found = poll(all, 8, timeout), counted = 0;
            for (int i = 0; i < 8; i++) {
                EXPECT(all[i].revents == expected[step][i]);
                counted += all[i].revents != 0;
            }
            EXPECT(found == counted);
        }
    }
}

CASE(a_blocked_poll_of_queues_ends_when_a_pipe_is_written) {
    mqd_t queue = create(O_RDWR, 1);
    int pipes[2];
    EXPECT(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        _exit(write(pipes[1], "x", 1) != 1);
    }
    struct pollfd both[] = {{queue, POLLIN, 0}, {pipes[0], POLLIN, 0}};
    EXPECT(poll(both, 2, -1) == 1 && both[0].revents == 0 && both[1].revents == POLLIN);
    expect_success(child);
}

CASE(hundreds_of_queues_are_polled_at_once) {
    mqd_t queue = create(O_RDWR, 1);
    struct pollfd many[300];
    for (int i = 0; i < 300; i++) many[i] = (struct pollfd){i % 3 ? mq_open(name(), O_RDWR) : dup(queue), POLLIN, 0};
    EXPECT(poll(many, 300, 10) == 0);
    pid_t child = later(queue, send_one);
    int found = poll(many, 300, -1), readable = 0;
    expect_success(child);
    for (int i = 0; i < 300; i++) readable += many[i].revents == POLLIN;
    EXPECT(found == readable && found > 0);
    EXPECT(poll(many, 300, -1) == 300);
}

CASE(a_program_without_a_free_descriptor_polls) {
    mqd_t queue = create(O_RDWR, 1);
    struct rlimit limit = {40, 40};
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (dup(0) >= 0) {}
    struct pollfd one = {queue, POLLIN, 0};
    EXPECT(poll(&one, 1, 30) == 0);
    for (int round = 0; round < 3; round++) {
        pid_t child = later(queue, send_one);
        EXPECT(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
        expect_success(child);
        receive_one(queue);
    }
}

CASE(a_message_that_goes_to_a_blocked_receiver_is_never_shown) {
    mqd_t queue = create(O_RDWR, 2);
    struct pollfd one = {queue, POLLIN, 0};
    EXPECT(poll(&one, 1, 1) == 0);
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        if (child == 0) {
            receive_one(queue);
            _exit(0);
        }
        await_sleep(child);
        pid_t sender = later(queue, send_one);
        EXPECT(poll(&one, 1, 70) == 0);
        EXPECT(ready(queue, POLLIN) == 0);
        expect_success(child);
        expect_success(sender);
    }
}

CASE(a_handler_ends_a_blocked_poll_even_under_sa_restart) {
    mqd_t queue = create(O_RDWR, 2);
    struct pollfd one = {queue, POLLIN, 0};
    for (int round = 0; round < 2; round++) {
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = round ? SA_RESTART : 0};
        EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
        /* The signal is repeated, because the first one may arrive before the call. */
        ualarm(30000, 30000);
        EXPECT_ERRNO(poll(&one, 1, -1), EINTR);
        fd_set set;
        FD_ZERO(&set); FD_SET(queue, &set);
        EXPECT_ERRNO(select(queue + 1, &set, NULL, NULL, NULL), EINTR);
        EXPECT(FD_ISSET(queue, &set));
    }
    EXPECT(signals >= 4);
}

static void expect_masks_to_count(mqd_t queue) {
    signals = 0;
    struct sigaction action = {.sa_handler = on_signal};
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    sigset_t blocked, none;
    sigemptyset(&none), sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1);
    EXPECT(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    struct pollfd one = {queue, POLLIN, 0};
    struct timespec at_once = {0, 0};
    fd_set set;
    EXPECT(raise(SIGUSR1) == 0 && poll(&one, 1, 20) == 0 && signals == 0);
    EXPECT_ERRNO(ppoll(&one, 1, NULL, &none), EINTR);
    EXPECT(signals == 1 && raise(SIGUSR1) == 0);
    EXPECT_ERRNO(ppoll(&one, 1, &at_once, &none), EINTR);
    EXPECT(signals == 2 && raise(SIGUSR1) == 0);
    FD_ZERO(&set); FD_SET(queue, &set);
    EXPECT_ERRNO(pselect(queue + 1, &set, NULL, NULL, NULL, &none), EINTR);
    EXPECT(signals == 3 && sigprocmask(SIG_BLOCK, NULL, &none) == 0 && sigismember(&none, SIGUSR1));
}

CASE(the_mask_of_ppoll_and_pselect_counts_while_they_wait) {
    mqd_t queue = create(O_RDWR, 2);
    expect_masks_to_count(queue);
    int type = PTHREAD_CANCEL_ASYNCHRONOUS;
    EXPECT(pthread_setcanceltype(type, NULL) == 0);
    expect_masks_to_count(queue);
    EXPECT(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type) == 0 && type == PTHREAD_CANCEL_ASYNCHRONOUS);
}

static int chosen(int descriptor, fd_set *set) { return FD_ISSET(descriptor, set) != 0; }

CASE(select_tells_what_is_readable_and_writable) {
    mqd_t queue = create(O_RDWR, 2), second = mq_open(name(), O_RDONLY);
    int pipes[2];
    EXPECT(pipe(pipes) == 0);
    int last = pipes[1] + 1;
    for (int messages = 0; messages < 3; messages++) {
        fd_set reading, writing, strange;
        FD_ZERO(&reading); FD_ZERO(&writing); FD_ZERO(&strange);
        FD_SET(queue, &reading); FD_SET(queue, &writing); FD_SET(queue, &strange);
        FD_SET(second, &reading); FD_SET(pipes[0], &reading); FD_SET(pipes[1], &writing);
        struct timeval timeout = {20, 0};
        struct timespec precise = {20, 0};
        int expected = 2 * (messages > 0) + (messages < 2) + 1;
        fd_set reading_too = reading, writing_too = writing, strange_too = strange;
        EXPECT(select(last, &reading, &writing, &strange, &timeout) == expected);
        EXPECT(timeout.tv_sec > 0 && timeout.tv_sec <= 20);
        EXPECT(pselect(last, &reading_too, &writing_too, &strange_too, &precise, NULL) == expected);
        EXPECT(precise.tv_sec == 20 && precise.tv_nsec == 0);
        EXPECT(!memcmp(&reading, &reading_too, sizeof reading) && !memcmp(&writing, &writing_too, sizeof writing));
        EXPECT(chosen(queue, &reading) == (messages > 0) && chosen(second, &reading) == (messages > 0));
        EXPECT(chosen(queue, &writing) == (messages < 2) && chosen(pipes[1], &writing) && !chosen(pipes[0], &reading));
        EXPECT(!chosen(queue, &strange) && !chosen(queue, &strange_too));
        if (messages < 2) send_one(queue);
    }
}

/* glibc's select writes the remaining time to its argument. musl's select leaves the argument unchanged. */
#ifdef __GLIBC__
#define AFTER(glibc, musl) (glibc)
#else
#define AFTER(glibc, musl) (musl)
#endif

CASE(select_waits_and_tells_the_time_that_is_left) {
    mqd_t queue = create(O_RDWR, 2);
    fd_set set;
    FD_ZERO(&set); FD_SET(queue, &set);
    struct timeval timeout = {0, 50000};
    EXPECT(select(queue + 1, &set, NULL, NULL, &timeout) == 0);
    EXPECT(!FD_ISSET(queue, &set) && timeout.tv_sec == 0 && timeout.tv_usec == AFTER(0, 50000));
    FD_SET(queue, &set);
    pid_t child = later(queue, send_one);
    timeout = (struct timeval){20, 0};
    EXPECT(select(queue + 1, &set, NULL, NULL, &timeout) == 1 && FD_ISSET(queue, &set));
    EXPECT(AFTER(timeout.tv_sec > 0 && timeout.tv_sec < 20, timeout.tv_sec == 20));
    expect_success(child);
    EXPECT(select(queue + 1, NULL, NULL, NULL, &(struct timeval){0, 1000}) == 0);
    EXPECT(select(queue + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(queue, &set));
}

CASE(select_refuses_closed_descriptors_and_bad_times) {
    mqd_t queue = create(O_RDWR, 2), second = mq_open(name(), O_RDWR);
    fd_set set;
    FD_ZERO(&set); FD_SET(queue, &set); FD_SET(second, &set);
    EXPECT(mq_close(second) == 0);
    EXPECT_ERRNO(select(second + 1, &set, NULL, NULL, NULL), EBADF);
    EXPECT(FD_ISSET(queue, &set) && FD_ISSET(second, &set));
    EXPECT(select(queue + 1, NULL, &set, NULL, NULL) == 1);
    EXPECT_ERRNO(select(-1, &set, NULL, NULL, NULL), EINVAL);
    EXPECT_ERRNO(select(queue + 1, &set, NULL, NULL, &(struct timeval){-1, 0}), EINVAL);
    EXPECT_ERRNO(pselect(queue + 1, &set, NULL, NULL, &(struct timespec){0, 1000000000}, NULL), EINVAL);
    EXPECT_ERRNO(pselect(queue + 1, &set, NULL, NULL, &(struct timespec){0, -1}, NULL), EINVAL);
}

/* Some programs pass the maximum number of descriptors. Only the bits of numbers in use have an effect. */
CASE(select_leaves_what_is_behind_a_set) {
    struct {
        fd_set set;
        unsigned char behind[16384];
    } reading, writing;
    mqd_t queue = create(O_RDWR, 2);
    for (int round = 0; round < 2; round++) {
        memset(reading.behind, 0xff, sizeof reading.behind);
        memset(writing.behind, 0xff, sizeof writing.behind);
        FD_ZERO(&reading.set); FD_ZERO(&writing.set);
        FD_SET(queue, &reading.set); FD_SET(queue, &writing.set);
        EXPECT(select(100000, &reading.set, &writing.set, NULL, NULL) == 1 + round);
        EXPECT(FD_ISSET(queue, &writing.set) && chosen(queue, &reading.set) == round);
        for (unsigned i = 0; i < sizeof reading.behind; i++) EXPECT(reading.behind[i] == 0xff && writing.behind[i] == 0xff);
        send_one(queue), receive_one(queue), send_one(queue);
    }
}

static mqd_t shared;
static void *poll_for_ever(void *how) {
    struct pollfd one = {shared, POLLIN, 0};
    fd_set set;
    FD_ZERO(&set); FD_SET(shared, &set);
    pthread_cleanup_push(clean_up, NULL);
    pthread_barrier_wait(&barrier);
    if ((long)how)
        poll(&one, 1, -1);
    else
        select(shared + 1, &set, NULL, NULL, NULL);
    pthread_cleanup_pop(0);
    return NULL;
}

CASE(a_thread_that_polls_can_be_cancelled) {
    shared = create(O_RDWR, 1);
    pthread_barrier_init(&barrier, NULL, 2);
    for (int round = 1; round <= 200; round++) {
        pthread_t thread = started(poll_for_ever, (void *)(long)(round % 2));
        if (round % 4) usleep(1000);
        expect_cancelled(thread);
        EXPECT(cleaned_up == round);
    }
    send_one(shared);
    EXPECT(ready(shared, POLLIN) == POLLIN);
}

static void *poll_at_once(void *unused) {
    struct pollfd one = {shared, POLLIN, 0};
    pthread_cleanup_push(clean_up, NULL);
    pthread_cancel(pthread_self());
    poll(&one, 1, 0);
    pthread_cleanup_pop(0);
    return unused;
}

CASE(a_poll_that_does_not_wait_is_a_cancellation_point_too) {
    shared = create(O_RDWR, 1);
    pthread_t thread;
    void *result;
    EXPECT(pthread_create(&thread, NULL, poll_at_once, NULL) == 0);
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && cleaned_up == 1);
}

static void *poll_again_and_again(void *how) {
    struct pollfd one = {shared, POLLIN, 0};
    fd_set set;
    pthread_cleanup_push(clean_up, NULL);
    EXPECT(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0);
    pthread_barrier_wait(&barrier);
    for (;;) {
        FD_ZERO(&set); FD_SET(shared, &set);
        struct timeval time = {0, 100};
        if ((long)how)
            poll(&one, 1, 0);
        else
            select(shared + 1, &set, NULL, NULL, &time);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

CASE(a_thread_that_may_be_ended_at_any_instruction_is_cancelled_while_it_polls) {
    shared = create(O_RDWR, 1);
    pthread_barrier_init(&barrier, NULL, 2);
    for (int round = 1; round <= 300; round++) {
        pthread_t thread = started(poll_again_and_again, (void *)(long)(round % 2));
        usleep(100 + round);
        expect_cancelled(thread);
        EXPECT(cleaned_up == round);
    }
    send_one(shared);
    EXPECT(ready(shared, POLLIN) == POLLIN);
}

enum { MANY = 1000 };

static void *poll_many(void *unused) {
    struct pollfd all[MANY];
    for (int i = 0; i < MANY; i++) all[i] = (struct pollfd){i ? -1 : shared, POLLIN, 0};
    pthread_barrier_wait(&barrier);
    poll(all, MANY, -1);
    return unused;
}

static long resident_pages(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT(file && fscanf(file, "%*d %ld", &pages) == 1 && fclose(file) == 0);
    return pages;
}

CASE(a_cancelled_poll_of_many_descriptors_keeps_no_memory) {
    shared = create(O_RDWR, 1);
    pthread_barrier_init(&barrier, NULL, 2);
    long before = 0;
    for (int round = 0; round < 3000; round++) {
        if (round == 100) before = resident_pages();
        pthread_t thread = started(poll_many, NULL);
        if (round % 10 == 0) usleep(1000);
        expect_cancelled(thread);
    }
    /* If each of the 2,900 rounds kept two pages, the process would have 23 MB more. */
    EXPECT(resident_pages() - before < 1000);
}

/* In SECCOMP_MODE_STRICT, the kernel kills a process that makes a system call other than read, write and exit. */
CASE(a_queue_that_nobody_waits_for_takes_no_system_call) {
    mqd_t queue = create(O_RDWR | O_NONBLOCK, 4);
    EXPECT(ready(queue, ANYTHING) == WRITABLE);
    pid_t child = fork();
    if (child == 0) {
        send_one(queue), receive_one(queue);
        EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
        char buffer[16];
        long failed = 0;
        for (int i = 0; i < 10000; i++) {
            failed += mq_send(queue, "x", 1, (unsigned)i % 3) != 0;
            failed += mq_receive(queue, buffer, 16, NULL) != 1;
        }
        syscall(SYS_exit, failed != 0);
    }
    expect_success(child);
}

/* Some children wait for a message, take it and poll again. Other children send. */
CASE(many_processes_poll_and_nothing_is_missed) {
    enum { RECEIVERS = 4, SENDERS = 3, EACH = 2000 };
    mqd_t queue = create(O_RDWR | O_NONBLOCK, 3);
    pid_t receivers[RECEIVERS], senders[SENDERS];
    int counts[2];
    EXPECT(pipe(counts) == 0);
    for (int i = 0; i < RECEIVERS; i++)
        if ((receivers[i] = fork()) == 0) {
            mqd_t own = i % 2 ? queue : mq_open(name(), O_RDONLY | O_NONBLOCK);
            long received = 0;
            char buffer[16] = "go";
            while (buffer[0] != 's') {
                struct pollfd one = {own, POLLIN, 0};
                EXPECT(poll(&one, 1, 20000) == 1 && one.revents == POLLIN);
                if (mq_receive(own, buffer, 16, NULL) == 2 && buffer[0] == 'g') received++;
            }
            EXPECT(write(counts[1], &received, sizeof received) == sizeof received);
            _exit(0);
        }
    for (int i = 0; i < SENDERS; i++)
        if ((senders[i] = fork()) == 0) {
            for (int sent = 0; sent < EACH;) {
                struct pollfd one = {queue, POLLOUT, 0};
                EXPECT(poll(&one, 1, 20000) == 1 && one.revents == POLLOUT);
                if (mq_send(queue, "go", 2, 1) == 0) sent++;
            }
            _exit(0);
        }
    for (int i = 0; i < SENDERS; i++) expect_success(senders[i]);
    for (int i = 0; i < RECEIVERS;) {
        struct pollfd one = {queue, POLLOUT, 0};
        EXPECT(poll(&one, 1, 20000) == 1);
        i += mq_send(queue, "stop", 4, 0) == 0;
    }
    long total = 0;
    for (int i = 0; i < RECEIVERS; i++) {
        long received;
        expect_success(receivers[i]);
        EXPECT(read(counts[0], &received, sizeof received) == sizeof received);
        total += received;
    }
    EXPECT(total == SENDERS * EACH && ready(queue, ANYTHING) == WRITABLE);
}

/* Waits for messages and receives them, up to the message "stop". Returns the number of the other messages. */
static long take_until_told_to_stop(mqd_t queue, int set) {
    long received = 0;
    char buffer[16] = "go";
    while (buffer[0] != 's') {
        struct pollfd one = {queue, POLLIN, 0};
        struct epoll_event event;
        int found = set < 0 ? poll(&one, 1, 20000) : epoll_wait(set, &event, 1, 20000);
        EXPECT(found == 1 && (set >= 0 || one.revents == POLLIN));
        if (mq_receive(queue, buffer, 16, NULL) == 2 && buffer[0] == 'g') received++;
    }
    return received;
}

/* The child inherits the doorbells and the registrations of its parent. */
CASE(a_forked_child_and_its_parent_poll_the_same_descriptor) {
    enum { MESSAGES = 2000, WAYS = 4 };
    for (int way = 0; way < WAYS; way++) {
        struct mq_attr attributes = {.mq_maxmsg = 3, .mq_msgsize = 16};
        mqd_t queue = mq_open(name(), O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, 0600, &attributes);
        EXPECT(queue >= 0);
        /* Before the fork, the parent does one of these: nothing; a poll; a registration in a set that both processes use; a registration in a set
           that only the parent uses. */
        struct pollfd one = {queue, POLLIN, 0};
        struct epoll_event event = {EPOLLIN, {.u64 = 0}};
        int set = way < 2 ? -1 : epoll_create1(EPOLL_CLOEXEC);
        if (way == 1) EXPECT(poll(&one, 1, 1) == 0);
        if (way >= 2) EXPECT(epoll_ctl(set, EPOLL_CTL_ADD, queue, &event) == 0);
        int counts[2], closed[2];
        EXPECT(pipe(counts) == 0 && pipe(closed) == 0);
        pid_t sender = fork();
        if (sender == 0) {
            mqd_t own = mq_open(name(), O_WRONLY);
            for (int i = 0; i < MESSAGES; i++) EXPECT(mq_send(own, "go", 2, 1) == 0);
            for (int i = 0; i < 2; i++) EXPECT(mq_send(own, "stop", 4, 0) == 0);
            _exit(0);
        }
        pid_t child = fork();
        if (child == 0) {
            long received = take_until_told_to_stop(queue, way == 3 ? -1 : set);
            EXPECT(write(counts[1], &received, sizeof received) == sizeof received);
            /* Wait until the parent has closed the queue. */
            char byte;
            EXPECT(read(closed[0], &byte, 1) == 1);
            one.fd = queue;
            EXPECT(poll(&one, 1, 20000) == 1 && mq_receive(queue, (char[16]){0}, 16, NULL) == 4);
            _exit(0);
        }
        long received = take_until_told_to_stop(queue, set), others;
        expect_success(sender);
        EXPECT(read(counts[0], &others, sizeof others) == sizeof others && received + others == MESSAGES);
        EXPECT(ready(queue, ANYTHING) == WRITABLE);
        mqd_t last = mq_open(name(), O_WRONLY);
        EXPECT(mq_unlink(name()) == 0 && mq_close(queue) == 0 && write(closed[1], "", 1) == 1);
        EXPECT(mq_send(last, "last", 4, 0) == 0);
        expect_success(child);
        EXPECT(ready(last, ANYTHING) == WRITABLE && mq_close(last) == 0);
        close(set), close(counts[0]), close(counts[1]), close(closed[0]), close(closed[1]);
    }
}

/* Takes many descriptor numbers for a file of the program, also numbers of the library's descriptors. The library continues without these
   descriptors. */
static void take_numbers(int file) {
    for (int number = 400; number < 900; number++) {
        EXPECT(dup2(file, number) == number);
        if (number % 2) EXPECT(dup3(file, number, O_CLOEXEC) == number);
    }
}

CASE(a_program_may_use_any_number_for_a_file_of_its_own) {
    struct rlimit limit = {1024, 1024};
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    mqd_t queue = create(O_RDWR, 2);
    int ends[2], steps[2];
    EXPECT(pipe2(ends, O_NONBLOCK) == 0 && pipe(steps) == 0);
    struct pollfd one = {queue, POLLIN, 0};
    EXPECT(poll(&one, 1, 1) == 0);
    pid_t sender = fork();
    if (sender == 0) {
        mqd_t own = mq_open(name(), O_WRONLY);
        char byte;
        for (int round = 0; round < 4; round++) {
            EXPECT(read(steps[0], &byte, 1) == 1);
            send_one(own);
            if (round == 1) take_numbers(ends[1]);
        }
        _exit(0);
    }
    for (int round = 0; round < 4; round++) {
        if (round == 2) take_numbers(ends[1]);
        EXPECT(write(steps[1], "", 1) == 1);
        EXPECT(poll(&one, 1, 20000) == 1 && one.revents == POLLIN);
        receive_one(queue);
        EXPECT(poll(&one, 1, 1) == 0);
        send_one(queue), receive_one(queue);
    }
    expect_success(sender);
    EXPECT_ERRNO(read(ends[0], (char[1]){0}, 1), EAGAIN);
}
