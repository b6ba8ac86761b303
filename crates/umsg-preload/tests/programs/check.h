/* A program of cases: `program CASE` runs one and exits with 0 if all held. The same binary runs on the kernel's
 * queues and, preloaded, on umsg's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef __GLIBC__
#include "musl.h"
#endif

/* A system call that no library sees. */
__attribute__((unused)) static long bare_call(long number, long a, long b, long c, long d) {
#ifdef __x86_64__
    register long fourth __asm__("r10") = d;
    long result = number;
    __asm__ volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
#else
    register long called __asm__("x8") = number, result __asm__("x0") = a;
    register long second __asm__("x1") = b, third __asm__("x2") = c, fourth __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(result) : "r"(called), "r"(second), "r"(third), "r"(fourth) : "memory");
#endif
    if (result >= 0 || result < -4095) return result;
    errno = (int)-result;
    return -1;
}

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold (errno: %s)\n", __FILE__, __LINE__, #condition,                   \
                    strerrorname_np(errno));                                                                           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define EXPECT_ERRNO(call, expected)                                                                                   \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long result_ = (long)(call);                                                                                   \
        if (result_ != -1 || errno != (expected)) {                                                                    \
            fprintf(stderr, "%s:%d: %s is %ld (%s) instead of %s\n", __FILE__, __LINE__, #call, result_,               \
                    strerrorname_np(errno), #expected);                                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* NULL, hidden from the compiler, which would warn about it. */
__attribute__((unused)) static void *volatile nowhere;

struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
};
static struct test_case *cases;

#define CASE(id)                                                                                                       \
    static void id(void);                                                                                              \
    static struct test_case case_##id = {#id, id, NULL};                                                               \
    __attribute__((constructor)) static void add_##id(void) {                                                          \
        case_##id.next = cases;                                                                                        \
        cases = &case_##id;                                                                                            \
    }                                                                                                                  \
    static void id(void)

static char queue_name[64];
static pid_t queue_maker;

static void unlink_queue(void) {
    if (getpid() == queue_maker) mq_unlink(queue_name);
}

/* The name of this program's queue, removed when it ends. */
__attribute__((unused)) static const char *name(void) {
    if (!queue_name[0]) {
        queue_maker = getpid();
        snprintf(queue_name, sizeof queue_name, "/umsg-preload-test-%d", (int)queue_maker);
        atexit(unlink_queue);
    }
    return queue_name;
}

/* Creates the program's queue: `depth` messages of at most 16 bytes. */
__attribute__((unused)) static mqd_t create(int flags, long depth) {
    struct mq_attr attributes = {.mq_maxmsg = depth, .mq_msgsize = 16};
    mqd_t queue = mq_open(name(), flags | O_CREAT | O_EXCL, 0600, &attributes);
    EXPECT(queue >= 0);
    return queue;
}

/* Number of messages in a queue. */
__attribute__((unused)) static long count(mqd_t queue) {
    struct mq_attr attributes;
    EXPECT(mq_getattr(queue, &attributes) == 0);
    return attributes.mq_curmsgs;
}

/* Waits for a child, which must end with status 0. */
__attribute__((unused)) static void expect_success(pid_t child) {
    int status;
    EXPECT(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "child ended with status %#x\n", (unsigned)status);
        exit(1);
    }
}

/* Waits until a task sleeps, and has slept for some time. */
__attribute__((unused)) static void await_sleep(pid_t task) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)task);
    for (int seen = 0; seen < 5; seen = state == 'S' ? seen + 1 : 0) {
        usleep(2000);
        FILE *stat = fopen(path, "r");
        EXPECT(stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
        fclose(stat);
    }
}

/* Returns the time of CLOCK_REALTIME that is this number of milliseconds from now. */
__attribute__((unused)) static struct timespec in_ms(long ms) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    long nanoseconds = time.tv_nsec + ms % 1000 * 1000000;
    time.tv_sec += ms / 1000 + nanoseconds / 1000000000;
    time.tv_nsec = nanoseconds % 1000000000;
    return time;
}

/* The number of rounds of a case: a part of them on an emulated machine, where each takes many times as long. */
__attribute__((unused)) static int rounds(int all) {
    const char *part = getenv("UMSG_TEST_PART");
    return part && atoi(part) > 0 ? all / atoi(part) : all;
}

int main(int argc, char **argv) {
    for (struct test_case *one = cases; one; one = one->next)
        if (argc > 1 && !strcmp(one->name, argv[1])) {
            one->run();
            return 0;
        }
    fprintf(stderr, "no such case\n");
    return 2;
}
