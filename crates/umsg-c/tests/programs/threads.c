/* Handles that threads and processes share. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 2000, THREADS = 4 };

static void wait_for_receivers(umsg_mqd_t queue, uint64_t count)
{
    const struct timespec moment = {0, 1000000};
    struct umsg_mq_status status;
    do {
        nanosleep(&moment, NULL);
        CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    } while (status.blocked_receivers != count);
}

static void *receive_one(void *queue)
{
    char buffer[16];
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 4);
    CHECK(memcmp(buffer, "late", 4) == 0);
    return NULL;
}

/* Returns whether the memory of an open queue of this name is mapped. */
static int is_mapped(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];
    int found = 0;
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        found = found || strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

static void a_call_goes_on_when_another_thread_closes_its_handle(void)
{
    umsg_mqd_t second = make("/closing", 1, 16, 0);
    umsg_mqd_t queue = umsg_mq_open("/closing", O_RDWR);
    pthread_t thread;
    CHECK(queue != NONE && is_mapped("/mq/closing"));
    CHECK(umsg_mq_set_waiting(queue, UMSG_WAITING_BLOCKING) == 0);
    CHECK(pthread_create(&thread, NULL, receive_one, queue) == 0);
    wait_for_receivers(second, 1);
    CHECK(umsg_mq_close(queue) == 0);
    FAILS(umsg_mq_close(queue), EBADF);
    CHECK(is_mapped("/mq/closing"));
    CHECK(umsg_mq_send(second, "late", 4, 0) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(!is_mapped("/mq/closing"));
    done(second, "/closing");
}

static void *send_some(void *queue)
{
    int i;
    for (i = 0; i < ROUNDS; i++)
        CHECK(umsg_mq_send(queue, "message", 7, (unsigned)i % 5) == 0);
    return NULL;
}

static void *receive_some(void *queue)
{
    char buffer[16];
    int i;
    for (i = 0; i < ROUNDS; i++)
        CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 7);
    return NULL;
}

static void threads_share_a_handle(void)
{
    umsg_mqd_t queue = make("/shared", 8, 16, 0);
    struct umsg_mq_attr attr;
    pthread_t threads[2 * THREADS];
    int i;
    for (i = 0; i < 2 * THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, i % 2 ? send_some : receive_some, queue) == 0);
    for (i = 0; i < 2 * THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(umsg_mq_getattr(queue, &attr) == 0 && attr.mq_curmsgs == 0);
    done(queue, "/shared");
}

static void *open_and_close(void *unused)
{
    int i;
    for (i = 0; i < 200; i++) {
        umsg_mqd_t queue = umsg_mq_open("/busy", O_RDWR);
        struct umsg_mq_attr attr;
        CHECK(queue != NONE);
        CHECK(umsg_mq_getattr(queue, &attr) == 0 && attr.mq_msgsize == 16);
        CHECK(umsg_mq_close(queue) == 0);
        FAILS(umsg_mq_getattr(queue, &attr), EBADF);
    }
    return unused;
}

static void threads_open_and_close_at_the_same_time(void)
{
    umsg_mqd_t queue = make("/busy", 8, 16, 0);
    pthread_t threads[THREADS];
    int i;
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, open_and_close, NULL) == 0);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    done(queue, "/busy");
}

static void *fail_in_a_thread(void *queue)
{
    CHECK(strcmp(umsg_last_error(), "") == 0);
    FAILS(umsg_mq_send(queue, "x", 1, 40000), EINVAL);
    CHECK(strstr(umsg_last_error(), "priority") != NULL);
    return NULL;
}

static void each_thread_has_a_last_error_of_its_own(void)
{
    umsg_mqd_t queue = make("/errors", 8, 16, 0);
    pthread_t thread;
    FAILS(umsg_mq_close(NONE), EBADF);
    CHECK(pthread_create(&thread, NULL, fail_in_a_thread, queue) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strstr(umsg_last_error(), "handle") != NULL);
    done(queue, "/errors");
}

static void expect_exit(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_forked_child_goes_on_with_its_parents_handle(void)
{
    umsg_mqd_t queue = make("/forked", 8, 16, 0);
    char buffer[16];
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(umsg_mq_send(queue, "from the child", 14, 0) == 0);
        CHECK(umsg_mq_close(queue) == 0);
        FAILS(umsg_mq_close(queue), EBADF);
        _exit(0);
    }
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 14);
    expect_exit(child);
    CHECK(umsg_mq_send(queue, "still mine", 10, 0) == 0);
    done(queue, "/forked");
}

static void a_forked_child_shares_the_flag_of_a_handle_and_no_other(void)
{
    umsg_mqd_t queue = make("/share-flag", 8, 16, 0);
    umsg_mqd_t other = umsg_mq_open("/share-flag", O_RDWR);
    struct umsg_mq_attr attr;
    pid_t child = fork();
    CHECK(child >= 0);
    memset(&attr, 0, sizeof attr);
    attr.mq_flags = O_NONBLOCK;
    if (child == 0) {
        umsg_mqd_t mine = umsg_mq_open("/share-flag", O_RDWR | O_NONBLOCK);
        CHECK(mine != NONE && umsg_mq_setattr(queue, &attr, NULL) == 0);
        _exit(0);
    }
    expect_exit(child);
    CHECK(umsg_mq_getattr(queue, &attr) == 0 && attr.mq_flags == O_NONBLOCK);
    CHECK(umsg_mq_getattr(other, &attr) == 0 && attr.mq_flags == 0);
    CHECK(umsg_mq_close(other) == 0);
    other = umsg_mq_open("/share-flag", O_RDWR);
    CHECK(umsg_mq_getattr(other, &attr) == 0 && attr.mq_flags == 0);
    CHECK(umsg_mq_close(other) == 0);
    done(queue, "/share-flag");
}

static void a_receiver_killed_while_it_waits_takes_nothing_with_it(void)
{
    umsg_mqd_t queue = make("/killed", 8, 16, 0);
    char buffer[16];
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        umsg_mq_receive(queue, buffer, sizeof buffer, NULL);
        _exit(1);
    }
    wait_for_receivers(queue, 1);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(umsg_mq_send(queue, "for the living", 14, 0) == 0);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 14);
    done(queue, "/killed");
}

static void nothing(int signal)
{
    (void)signal;
}

static void a_handler_ends_a_wait(void)
{
    const struct timespec moment = {0, 5000000};
    umsg_mqd_t queue = make("/eintr", 8, 16, 0);
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct sigaction action;
        char buffer[16];
        memset(&action, 0, sizeof action);
        action.sa_handler = nothing;
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
        FAILS(umsg_mq_receive(queue, buffer, sizeof buffer, NULL), EINTR);
        _exit(0);
    }
    wait_for_receivers(queue, 1);
    /* The signal is repeated, because a signal that arrives between two slices of the sleep does not end the call. */
    while (waitpid(child, &status, WNOHANG) == 0) {
        CHECK(kill(child, SIGUSR1) == 0);
        nanosleep(&moment, NULL);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    done(queue, "/eintr");
}

static const struct test_case cases[] = {
    CASE(a_call_goes_on_when_another_thread_closes_its_handle),
    CASE(threads_share_a_handle),
    CASE(threads_open_and_close_at_the_same_time),
    CASE(each_thread_has_a_last_error_of_its_own),
    CASE(a_forked_child_goes_on_with_its_parents_handle),
    CASE(a_forked_child_shares_the_flag_of_a_handle_and_no_other),
    CASE(a_receiver_killed_while_it_waits_takes_nothing_with_it),
    CASE(a_handler_ends_a_wait),
};

MAIN(cases)
