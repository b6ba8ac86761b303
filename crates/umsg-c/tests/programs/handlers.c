/* Signal handlers that use queues. */
#define _XOPEN_SOURCE 700
#include "check.h"

#include <signal.h>
#include <sys/msg.h>
#include <sys/time.h>
#include <unistd.h>

enum { ENOUGH = 30, INTERVAL = 500 };

static umsg_mqd_t queue;
static volatile sig_atomic_t sent, failed;

static void send_from_handler(int signal, siginfo_t *info, void *context)
{
    int before = errno;
    if (umsg_defer_signal(signal, info, context) == 0) {
        if (umsg_mq_send(queue, "alarm", 5, 1) == 0)
            sent++;
        else if (errno != EAGAIN)
            failed = errno;
    }
    errno = before;
}

/* Sets the interval between signals; 0 stops them. */
static void alarm_every(long microseconds)
{
    struct itimerval timer;
    memset(&timer, 0, sizeof timer);
    timer.it_interval.tv_usec = microseconds;
    timer.it_value.tv_usec = microseconds;
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

/* Installs a handler of SIGALRM, and begins to raise the signal. */
static void alarm_with(void (*handler)(int, siginfo_t *, void *))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    alarm_every(INTERVAL);
}

static void a_handler_sends_to_the_queue_that_its_thread_was_using(void)
{
    char buffer[16];
    int mine = 0, alarms = 0;
    queue = make("/handlers", 100, 16, O_NONBLOCK);
    alarm_with(send_from_handler);
    while (sent < ENOUGH && failed == 0) {
        if (umsg_mq_send(queue, "mine", 4, 0) == 0)
            mine++;
        while (umsg_mq_receive(queue, buffer, sizeof buffer, NULL) > 0) {
            mine -= buffer[0] == 'm';
            alarms += buffer[0] == 'a';
        }
    }
    alarm_every(0);
    while (umsg_mq_receive(queue, buffer, sizeof buffer, NULL) > 0) {
        mine -= buffer[0] == 'm';
        alarms += buffer[0] == 'a';
    }
    CHECK(failed == 0);
    CHECK(mine == 0 && alarms == sent);
    done(queue, "/handlers");
}

static struct umsg_mq_lease lease;
static volatile sig_atomic_t leased, refused;

/* Does not call umsg_defer_signal. After the first EDEADLK, the handler does nothing. */
static void acknowledge_from_handler(int signal)
{
    int before = errno;
    (void)signal;
    if (leased && !refused) {
        if (umsg_mq_acknowledge(&lease) == 0)
            leased = 0;
        else if (errno == EDEADLK)
            refused = 1;
        else
            failed = errno;
    }
    errno = before;
}

static void a_lease_goes_on_that_a_handler_could_not_end(void)
{
    struct umsg_mq_status status;
    struct sigaction action;
    char buffer[16];
    queue = make("/goes-on", 100, 16, O_NONBLOCK);
    CHECK(umsg_mq_send(queue, "job", 3, 1) == 0);
    memset(&action, 0, sizeof action);
    action.sa_handler = acknowledge_from_handler;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    alarm_every(INTERVAL);
    while (!refused && failed == 0) {
        if (!leased) {
            CHECK(umsg_mq_send(queue, "job", 3, 1) == 0);
            CHECK(umsg_mq_lease(queue, &lease, NULL) == 0);
            leased = 1;
        }
        CHECK(umsg_mq_send(queue, "mine", 4, 0) == 0);
        CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) > 0);
    }
    alarm_every(0);
    CHECK(failed == 0 && lease.id != 0 && memcmp(lease.data, "job", 3) == 0);
    CHECK(umsg_mq_acknowledge(&lease) == 0 && lease.id == 0);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0 && status.leased == 0);
    done(queue, "/goes-on");
}

static int typed_queue;

static void send_typed_from_handler(int signal, siginfo_t *info, void *context)
{
    struct {
        long type;
        char text[5];
    } message = {2, "alarm"};
    int before = errno;
    if (umsg_defer_signal(signal, info, context) == 0) {
        if (umsg_msgsnd(typed_queue, &message, sizeof message.text, IPC_NOWAIT) == 0)
            sent++;
        else if (errno != EAGAIN)
            failed = errno;
    }
    errno = before;
}

/* Receives all messages of a type, and returns their number. */
static int drain(long type)
{
    struct {
        long type;
        char text[16];
    } message;
    int count = 0;
    while (umsg_msgrcv(typed_queue, &message, sizeof message.text, type, IPC_NOWAIT) > 0) {
        CHECK(message.type == type);
        count++;
    }
    CHECK(errno == ENOMSG);
    return count;
}

static void a_handler_sends_to_the_system_v_queue_that_its_thread_was_using(void)
{
    struct {
        long type;
        char text[4];
    } message = {1, "mine"};
    int mine = 0, alarms = 0;
    typed_queue = umsg_msgget(IPC_PRIVATE, 0600);
    CHECK(typed_queue >= 0);
    sent = failed = 0;
    alarm_with(send_typed_from_handler);
    while (sent < ENOUGH && failed == 0) {
        if (umsg_msgsnd(typed_queue, &message, sizeof message.text, IPC_NOWAIT) == 0)
            mine++;
        mine -= drain(1);
        alarms += drain(2);
    }
    alarm_every(0);
    mine -= drain(1);
    alarms += drain(2);
    CHECK(failed == 0);
    CHECK(mine == 0 && alarms == sent);
    CHECK(umsg_msgctl(typed_queue, IPC_RMID, NULL) == 0);
}

static void a_queue_whose_file_is_cut_short_is_an_error(void)
{
    char path[300];
    umsg_mqd_t queue = make("/short", 3, 16, 0);
    CHECK(umsg_catch_truncation() == 0 && umsg_catch_truncation() == 0);
    CHECK(umsg_mq_send(queue, "x", 1, 0) == 0);
    CHECK(snprintf(path, sizeof path, "%s/mq/short", getenv("UMSG_DIR")) > 0);
    CHECK(truncate(path, 0) == 0);
    FAILS(umsg_mq_send(queue, "x", 1, 0), EBADMSG);
    CHECK(umsg_mq_close(queue) == 0 && umsg_mq_unlink("/short") == 0);
}

static const struct test_case cases[] = {
    CASE(a_handler_sends_to_the_queue_that_its_thread_was_using),
    CASE(a_lease_goes_on_that_a_handler_could_not_end),
    CASE(a_handler_sends_to_the_system_v_queue_that_its_thread_was_using),
    CASE(a_queue_whose_file_is_cut_short_is_an_error),
};

MAIN(cases)
