/*
 * Sends each line of its standard input as a message; lines that begin with ! are urgent.
 *
 *     printf 'one\ntwo\n!three\n' | ./producer /jobs
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <umsg.h>

enum { LONGEST = 1024, URGENT = 10 };

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "/jobs";
    struct umsg_mq_options options = {
        .size = sizeof options,
        .max_messages = 100000,
        .message_size = LONGEST,
    };
    /* An existing queue keeps its own attributes. */
    umsg_mqd_t queue = umsg_mq_open_with(name, O_CREAT | O_WRONLY, 0600, &options);
    char line[LONGEST + 1];

    if (queue == (umsg_mqd_t)-1) {
        fprintf(stderr, "producer: %s: %s\n", name, umsg_last_error());
        return 1;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        size_t length = strcspn(line, "\n");
        unsigned priority = line[0] == '!' ? URGENT : 0;
        /* Waits while the queue is full. */
        if (umsg_mq_send(queue, line, length, priority) != 0) {
            fprintf(stderr, "producer: %s: %s\n", name, umsg_last_error());
            return 1;
        }
    }
    return umsg_mq_close(queue) == 0 ? 0 : 1;
}
