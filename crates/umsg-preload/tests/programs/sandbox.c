/* A program in a sandbox. All calls work, or the first call fails with the errno of the sandbox (UMSG_TEST_REFUSED), or with EACCES in place of
   EPERM. After such a failure, the program exits with 3. */
#include "check.h"
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>

/* Makes the first call of a case. If the sandbox refuses the call, the program exits with 3. */
#define BEGIN(condition)                                                                                               \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if (!(condition)) {                                                                                            \
            const char *refused = getenv("UMSG_TEST_REFUSED");                                                         \
            int expected = refused ? atoi(refused) : -1;                                                               \
            if (errno == expected || (errno == EACCES && expected == EPERM)) exit(3);                                                            \
            fprintf(stderr, "%s fails: %s\n", #condition, strerrorname_np(errno));                                     \
            exit(4);                                                                                                   \
        }                                                                                                              \
    } while (0)

static mqd_t begin(void) {
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    mqd_t queue;
    BEGIN((queue = mq_open(name(), O_RDWR | O_CREAT | O_EXCL, 0600, &attributes)) >= 0);
    return queue;
}

static void pass_one(mqd_t queue) {
    char buffer[16];
    struct timespec end = in_ms(20000);
    EXPECT(mq_timedsend(queue, "four", 4, 1, &end) == 0);
    EXPECT(mq_timedreceive(queue, buffer, 16, NULL, &end) == 4);
}

static void *send_later(void *queue) {
    usleep(20000);
    EXPECT(mq_send(*(mqd_t *)queue, "later", 5, 0) == 0);
    return NULL;
}

static void *receive_one(void *queue) {
    char buffer[16];
    struct timespec end = in_ms(20000);
    EXPECT(mq_timedreceive(*(mqd_t *)queue, buffer, 16, NULL, &end) == 5);
    return NULL;
}

CASE(messages_pass_and_receivers_wake) {
    mqd_t queue = begin();
    for (int i = 0; i < 100; i++) pass_one(queue);
    char buffer[16];
    struct timespec end = in_ms(20);
    EXPECT_ERRNO(mq_timedreceive(queue, buffer, 16, NULL, &end), ETIMEDOUT);
    pthread_t sender;
    EXPECT(pthread_create(&sender, NULL, send_later, &queue) == 0);
    receive_one(&queue);
    EXPECT(pthread_join(sender, NULL) == 0);
    EXPECT(mq_close(queue) == 0);
    BEGIN(mq_unlink(name()) == 0);
}

CASE(a_child_sends_to_its_parent) {
    mqd_t queue = begin();
    pid_t child = fork();
    if (child == 0) {
        send_later(&queue);
        _exit(0);
    }
    receive_one(&queue);
    expect_success(child);
}

CASE(poll_and_epoll_tell_of_messages) {
    mqd_t queue = begin();
    struct pollfd polled = {queue, POLLIN, 0};
    BEGIN(poll(&polled, 1, 0) == 0);
    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {0}};
    BEGIN(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, queue, &event) == 0);
    pthread_t sender;
    EXPECT(pthread_create(&sender, NULL, send_later, &queue) == 0);
    EXPECT(epoll_wait(set, &event, 1, 20000) == 1);
    EXPECT(poll(&polled, 1, 20000) == 1 && polled.revents == POLLIN);
    EXPECT(pthread_join(sender, NULL) == 0);
    receive_one(&queue);
    EXPECT(epoll_wait(set, &event, 1, 0) == 0);
}

CASE(a_signal_tells_of_a_message) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    EXPECT(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    mqd_t queue = begin();
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 7};
    BEGIN(mq_notify(queue, &event) == 0);
    pid_t child = fork();
    if (child == 0) {
        send_later(&queue);
        _exit(0);
    }
    siginfo_t told;
    struct timespec patience = {20, 0};
    EXPECT(sigtimedwait(&set, &told, &patience) == SIGUSR1);
    EXPECT(told.si_value.sival_int == 7);
    expect_success(child);
}

static volatile int calls;

static void count_call(union sigval value) {
    (void)value;
    calls = 1;
}

CASE(a_thread_tells_of_a_message) {
    mqd_t queue = begin();
    struct sigevent event = {.sigev_notify = SIGEV_THREAD};
    event.sigev_notify_function = count_call;
    BEGIN(mq_notify(queue, &event) == 0);
    send_later(&queue);
    for (int i = 0; !calls && i < 20000; i++) usleep(1000);
    EXPECT(calls);
}

CASE(typed_messages_pass_between_processes) {
    struct {
        long type;
        char text[4];
    } message = {3, "abc"};
    int queue;
    BEGIN((queue = msgget(IPC_PRIVATE, 0600)) >= 0);
    EXPECT(msgsnd(queue, &message, 4, 0) == 0 && msgrcv(queue, &message, 4, 3, 0) == 4);
    pid_t child = fork();
    if (child == 0) {
        usleep(20000);
        EXPECT(msgsnd(queue, &message, 4, 0) == 0);
        _exit(0);
    }
    EXPECT(msgrcv(queue, &message, 4, 3, 0) == 4);
    expect_success(child);
    BEGIN(msgctl(queue, IPC_RMID, NULL) == 0);
}
