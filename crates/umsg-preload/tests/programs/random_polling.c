/* Random operations on queues, their descriptors and epoll sets: `random_polling SEED COUNT` prints the answer to each operation. The same seed
 * selects the same operations, on the kernel's queues and on umsg's queues. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __GLIBC__
#include "musl.h"
#endif

/* The program moves its descriptors to NUMBERS numbers, beginning with FIRST. */
enum { NAMES = 2, SETS = 2, FIRST = 20, NUMBERS = 12, DEPTH = 3 };

static char names[NAMES][64];
static int sets[SETS];
static unsigned long state;

static unsigned pick(unsigned count) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return (unsigned)(state >> 33) % count;
}

static int number(void) { return FIRST + (int)pick(NUMBERS); }

static const char *answer(long result) { return result < 0 ? strerrorname_np(errno) : "ok"; }

static void open_queue(void) {
    static const int accesses[] = {O_RDONLY, O_WRONLY, O_RDWR};
    struct mq_attr attributes = {.mq_maxmsg = DEPTH, .mq_msgsize = 8};
    int name = (int)pick(NAMES), access = (int)pick(3), wanted = number();
    int queue = mq_open(names[name], accesses[access] | O_NONBLOCK | O_CREAT, 0600, &attributes);
    printf("open %d for %d as %d: %s, at %d\n", name, access, wanted, answer(queue), queue);
    if (queue >= 0 && (dup2(queue, wanted) != wanted || close(queue) != 0)) abort();
}

static void close_or_duplicate(void) {
    int one = number(), other = number();
    if (pick(2))
        printf("dup2 %d %d: %s\n", one, other, answer(dup2(one, other)));
    else
        printf("close %d: %s\n", one, answer(pick(2) ? close(one) : mq_close(one)));
}

static void send_or_receive(void) {
    char buffer[8];
    int queue = number();
    if (pick(2))
        printf("send %d: %s\n", queue, answer(mq_send(queue, "x", 1, pick(3))));
    else
        printf("receive %d: %s\n", queue, answer(mq_receive(queue, buffer, 8, NULL)));
}

static void poll_all(void) {
    struct pollfd all[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) all[i] = (struct pollfd){FIRST + i, POLLIN | POLLOUT | POLLPRI, 0};
    printf("poll: %d:", poll(all, NUMBERS, (int)pick(2)));
    for (int i = 0; i < NUMBERS; i++) printf(" %x", all[i].revents);
    printf("\n");
}

static void change_set(long step) {
    static const int operations[] = {EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
    int set = (int)pick(SETS), operation = operations[pick(4)], descriptor = number();
    unsigned events = (pick(2) ? EPOLLIN : 0) | (pick(2) ? EPOLLOUT : 0);
    events |= (pick(2) ? EPOLLET : 0) | (pick(8) ? 0 : EPOLLONESHOT);
    struct epoll_event event = {events, {.u64 = (unsigned long)step * 100 + (unsigned)descriptor}};
    long result = epoll_ctl(sets[set], operation, descriptor, &event);
    printf("epoll_ctl %d, operation %d, %d, events %x: %s\n", set, operation, descriptor, events, answer(result));
}

static int by_data(const void *one, const void *other) {
    unsigned long first = ((const struct epoll_event *)one)->data.u64, second = ((const struct epoll_event *)other)->data.u64;
    return first < second ? -1 : first > second;
}

/* The order of the events is not compared, so they are sorted. */
static void ask_set(void) {
    struct epoll_event found[64];
    int set = (int)pick(SETS), count = epoll_wait(sets[set], found, 64, 0);
    qsort(found, (size_t)count, sizeof *found, by_data);
    printf("epoll_wait %d: %d:", set, count);
    for (int i = 0; i < count; i++) printf(" %lu has %x", (unsigned long)found[i].data.u64, found[i].events);
    printf("\n");
}

static void unlink_queue(void) {
    int name = (int)pick(NAMES);
    if (pick(10) == 0) printf("unlink %d: %s\n", name, answer(mq_unlink(names[name])));
}

static void do_one(long step, int is_child) {
    switch (pick(10)) {
    case 0: open_queue(); break;
    case 1: close_or_duplicate(); break;
    case 2: case 3: case 4: send_or_receive(); break;
    case 5: poll_all(); break;
    /* A child makes no registrations. On umsg, a child's registrations end with the child, except if the parent already had a doorbell. */
    case 6: case 7: if (!is_child) change_set(step); break;
    case 8: ask_set(); break;
    case 9: unlink_queue(); break;
    }
}

static void do_some_in_a_child(long step) {
    int status, count = 1 + (int)pick(6);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        while (count-- > 0) do_one(step, 1);
        exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0) abort();
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    state = strtoul(argv[1], NULL, 10);
    for (int i = 0; i < NAMES; i++) snprintf(names[i], sizeof names[i], "/umsg-random-%d-%d", (int)getpid(), i);
    for (int i = 0; i < SETS; i++) sets[i] = epoll_create1(EPOLL_CLOEXEC);
    for (long step = 0; step < atol(argv[2]); step++) {
        printf("%ld ", step);
        do_one(step, 0);
        ask_set();
        if (pick(60) == 0) do_some_in_a_child(step);
    }
    for (int i = 0; i < NAMES; i++) mq_unlink(names[i]);
    return 0;
}
