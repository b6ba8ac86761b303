/* The events that the library reports to a program's log function. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

struct seen {
    int calls;
    int level;
    char text[512];
    umsg_mqd_t queue;
};

static void note(int level, const char *text, void *argument)
{
    struct seen *seen = argument;
    struct umsg_mq_attr attr;
    seen->calls++;
    seen->level = level;
    snprintf(seen->text, sizeof seen->text, "%s", text);
    /* The library calls this function without a lock, so calls on the event's queue work. */
    CHECK(umsg_mq_getattr(seen->queue, &attr) == 0);
    CHECK(umsg_mq_send(seen->queue, "", 0, 0) == 0);
}

static umsg_mqd_t open_for(const char *name, uint64_t time_to_live)
{
    struct umsg_mq_options options;
    umsg_mqd_t queue;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.max_messages = 10;
    options.time_to_live = time_to_live;
    queue = umsg_mq_open_with(name, O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &options);
    CHECK(queue != NONE);
    return queue;
}

static int64_t coarse_clock(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC_COARSE, &now) == 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Waits until 5 ms have passed on the clock by which messages expire. On a busy machine, this clock may lag far behind the sleep. */
static void let_messages_expire(void)
{
    const struct timespec moment = {0, 10000000};
    int64_t end = coarse_clock() + 5000000;
    do
        nanosleep(&moment, NULL);
    while (coarse_clock() < end);
}

static void an_expired_message_is_told_after_the_call_has_released_the_queue(void)
{
    char buffer[8192];
    struct seen seen;
    memset(&seen, 0, sizeof seen);
    CHECK(umsg_set_log(note, &seen) == 0);
    seen.queue = open_for("/log", 1000000);
    CHECK(umsg_mq_send(seen.queue, "old", 3, 0) == 0);
    let_messages_expire();
    CHECK(umsg_mq_receive(seen.queue, buffer, sizeof buffer, NULL) == -1);
    CHECK(seen.calls == 1 && seen.level == LOG_INFO);
    CHECK(strcmp(seen.text, "/log: a message expired") == 0);
    /* From now on, the program has no log function. */
    CHECK(umsg_set_log(NULL, NULL) == 0);
    let_messages_expire();
    CHECK(umsg_mq_receive(seen.queue, buffer, sizeof buffer, NULL) == -1);
    CHECK(seen.calls == 1);
    done(seen.queue, "/log");
}

static void the_death_of_the_holder_of_a_message_is_told_with_its_process(void)
{
    char buffer[8192], wanted[128];
    struct seen seen;
    struct umsg_mq_lease lease;
    pid_t child;
    int status, tries;
    const struct timespec moment = {0, 5000000};
    memset(&seen, 0, sizeof seen);
    CHECK(umsg_set_log(note, &seen) == 0);
    seen.queue = open_for("/log", 0);
    CHECK(umsg_mq_send(seen.queue, "job", 3, 1) == 0);
    child = fork();
    if (child == 0) {
        CHECK(umsg_mq_lease(seen.queue, &lease, NULL) == 0);
        raise(SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    /* The library checks at intervals whether the holder of a lease is alive. */
    for (tries = 0; tries < 2000 && umsg_mq_receive(seen.queue, buffer, sizeof buffer, NULL) != 3; tries++)
        nanosleep(&moment, NULL);
    CHECK(tries < 2000 && seen.calls == 1 && seen.level == LOG_WARNING);
    snprintf(wanted, sizeof wanted, "/log: process %d died with a lease or a reservation", (int)child);
    CHECK(strcmp(seen.text, wanted) == 0);
    CHECK(umsg_set_log(NULL, NULL) == 0);
    done(seen.queue, "/log");
}

/* C99 has no atomic types. */
#define LOAD(word) __atomic_load_n(word, __ATOMIC_SEQ_CST)

static int is_over;

/* Lets a message expire, which is an event. */
static void let_expire(umsg_mqd_t queue)
{
    char buffer[8192];
    CHECK(umsg_mq_send(queue, "old", 3, 0) == 0);
    let_messages_expire();
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == -1);
}

static void count(int level, const char *text, void *argument)
{
    int *calls = argument;
    CHECK(level == LOG_INFO && strstr(text, "a message expired") != NULL);
    __atomic_fetch_add(calls, 1, __ATOMIC_SEQ_CST);
}

/* Counts the events of the children's own queue. A child may also get events that its parent noted before the fork. */
static void count_own(int level, const char *text, void *argument)
{
    if (strcmp(text, "/own: a message expired") == 0)
        count(level, text, argument);
}

/* The queue on which the log function makes calls. Messages of this queue expire. */
static umsg_mqd_t of_function;
static int depth, deepest, in_function;

static void let_expire_again(int level, const char *text, void *argument)
{
    count(level, text, argument);
    depth++;
    deepest = depth > deepest ? depth : deepest;
    /* Each of these calls causes an event. The library does not call this function for these events. */
    let_expire(of_function);
    let_expire(of_function);
    in_function++;
    depth--;
}

static void the_function_is_not_called_for_the_events_of_its_own_calls(void)
{
    int i, calls = 0;
    umsg_mqd_t queue;
    CHECK(umsg_set_log(let_expire_again, &calls) == 0);
    queue = open_for("/log", 500000);
    of_function = open_for("/own", 500000);
    for (i = 1; i <= 3; i++) {
        let_expire(queue);
        CHECK(calls == i && in_function == i && deepest == 1);
    }
    /* A later call does not report the events that the log function's own calls have caused. */
    CHECK(umsg_set_log(count, &calls) == 0);
    let_expire(of_function);
    CHECK(calls == 4 && in_function == 3);
    CHECK(umsg_set_log(NULL, NULL) == 0);
    done(of_function, "/own");
    done(queue, "/log");
}

static void *let_expire_once(void *argument)
{
    let_expire(*(umsg_mqd_t *)argument);
    return NULL;
}

static void a_muted_thread_makes_no_events_and_other_threads_do(void)
{
    int calls = 0, status;
    umsg_mqd_t queue;
    pthread_t other;
    pid_t child;
    CHECK(umsg_set_log(count, &calls) == 0);
    queue = open_for("/log", 500000);
    let_expire(queue);
    CHECK(calls == 1);
    CHECK(umsg_mute_thread_log(1) == 0);
    let_expire(queue);
    CHECK(calls == 1);
    CHECK(pthread_create(&other, NULL, let_expire_once, &queue) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(calls == 2);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        let_expire(queue);
        if (calls != 2)
            _exit(1);
        /* Any value but 0 mutes; a repeated call changes nothing. */
        CHECK(umsg_mute_thread_log(-1) == 0 && umsg_mute_thread_log(0) == 0);
        let_expire(queue);
        _exit(calls == 3 ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(umsg_mute_thread_log(0) == 0);
    let_expire(queue);
    CHECK(calls == 3);
    CHECK(umsg_set_log(NULL, NULL) == 0);
    done(queue, "/log");
}

static void *let_expire_all_the_time(void *argument)
{
    umsg_mqd_t queue = *(umsg_mqd_t *)argument;
    while (!LOAD(&is_over))
        let_expire(queue);
    return NULL;
}

static void *change_the_function_all_the_time(void *argument)
{
    while (!LOAD(&is_over))
        CHECK(umsg_set_log(count, argument) == 0);
    return NULL;
}

static void a_child_sets_its_own_function_whatever_other_threads_did_at_the_fork(void)
{
    static int in_parent, in_child;
    umsg_mqd_t queue, own;
    pthread_t threads[2];
    int i, status;
    pid_t child;
    CHECK(umsg_set_log(count, &in_parent) == 0);
    queue = open_for("/log", 500000);
    CHECK(umsg_mq_unlink("/log") == 0);
    own = open_for("/own", 500000);
    CHECK(pthread_create(&threads[0], NULL, let_expire_all_the_time, &queue) == 0);
    CHECK(pthread_create(&threads[1], NULL, change_the_function_all_the_time, &in_parent) == 0);
    for (i = 0; i < 40; i++) {
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* Ends a child that waits for a lock. */
            alarm(30);
            CHECK(umsg_set_log(count_own, &in_child) == 0);
            let_expire(own);
            _exit(LOAD(&in_child) == 1 ? 0 : 1);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(umsg_set_log(NULL, NULL) == 0);
    CHECK(LOAD(&in_parent) > 0);
    CHECK(umsg_mq_close(queue) == 0);
    done(own, "/own");
}

static const struct test_case cases[] = {
    CASE(an_expired_message_is_told_after_the_call_has_released_the_queue),
    CASE(the_death_of_the_holder_of_a_message_is_told_with_its_process),
    CASE(the_function_is_not_called_for_the_events_of_its_own_calls),
    CASE(a_muted_thread_makes_no_events_and_other_threads_do),
    CASE(a_child_sets_its_own_function_whatever_other_threads_did_at_the_fork),
};

MAIN(cases)
