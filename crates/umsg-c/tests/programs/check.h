/* Checks for the test programs. A program runs all of its cases, or the cases that its arguments name. */
#ifndef CHECK_H
#define CHECK_H

#include <fcntl.h>
#include <umsg.h>

#define MORE umsg_last_error()
#include "claims.h"

#define NONE ((umsg_mqd_t)-1)

/* Checks that the call returns no handle and sets errno to this error. */
#define OPENS_NOT(call, error)                                                                    \
    do {                                                                                          \
        errno = 0;                                                                                \
        CHECK((call) == NONE && errno == (error));                                                \
    } while (0)

struct test_case {
    const char *name;
    void (*run)(void);
};

#define CASE(name) {#name, name}

/* Creates a queue with these attributes, for sending and receiving. */
static inline umsg_mqd_t make(const char *name, long messages, long bytes, int flags)
{
    struct umsg_mq_attr attr;
    umsg_mqd_t queue;
    memset(&attr, 0, sizeof attr);
    attr.mq_maxmsg = messages;
    attr.mq_msgsize = bytes;
    queue = umsg_mq_open(name, O_CREAT | O_EXCL | O_RDWR | flags, 0600, &attr);
    CHECK(queue != NONE);
    return queue;
}

static inline void done(umsg_mqd_t queue, const char *name)
{
    CHECK(umsg_mq_close(queue) == 0);
    CHECK(umsg_mq_unlink(name) == 0);
}

static inline int run_cases(const struct test_case *cases, size_t count, int argc, char **argv)
{
    size_t i;
    int ran = 0;
    for (i = 0; i < count; i++) {
        int wanted = argc == 1;
        int j;
        for (j = 1; j < argc; j++)
            wanted = wanted || strcmp(argv[j], cases[i].name) == 0;
        if (wanted) {
            printf("%s\n", cases[i].name);
            fflush(stdout);
            cases[i].run();
            ran++;
        }
    }
    return ran > 0 ? 0 : 2;
}

#define MAIN(cases)                                                                               \
    int main(int argc, char **argv)                                                               \
    {                                                                                             \
        return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);                        \
    }

#endif
