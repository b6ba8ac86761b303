/* Notifications that a message has arrived. */
#define _XOPEN_SOURCE 700
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int notify(umsg_mqd_t queue, int how, int signal, int value)
{
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = how;
    event.sigev_signo = signal;
    event.sigev_value.sival_int = value;
    return umsg_mq_notify(queue, &event);
}

static void send_one(umsg_mqd_t queue)
{
    CHECK(umsg_mq_send(queue, "x", 1, 0) == 0);
}

static void receive_one(umsg_mqd_t queue)
{
    char buffer[16];
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 1);
}

/* Consumes a blocked signal if it is pending. Returns whether it was pending. */
static int pending(int signal, siginfo_t *info)
{
    struct timespec now = {0, 0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return sigtimedwait(&set, info, &now) == signal;
}

static void block(int signal)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
}

static void expect_child(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void a_signal_says_who_sent(void)
{
    umsg_mqd_t queue = make("/signal", 4, 16, 0);
    siginfo_t info;
    pid_t child;
    block(SIGUSR1);
    CHECK(notify(queue, SIGEV_SIGNAL, SIGUSR1, 5) == 0);
    send_one(queue);
    CHECK(pending(SIGUSR1, &info) && info.si_code == SI_MESGQ && info.si_value.sival_int == 5);
    CHECK(info.si_pid == getpid() && info.si_uid == getuid());
    receive_one(queue);
    CHECK(notify(queue, SIGEV_SIGNAL, SIGUSR1, 6) == 0);
    child = fork();
    if (child == 0) {
        send_one(queue);
        _exit(0);
    }
    expect_child(child);
    CHECK(pending(SIGUSR1, &info) && info.si_pid == child && info.si_value.sival_int == 6);
    send_one(queue);
    CHECK(!pending(SIGUSR1, &info));
    done(queue, "/signal");
}

static void one_process_is_registered_until_it_closes_a_handle(void)
{
    umsg_mqd_t queue = make("/one", 4, 16, 0);
    umsg_mqd_t other = umsg_mq_open("/one", O_RDWR);
    pid_t child;
    CHECK(other != NONE);
    CHECK(notify(queue, SIGEV_NONE, 0, 0) == 0);
    FAILS(notify(other, SIGEV_NONE, 0, 0), EBUSY);
    child = fork();
    if (child == 0) {
        CHECK(umsg_mq_notify(queue, NULL) == 0);
        FAILS(notify(queue, SIGEV_NONE, 0, 0), EBUSY);
        CHECK(umsg_mq_close(queue) == 0);
        _exit(0);
    }
    expect_child(child);
    FAILS(notify(queue, SIGEV_NONE, 0, 0), EBUSY);
    CHECK(umsg_mq_notify(queue, NULL) == 0 && umsg_mq_notify(queue, NULL) == 0);
    CHECK(notify(queue, SIGEV_NONE, 0, 0) == 0);
    CHECK(umsg_mq_close(other) == 0);
    CHECK(notify(queue, SIGEV_NONE, 0, 0) == 0);
    done(queue, "/one");
}

static void what_makes_no_sense_is_refused(void)
{
    umsg_mqd_t queue = make("/errors", 4, 16, 0);
    FAILS(notify(queue, 77, 0, 0), EINVAL);
    CHECK(strstr(umsg_last_error(), "must be SIGEV_NONE"));
    FAILS(notify(NONE, 77, 0, 0), EINVAL);
    FAILS(notify(queue, SIGEV_SIGNAL, 65, 0), EINVAL);
    CHECK(strstr(umsg_last_error(), "from 0 to 64"));
    FAILS(notify(queue, SIGEV_SIGNAL, -1, 0), EINVAL);
    FAILS(notify(queue, SIGEV_THREAD, 0, 0), EINVAL);
    CHECK(strstr(umsg_last_error(), "sigev_notify_function is NULL"));
    FAILS(notify(NONE, SIGEV_NONE, 0, 0), EBADF);
    FAILS(umsg_mq_notify(NONE, NULL), EBADF);
    FAILS(umsg_mq_notify(queue, (struct sigevent *)8), EFAULT);
    done(queue, "/errors");
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;
static int calls, value_seen;

static void note_call(union sigval value)
{
    pthread_mutex_lock(&lock);
    calls++;
    value_seen = value.sival_int;
    pthread_cond_signal(&called);
    pthread_mutex_unlock(&lock);
}

static void expect_calls(int wanted)
{
    struct timespec end;
    int error = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    pthread_mutex_lock(&lock);
    while (calls < wanted && error == 0)
        error = pthread_cond_timedwait(&called, &lock, &end);
    pthread_mutex_unlock(&lock);
    CHECK(calls == wanted);
}

static void a_function_is_called_in_a_thread(void)
{
    umsg_mqd_t queue = make("/thread", 4, 16, 0);
    struct sigevent event;
    pthread_attr_t attributes;
    int round;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 1 << 20) == 0);
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD;
    event.sigev_notify_function = note_call;
    event.sigev_notify_attributes = &attributes;
    for (round = 1; round <= 10; round++) {
        event.sigev_value.sival_int = round;
        CHECK(umsg_mq_notify(queue, &event) == 0);
        send_one(queue);
        expect_calls(round);
        CHECK(value_seen == round);
        receive_one(queue);
    }
    CHECK(umsg_mq_notify(queue, &event) == 0);
    CHECK(umsg_mq_notify(queue, NULL) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    send_one(queue);
    done(queue, "/thread");
    CHECK(calls == 10);
}

static const struct test_case cases[] = {
    CASE(a_signal_says_who_sent),
    CASE(one_process_is_registered_until_it_closes_a_handle),
    CASE(what_makes_no_sense_is_refused),
    CASE(a_function_is_called_in_a_thread),
};

MAIN(cases)
