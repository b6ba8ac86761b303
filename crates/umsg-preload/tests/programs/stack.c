/* Measures the stack that each call takes: the call runs on a stack that is filled with a pattern first. The program is linked with -z now, so that
 * the dynamic linker's own work is not counted. `stack LIMIT` fails if a call takes more than LIMIT bytes; 0 means no limit. */
#define main main_of_cases
#include "check.h"
#undef main
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { SIZE = 1 << 18, PAINT = 0xa5 };
static unsigned char *painted;
static ucontext_t outside, inside;
static void (*measured)(void);
static int limit, worst;

static void run_measured(void) {
    measured();
    swapcontext(&inside, &outside);
}

static int take(void (*work)(void)) {
    memset(painted, PAINT, SIZE);
    measured = work;
    getcontext(&inside);
    inside.uc_stack.ss_sp = painted;
    inside.uc_stack.ss_size = SIZE;
    makecontext(&inside, run_measured, 0);
    swapcontext(&outside, &inside);
    int untouched = 0;
    while (untouched < SIZE && painted[untouched] == PAINT) untouched++;
    return SIZE - untouched;
}

static void tell(const char *what, int bytes) {
    int is_too_much = limit && bytes > limit;
    printf("%-44s %6d bytes%s\n", what, bytes, is_too_much ? "  TOO MUCH" : "");
    if (bytes > worst) worst = bytes;
}

#define MEASURE(name, ...)                                                                                             \
    do {                                                                                                               \
        void work(void) { __VA_ARGS__; }                                                                               \
        tell(name, take(work));                                                                                        \
    } while (0)

static mqd_t queue;
static char buffer[8192];
static struct {
    long type;
    char bytes[64];
} message = {1, {0}};

static mqd_t open_queue(const char *name, int flags) {
    struct mq_attr attributes = {.mq_maxmsg = 2000, .mq_msgsize = 8192};
    return mq_open(name, O_RDWR | flags, 0600, &attributes);
}

static struct timespec soon(void) { return in_ms(250); }

static void drain(void) {
    while (mq_receive(queue, buffer, sizeof buffer, NULL) >= 0) continue;
}

static void set_blocking(int blocks) {
    struct mq_attr attributes = {.mq_flags = blocks ? 0 : O_NONBLOCK};
    EXPECT(mq_setattr(queue, &attributes, NULL) == 0);
}

static void posix_queues(void) {
    MEASURE("mq_open that creates, the first", queue = open_queue("/stack", O_CREAT | O_NONBLOCK));
    EXPECT(queue >= 0);
    MEASURE("mq_open and mq_close", mq_close(mq_open("/stack", O_RDWR)));
    MEASURE("mq_open with O_EXCL, refused", EXPECT(open_queue("/stack", O_CREAT | O_EXCL) < 0));
    MEASURE("mq_open of no queue", EXPECT(mq_open("/none", O_RDWR) < 0));
    MEASURE("mq_open of an impossible name", EXPECT(mq_open("/a/b", O_RDWR) < 0));
    MEASURE("mq_open with impossible attributes", {
        struct mq_attr none = {.mq_maxmsg = 0, .mq_msgsize = 0};
        EXPECT(mq_open("/other", O_RDWR | O_CREAT, 0600, &none) < 0);
    });
    MEASURE("mq_getattr", { struct mq_attr attributes; mq_getattr(queue, &attributes); });
    MEASURE("mq_setattr", set_blocking(0));
    MEASURE("mq_send, the first", mq_send(queue, buffer, 8, 1));
    MEASURE("mq_send", mq_send(queue, buffer, 8, 1));
    MEASURE("mq_send of 8000 bytes", mq_send(queue, buffer, 8000, 1));
    MEASURE("mq_send, until the queue is full",
            for (int sent = 0; mq_send(queue, buffer, sent % 2 ? 8 : 8000, sent % 50) == 0; sent++) continue);
    MEASURE("mq_timedsend to a full queue", { set_blocking(1); struct timespec end = soon(); mq_timedsend(queue, buffer, 8, 1, &end); set_blocking(0); });
    MEASURE("mq_receive", mq_receive(queue, buffer, sizeof buffer, NULL));
    MEASURE("mq_receive, until the queue is empty", drain());
    MEASURE("mq_timedreceive from an empty queue", { set_blocking(1); struct timespec end = soon(); mq_timedreceive(queue, buffer, sizeof buffer, NULL, &end); set_blocking(0); });
    MEASURE("calls on what is no queue", { mq_send(0, buffer, 8, 1); mq_receive(99, buffer, 8192, NULL); mq_close(99); });
}

static void notifications(void) {
    static struct sigevent by_signal = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGURG};
    MEASURE("mq_notify", EXPECT(mq_notify(queue, &by_signal) == 0));
    MEASURE("mq_notify, refused", EXPECT(mq_notify(queue, &by_signal) < 0));
    MEASURE("mq_send that notifies", mq_send(queue, buffer, 8, 1));
    drain();
    MEASURE("mq_notify, again", EXPECT(mq_notify(queue, &by_signal) == 0));
    MEASURE("mq_notify that withdraws", EXPECT(mq_notify(queue, NULL) == 0));
}

static void polling(void) {
    static struct pollfd one = {.events = POLLIN | POLLOUT};
    static int set, many;
    static struct epoll_event event = {.events = EPOLLIN};
    one.fd = queue;
    MEASURE("poll", poll(&one, 1, 0));
    MEASURE("poll that waits", { one.events = POLLIN; poll(&one, 1, 150); });
    MEASURE("mq_send while polled, the first", mq_send(queue, buffer, 8, 1));
    MEASURE("mq_send while polled", mq_send(queue, buffer, 8, 1));
    MEASURE("mq_receive while polled", mq_receive(queue, buffer, sizeof buffer, NULL));
    MEASURE("select", { fd_set ready; FD_ZERO(&ready); FD_SET(queue, &ready); select(queue + 1, &ready, NULL, NULL, NULL); });
    set = epoll_create1(0);
    MEASURE("epoll_ctl ADD", EXPECT(epoll_ctl(set, EPOLL_CTL_ADD, queue, &event) == 0));
    MEASURE("epoll_wait", epoll_wait(set, &event, 1, 0));
    many = dup(queue);
    MEASURE("epoll_ctl ADD of a duplicate", EXPECT(epoll_ctl(set, EPOLL_CTL_ADD, many, &event) == 0));
    MEASURE("epoll_ctl DEL", EXPECT(epoll_ctl(set, EPOLL_CTL_DEL, many, &event) == 0));
    MEASURE("close of a duplicate", close(many));
    close(set);
    drain();
}

static void descriptors(void) {
    static int other;
    static char path[64];
    MEASURE("dup", other = dup(queue));
    MEASURE("fcntl", fcntl(other, F_GETFL));
    MEASURE("fstat", { struct stat status; fstat(other, &status); });
    MEASURE("read", read(other, buffer, 80));
    snprintf(path, sizeof path, "/proc/self/fd/%d", other);
    MEASURE("readlink", readlink(path, buffer, sizeof buffer));
    MEASURE("close", close(other));
    /* A bare system call bypasses the library, so the library does not know the new descriptor. */
    other = (int)bare_call(SYS_dup, queue, 0, 0, 0);
    MEASURE("mq_send to a descriptor that is not known", mq_send(other, buffer, 8, 1));
    MEASURE("mq_close of it", mq_close(other));
    MEASURE("open of /proc/sysvipc/msg", close(open("/proc/sysvipc/msg", O_RDONLY)));
    drain();
}

static void in_another_process(void (*work)(void)) {
    pid_t child = fork();
    if (child == 0) {
        work();
        fflush(stdout);
        _exit(limit && worst > limit);
    }
    expect_success(child);
}

static void first_calls(void) {
    MEASURE("mq_send, the first of a forked child", mq_send(queue, buffer, 8, 1));
    MEASURE("mq_receive of a forked child", mq_receive(queue, buffer, sizeof buffer, NULL));
}

static void *of_a_thread(void *nothing) {
    first_calls();
    return nothing;
}

static void first_calls_of_a_thread(void) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, of_a_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void send_and_receive(void) {
    mq_send(queue, buffer, 8, 1);
    mq_receive(queue, buffer, sizeof buffer, NULL);
}

static void send_and_receive_typed(void) {
    static int id = -1;
    if (id < 0) id = msgget(4711, 0600);
    msgsnd(id, &message, sizeof message.bytes, IPC_NOWAIT);
    msgrcv(id, &message, sizeof message.bytes, 0, IPC_NOWAIT);
}

/* Measures `work` 60 times, each time after the kill of a process that was repeating `work`. */
static void after_kills(const char *name, void (*work)(void)) {
    int most = 0;
    for (int kills = 0; kills < 60; kills++) {
        pid_t peer = fork();
        if (peer == 0)
            for (;;) work();
        usleep(3000);
        kill(peer, SIGKILL);
        int status;
        EXPECT(waitpid(peer, &status, 0) == peer && WIFSIGNALED(status));
        int bytes = take(work);
        if (bytes > most) most = bytes;
    }
    tell(name, most);
}

static void system_v_queues(void) {
    static int id, private;
    MEASURE("msgget that creates", id = msgget(4711, 0600 | IPC_CREAT));
    MEASURE("msgget", msgget(4711, 0600));
    MEASURE("msgget, refused", EXPECT(msgget(4711, 0600 | IPC_CREAT | IPC_EXCL) < 0));
    MEASURE("msgget of a private queue", private = msgget(IPC_PRIVATE, 0600));
    MEASURE("msgsnd, the first", msgsnd(id, &message, 64, IPC_NOWAIT));
    MEASURE("msgsnd, until the queue is full", while (msgsnd(id, &message, 64, IPC_NOWAIT) == 0) continue);
    MEASURE("msgrcv", msgrcv(id, &message, 64, 0, IPC_NOWAIT));
    MEASURE("msgrcv, until the queue is empty", while (msgrcv(id, &message, 64, -5, IPC_NOWAIT) >= 0) continue);
    MEASURE("msgctl IPC_STAT", { struct msqid_ds data; msgctl(id, IPC_STAT, &data); });
    MEASURE("msgctl MSG_STAT", { struct msqid_ds data; msgctl(0, MSG_STAT, &data); });
    MEASURE("msgctl IPC_SET", { struct msqid_ds data; msgctl(id, IPC_STAT, &data); data.msg_qbytes /= 2; msgctl(id, IPC_SET, &data); });
    MEASURE("msgctl IPC_INFO", { struct msginfo info; msgctl(0, IPC_INFO, (void *)&info); });
    MEASURE("msgctl of no queue", EXPECT(msgctl(123456, IPC_RMID, NULL) < 0));
    MEASURE("msgctl IPC_RMID", EXPECT(msgctl(private, IPC_RMID, NULL) == 0));
    after_kills("System V calls after kills", send_and_receive_typed);
    EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
}

int main(int argc, char **argv) {
    limit = argc > 1 ? atoi(argv[1]) : 0;
    painted = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(painted != MAP_FAILED);
    signal(SIGURG, SIG_IGN);
    posix_queues();
    notifications();
    polling();
    descriptors();
    fflush(stdout);
    in_another_process(first_calls);
    first_calls_of_a_thread();
    after_kills("POSIX calls after kills", send_and_receive);
    MEASURE("mq_close, the last", mq_close(queue));
    MEASURE("mq_unlink", mq_unlink("/stack"));
    MEASURE("mq_unlink of no queue", EXPECT(mq_unlink("/stack") < 0));
    fflush(stdout);
    system_v_queues();
    return limit && worst > limit;
}
