/*
 * Sends records to another process in batches: each batch costs one lock and one wake-up, instead of one for each record.
 *
 *     ./records /records 1000000
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <umsg.h>
#include <unistd.h>

enum { BATCH = 64, DEPTH = 1024 };

struct record {
    long number;
    char text[24];
};

static void fail(const char *what)
{
    fprintf(stderr, "records: %s: %s\n", what, umsg_last_error());
    exit(1);
}

static void produce(umsg_mqd_t queue, long count)
{
    struct record records[BATCH];
    struct umsg_mq_message messages[BATCH];
    memset(records, 0, sizeof records);
    memset(messages, 0, sizeof messages);
    for (long first = 0; first < count; first += BATCH) {
        size_t n = count - first < BATCH ? (size_t)(count - first) : BATCH;
        for (size_t i = 0; i < n; i++) {
            records[i].number = first + (long)i;
            messages[i].data = &records[i];
            messages[i].len = sizeof records[i];
        }
        /* Sends all messages or none; waits until there is room for all. */
        if (umsg_mq_send_batch(queue, messages, n, NULL) != 0)
            fail("send");
    }
}

static long consume(umsg_mqd_t queue, long count)
{
    struct record records[BATCH];
    struct umsg_mq_message places[BATCH];
    long next = 0;
    memset(places, 0, sizeof places);
    for (size_t i = 0; i < BATCH; i++) {
        places[i].data = &records[i];
        places[i].size = sizeof records[i];
    }
    while (next < count) {
        /* Receives as many messages as there are, and at least one. */
        ssize_t n = umsg_mq_receive_batch(queue, places, BATCH, NULL);
        if (n < 0)
            fail("receive");
        for (ssize_t i = 0; i < n; i++) {
            if (records[i].number != next)
                return next;
            next++;
        }
    }
    return next;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "/records";
    long count = argc > 2 ? atol(argv[2]) : 1000000;
    struct umsg_mq_attr attr = {.mq_maxmsg = DEPTH, .mq_msgsize = sizeof(struct record)};
    umsg_mqd_t queue = umsg_mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &attr);
    int status;

    if (queue == (umsg_mqd_t)-1 || umsg_mq_unlink(name) != 0)
        fail(name);
    if (fork() == 0) {
        produce(queue, count);
        _exit(0);
    }
    long in_order = consume(queue, count);
    printf("%ld of %ld records in order\n", in_order, count);
    wait(&status);
    return in_order == count && status == 0 ? 0 : 1;
}
