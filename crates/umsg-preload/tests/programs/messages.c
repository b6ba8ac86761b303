/* mq_send and mq_receive. */
#include "check.h"
#include "handled.h"
#include <sys/prctl.h>
#include <sys/syscall.h>

CASE(the_highest_priority_comes_first_and_equals_in_order) {
    mqd_t queue = create(O_RDWR, 6);
    const char *sent[] = {"a1", "b5", "c1", "d9", "e5"};
    for (int i = 0; i < 5; i++) EXPECT(mq_send(queue, sent[i], 2, sent[i][1] - '0') == 0);
    char received[16], order[6] = {0};
    for (int i = 0; i < 5; i++) {
        unsigned priority;
        EXPECT(mq_receive(queue, received, 16, &priority) == 2 && (int)priority == received[1] - '0');
        order[i] = received[0];
    }
    EXPECT(!strcmp(order, "dbeac"));
}

CASE(errors_come_in_the_kernels_order) {
    mqd_t queue = create(O_RDWR | O_NONBLOCK, 1);
    mqd_t reader = mq_open(name(), O_RDONLY), writer = mq_open(name(), O_WRONLY);
    char buffer[32] = {0};
    struct timespec bad = {0, 1000000000}, before_1970 = {-1, 0}, past = {1, 0};
    EXPECT_ERRNO(mq_timedsend(-1, buffer, 99, 40000, &bad), EINVAL);
    EXPECT_ERRNO(mq_timedsend(queue, "x", 1, 0, &before_1970), EINVAL);
    EXPECT_ERRNO(mq_timedsend(queue, "x", 1, 0, (void *)8), EFAULT);
    EXPECT_ERRNO(mq_timedsend(-1, buffer, 99, 32767, (void *)8), EFAULT);
    EXPECT_ERRNO(mq_timedsend(reader, buffer, 99, 0, &bad), EINVAL);
    EXPECT_ERRNO(mq_timedsend(queue, buffer, 17, 0, &bad), EINVAL);
    EXPECT_ERRNO(mq_timedsend(queue, nowhere, 5, 0, &bad), EINVAL);
    EXPECT_ERRNO(mq_timedsend(queue, nowhere, 5, 0, &past), EFAULT);
    EXPECT_ERRNO(mq_timedsend(-1, buffer, 99, 40000, &past), EINVAL);
    EXPECT_ERRNO(mq_timedsend(-1, buffer, 99, 0, &past), EBADF);
    EXPECT_ERRNO(mq_timedsend(reader, buffer, 99, 0, &past), EBADF);
    EXPECT_ERRNO(mq_timedsend(queue, buffer, 17, 0, &past), EMSGSIZE);
    EXPECT_ERRNO(mq_timedreceive(-1, buffer, 1, NULL, &bad), EINVAL);
    EXPECT_ERRNO(mq_send(-1, buffer, 99, 32768), EINVAL);
    EXPECT_ERRNO(mq_send(-1, buffer, 99, 32767), EBADF);
    EXPECT_ERRNO(mq_send(reader, buffer, 99, 0), EBADF);
    EXPECT_ERRNO(mq_receive(writer, buffer, 1, NULL), EBADF);
    EXPECT_ERRNO(mq_send(queue, buffer, 17, 0), EMSGSIZE);
    EXPECT_ERRNO(mq_receive(queue, buffer, 15, NULL), EMSGSIZE);
    EXPECT_ERRNO(mq_receive(queue, buffer, 16, NULL), EAGAIN);
    EXPECT_ERRNO(mq_timedreceive(queue, buffer, 16, NULL, &past), EAGAIN);
    EXPECT(mq_timedsend(queue, "x", 1, 0, &past) == 0);
    EXPECT_ERRNO(mq_timedsend(queue, "x", 1, 0, &past), EAGAIN);
    EXPECT_ERRNO(mq_send(queue, buffer, 17, 0), EMSGSIZE);
    EXPECT(fcntl(queue, F_SETFL, 0) == 0);
    EXPECT_ERRNO(mq_timedsend(queue, "x", 1, 0, &past), ETIMEDOUT);
    EXPECT(mq_timedreceive(queue, buffer, 16, NULL, &past) == 1);
    EXPECT_ERRNO(mq_timedreceive(queue, buffer, 16, NULL, &past), ETIMEDOUT);
}

CASE(bad_addresses_are_efault_and_a_receive_consumes_the_message) {
    mqd_t queue = create(O_RDWR | O_NONBLOCK, 4);
    char buffer[16];
    EXPECT_ERRNO(mq_send(queue, nowhere, 17, 0), EMSGSIZE);
    EXPECT_ERRNO(mq_send(queue, nowhere, 5, 0), EFAULT);
    EXPECT_ERRNO(mq_receive(queue, nowhere, 16, NULL), EAGAIN);
    EXPECT(mq_send(queue, "x", 1, 0) == 0);
    EXPECT_ERRNO(mq_receive(queue, nowhere, 16, NULL), EFAULT);
    EXPECT(count(queue) == 0);
    EXPECT(mq_send(queue, "x", 1, 0) == 0);
    EXPECT_ERRNO(mq_receive(queue, buffer, 16, (void *)8), EFAULT);
    EXPECT(count(queue) == 0);
}

CASE(a_message_of_no_bytes_needs_no_address) {
    mqd_t queue = create(O_RDWR | O_NONBLOCK, 4);
    unsigned priority;
    EXPECT(mq_send(queue, nowhere, 0, 3) == 0);
    EXPECT(mq_receive(queue, nowhere, 16, &priority) == 0 && priority == 3);
}

CASE(a_buffer_said_to_be_huge_is_fine) {
    mqd_t queue = create(O_RDWR, 4);
    char buffer[16];
    EXPECT(mq_send(queue, "0123456789abcdef", 16, 0) == 0);
    EXPECT(mq_receive(queue, buffer, (size_t)1 << 62, NULL) == 16);
    EXPECT(!memcmp(buffer, "0123456789abcdef", 16));
    EXPECT_ERRNO(mq_send(queue, buffer, (size_t)1 << 62, 0), EMSGSIZE);
}

CASE(a_blocked_receiver_gets_what_another_process_sends) {
    mqd_t queue = create(O_RDWR, 4);
    pid_t child = fork();
    if (child == 0) {
        char buffer[16];
        unsigned priority;
        struct timespec later = in_ms(20000);
        EXPECT(mq_timedreceive(queue, buffer, 16, &priority, &later) == 5 && priority == 9);
        _exit(0);
    }
    usleep(50000);
    EXPECT(mq_send(queue, "hello", 5, 9) == 0);
    expect_success(child);
}

CASE(a_blocked_sender_goes_on_when_there_is_room) {
    mqd_t queue = create(O_RDWR, 1);
    EXPECT(mq_send(queue, "1", 1, 0) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct timespec later = in_ms(20000);
        EXPECT(mq_timedsend(queue, "2", 1, 0, &later) == 0);
        _exit(0);
    }
    usleep(50000);
    char buffer[16];
    EXPECT(mq_receive(queue, buffer, 16, NULL) == 1 && buffer[0] == '1');
    expect_success(child);
    EXPECT(mq_receive(queue, buffer, 16, NULL) == 1 && buffer[0] == '2');
}

CASE(a_handler_without_sa_restart_ends_a_blocked_call_with_eintr) {
    mqd_t queue = create(O_RDWR, 1);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, NULL);
    char buffer[16];
    /* The signal is repeated, because the first one may arrive before the call. */
    ualarm(30000, 30000);
    EXPECT_ERRNO(mq_receive(queue, buffer, 16, NULL), EINTR);
    struct timespec later = in_ms(20000);
    EXPECT_ERRNO(mq_timedreceive(queue, buffer, 16, NULL, &later), EINTR);
    /* This send runs without the timer: a signal before the supervisor takes the call would end even a call that need not wait. */
    ualarm(0, 0);
    EXPECT(mq_send(queue, "x", 1, 0) == 0);
    ualarm(30000, 30000);
    EXPECT_ERRNO(mq_send(queue, "y", 1, 0), EINTR);
    ualarm(0, 0);
    EXPECT(count(queue) == 1 && signals >= 3);
}

CASE(under_sa_restart_a_blocked_call_goes_on) {
    mqd_t queue = create(O_RDWR, 1);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    char buffer[16];
    /* The timer starts first, so that the signal comes before the time-out. */
    ualarm(30000, 0);
    struct timespec soon = in_ms(150);
    EXPECT_ERRNO(mq_timedreceive(queue, buffer, 16, NULL, &soon), ETIMEDOUT);
    EXPECT(signals == 1);
}

static mqd_t handlers_queue;

static void send_from_handler(int number) {
    (void)number;
    if (mq_send(handlers_queue, "signal", 6, 5) == 0) signals++;
}

CASE(a_signal_handler_may_send) {
    handlers_queue = create(O_RDWR, 8);
    struct sigaction action = {.sa_handler = send_from_handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    char buffer[16];
    unsigned priority;
    ualarm(30000, 0);
    EXPECT(mq_receive(handlers_queue, buffer, 16, &priority) == 6 && priority == 5);
    EXPECT(signals == 1);
}

CASE(a_queue_of_the_kernels_still_works) {
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16}, seen;
    int queue = (int)bare_call(SYS_mq_open, (long)(name() + 1), O_RDWR | O_CREAT, 0600, (long)&attributes);
    EXPECT(queue >= 0);
    EXPECT(bare_call(SYS_mq_unlink, (long)(name() + 1), 0, 0, 0) == 0);
    char buffer[16];
    unsigned priority;
    EXPECT(mq_send(queue, "kernel", 6, 3) == 0);
    EXPECT(mq_getattr(queue, &seen) == 0 && seen.mq_curmsgs == 1);
    EXPECT(mq_receive(queue, buffer, 16, &priority) == 6 && priority == 3);
    seen.mq_flags = O_NONBLOCK;
    EXPECT(mq_setattr(queue, &seen, NULL) == 0);
    EXPECT_ERRNO(mq_receive(queue, buffer, 16, NULL), EAGAIN);
    EXPECT(mq_close(queue) == 0);
}

/* Starts a child that sends and receives without end, in a queue of 100 messages at most. A stop may hit the child while it holds a lock. */
static pid_t busy_child(int side) {
    pid_t child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    mqd_t own = mq_open(name(), O_RDWR | O_NONBLOCK);
    char buffer[16];
    for (;;) {
        if (side == 's' && mq_send(own, buffer, 16, 0) != 0)
            while (mq_receive(own, buffer, 16, NULL) == 16) {}
        if (side == 'r' && mq_receive(own, buffer, 16, NULL) < 0)
            while (mq_send(own, buffer, 16, 0) == 0) {}
    }
}

/* Makes one call with a time-out in milliseconds. Returns the milliseconds that the call took if it timed out, otherwise -1. */
static long timed_call(mqd_t queue, int side, long ms) {
    struct timespec begun, ended;
    char buffer[16] = {0};
    clock_gettime(CLOCK_MONOTONIC, &begun);
    struct timespec until = in_ms(ms);
    long result = side == 's' ? mq_timedsend(queue, buffer, 1, 0, &until) : mq_timedreceive(queue, buffer, 16, NULL, &until);
    if (result >= 0) return -1;
    int error = errno;
    EXPECT(error == ETIMEDOUT);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    return (ended.tv_sec - begun.tv_sec) * 1000 + (ended.tv_nsec - begun.tv_nsec) / 1000000;
}

/* The queue has room or a message, but a stopped process holds the lock. */
static void beside_a_stopped_process(int side) {
    mqd_t queue = create(O_RDWR, 100);
    pid_t child = busy_child(side);
    int hit = 0, status;
    for (int tries = 0; tries < 2000 && !hit; tries++) {
        usleep(300);
        kill(child, SIGSTOP);
        EXPECT(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
        int possible = side == 's' ? count(queue) < 100 : count(queue) > 0;
        hit = possible && timed_call(queue, side, 20) >= 0;
        if (!hit) kill(child, SIGCONT);
    }
    if (hit) {
        /* A call that ignores its time-out always takes a second. The machine may delay any call, so one call without a delay suffices. */
        long took = 900;
        for (int tries = 0; tries < 20 && took >= 900; tries++) {
            took = timed_call(queue, side, 100);
            EXPECT(took >= 90);
        }
        EXPECT(took < 900);
    } else {
        fprintf(stderr, "left out: no stop hit an owner of the lock\n");
    }
    kill(child, SIGKILL);
    EXPECT(waitpid(child, &status, 0) == child);
}

CASE(a_timed_send_beside_a_stopped_process_returns_in_time) { beside_a_stopped_process('s'); }

CASE(a_timed_receive_beside_a_stopped_process_returns_in_time) { beside_a_stopped_process('r'); }
