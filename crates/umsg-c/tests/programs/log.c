/* The events that a program's log gets. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

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
    /* The call holds no lock now. */
    CHECK(umsg_mq_getattr(seen->queue, &attr) == 0);
    CHECK(umsg_mq_send(seen->queue, "", 0, 0) == 0);
}

static umsg_mqd_t open_for(uint64_t time_to_live)
{
    struct umsg_mq_options options;
    umsg_mqd_t queue;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.max_messages = 10;
    options.time_to_live = time_to_live;
    queue = umsg_mq_open_with("/log", O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &options);
    CHECK(queue != NONE);
    return queue;
}

static void an_expired_message_is_told_after_the_call_has_released_the_queue(void)
{
    char buffer[8192];
    struct seen seen;
    const struct timespec moment = {0, 30000000};
    memset(&seen, 0, sizeof seen);
    CHECK(umsg_set_log(note, &seen) == 0);
    seen.queue = open_for(1000000);
    CHECK(umsg_mq_send(seen.queue, "old", 3, 0) == 0);
    nanosleep(&moment, NULL);
    CHECK(umsg_mq_receive(seen.queue, buffer, sizeof buffer, NULL) == -1);
    CHECK(seen.calls == 1 && seen.level == LOG_INFO);
    CHECK(strcmp(seen.text, "/log: a message expired") == 0);
    /* No function is called any more. */
    CHECK(umsg_set_log(NULL, NULL) == 0);
    nanosleep(&moment, NULL);
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
    seen.queue = open_for(0);
    CHECK(umsg_mq_send(seen.queue, "job", 3, 1) == 0);
    child = fork();
    if (child == 0) {
        CHECK(umsg_mq_lease(seen.queue, &lease, NULL) == 0);
        raise(SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    /* The library asks now and then whether holders live. */
    for (tries = 0; tries < 2000 && umsg_mq_receive(seen.queue, buffer, sizeof buffer, NULL) != 3; tries++)
        nanosleep(&moment, NULL);
    CHECK(tries < 2000 && seen.calls == 1 && seen.level == LOG_WARNING);
    snprintf(wanted, sizeof wanted, "/log: process %d died with a lease or a reservation", (int)child);
    CHECK(strcmp(seen.text, wanted) == 0);
    CHECK(umsg_set_log(NULL, NULL) == 0);
    done(seen.queue, "/log");
}

static const struct test_case cases[] = {
    CASE(an_expired_message_is_told_after_the_call_has_released_the_queue),
    CASE(the_death_of_the_holder_of_a_message_is_told_with_its_process),
};

MAIN(cases)
