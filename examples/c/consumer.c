/*
 * Prints the messages of a queue, the urgent ones first, until no message has come for a second.
 *
 *     ./consumer /jobs
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <umsg.h>

/* As in POSIX, time-outs are points in time, so that a repeated call does not extend the wait. */
static struct timespec in_a_second(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += 1;
    return time;
}

static int fail(const char *name)
{
    fprintf(stderr, "consumer: %s: %s\n", name, umsg_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "/jobs";
    umsg_mqd_t queue = umsg_mq_open(name, O_RDONLY);
    struct umsg_mq_attr attr;
    char *buffer;

    if (queue == (umsg_mqd_t)-1 || umsg_mq_getattr(queue, &attr) != 0)
        return fail(name);
    /* A receive requires room for the longest message that the queue takes. */
    buffer = malloc((size_t)attr.mq_msgsize);
    if (buffer == NULL)
        return 1;
    for (;;) {
        struct timespec until = in_a_second();
        unsigned priority;
        ssize_t length =
            umsg_mq_timedreceive(queue, buffer, (size_t)attr.mq_msgsize, &priority, &until);
        if (length < 0 && errno == ETIMEDOUT)
            break;
        if (length < 0)
            return fail(name);
        printf("%2u %.*s\n", priority, (int)length, buffer);
    }
    free(buffer);
    return umsg_mq_close(queue) == 0 ? 0 : 1;
}
