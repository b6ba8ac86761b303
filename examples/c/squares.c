/*
 * Children post their results to a ring of their parent. The parent is woken when all results have arrived.
 *
 *     squares 100
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <umsg/ring.h>
#include <unistd.h>

#define CHILDREN 4

static void give_up(const char *what)
{
    fprintf(stderr, "squares: %s: %s\n", what, umsg_last_error());
    exit(1);
}

/* The work of one child: squares every fourth number from `first` to `last`. */
static int work(struct umsg_ring_sender *results, uint64_t first, uint64_t last)
{
    uint64_t number;
    for (number = first; number <= last; number += CHILDREN) {
        uint64_t square = number * number;
        struct umsg_ring_post post = umsg_ring_post_of(number, &square, sizeof square);
        if (umsg_ring_send(results, &post) != 0)
            return 1;
    }
    return 0;
}

static void add(const struct umsg_ring_message *message, void *argument)
{
    uint64_t *sum = argument, square;
    memcpy(&square, message->payload, sizeof square);
    *sum += square;
}

int main(int argc, char **argv)
{
    uint64_t last = argc > 1 ? strtoull(argv[1], NULL, 10) : 100, sum = 0;
    struct umsg_ring *ring = umsg_ring_create(NULL);
    struct umsg_ring_sender *results;
    int child, how;
    if (ring == NULL)
        give_up("no ring");
    results = umsg_ring_sender_of(ring);
    if (results == NULL)
        give_up("no sender");
    for (child = 0; child < CHILDREN; child++)
        if (fork() == 0)
            _exit(work(results, (uint64_t)child + 1, last));
    if (umsg_ring_wait(ring, last, NULL) < 0 || umsg_ring_drain(ring, add, &sum) < 0)
        give_up("no results");
    for (child = 0; child < CHILDREN; child++)
        if (wait(&how) < 0 || how != 0)
            give_up("a child failed");
    printf("the squares from 1 to %llu add up to %llu\n", (unsigned long long)last,
           (unsigned long long)sum);
    umsg_ring_sender_free(results);
    return umsg_ring_free(ring);
}
