/* IPC namespaces of the kernel: each has its own queues, also under the drop-in. */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/msg.h>
#include <sys/syscall.h>

#define KEY 0x5150

/* Enters a new IPC namespace. Without permission for namespaces, the case ends. */
static void enter(void) {
    if (unshare(CLONE_NEWIPC) != 0) exit(0);
}

static int own(void) {
    int file = open("/proc/self/ns/ipc", O_RDONLY | O_CLOEXEC);
    EXPECT(file >= 0);
    return file;
}

static int exists(const char *queue) {
    mqd_t found = mq_open(queue, O_RDONLY);
    if (found >= 0) EXPECT(mq_close(found) == 0);
    return found >= 0;
}

static int id_of(int flags) { return msgget(KEY, flags | 0600); }

CASE(a_new_namespace_has_queues_of_its_own) {
    enter();
    mqd_t queue = create(O_RDWR, 2);
    int id = id_of(IPC_CREAT);
    struct {
        long type;
        char text[8];
    } message = {1, "first"};
    EXPECT(id >= 0 && msgsnd(id, &message, 5, 0) == 0 && mq_send(queue, "first", 5, 0) == 0);
    enter();
    EXPECT(!exists(name()));
    EXPECT_ERRNO(id_of(0), ENOENT);
    EXPECT_ERRNO(msgsnd(id, &message, 5, IPC_NOWAIT), EINVAL);
    EXPECT_ERRNO(mq_unlink(name()), ENOENT);
    /* In the new namespace, the descriptor still refers to the earlier queue. */
    char text[16];
    EXPECT(count(queue) == 1 && mq_receive(queue, text, sizeof text, NULL) == 5 && mq_send(queue, "again", 5, 0) == 0);
    mqd_t other = create(O_RDWR, 3);
    EXPECT(count(other) == 0 && count(queue) == 1 && id_of(IPC_CREAT | IPC_EXCL) == 0);
    EXPECT(mq_close(queue) == 0 && mq_close(other) == 0);
}

/* Returns the number of System V queues. msgctl and /proc/sysvipc/msg must report the same number. */
static int queues(void) {
    struct msginfo info;
    int highest = msgctl(0, MSG_INFO, (struct msqid_ds *)&info), lines = -1, byte;
    FILE *table = fopen("/proc/sysvipc/msg", "r");
    EXPECT(highest >= 0 && table);
    while ((byte = fgetc(table)) != EOF) lines += byte == '\n';
    EXPECT(fclose(table) == 0 && lines == info.msgpool);
    return lines;
}

CASE(a_process_comes_back_to_the_queues_of_a_namespace) {
    enter();
    int first = own();
    EXPECT(mq_close(create(O_RDWR, 2)) == 0);
    int id = id_of(IPC_CREAT);
    EXPECT(queues() == 1 && queues() == 1);
    enter();
    int second = own();
    EXPECT(queues() == 0 && !exists(name()) && msgget(KEY + 1, IPC_CREAT | 0600) >= 0);
    EXPECT(setns(first, CLONE_NEWIPC) == 0 && exists(name()) && id_of(0) == id);
    EXPECT_ERRNO(msgget(KEY + 1, 0), ENOENT);
    EXPECT(setns(second, 0) == 0 && !exists(name()) && msgget(KEY + 1, 0) >= 0);
    EXPECT(queues() == 1 && setns(first, CLONE_NEWIPC) == 0 && exists(name()) && queues() == 1);
    EXPECT_ERRNO(setns(-1, CLONE_NEWIPC), EBADF);
    EXPECT(exists(name()));
}

CASE(queues_that_are_made_again_and_again_stay_in_their_namespace) {
    enter();
    for (int round = 0; round < 4; round++) {
        int id = msgget(IPC_PRIVATE, 0600);
        EXPECT(id >= 0 && msgctl(id, IPC_RMID, NULL) == 0 && mq_close(create(O_RDWR, 2)) == 0 && mq_unlink(name()) == 0);
    }
    int first = own();
    enter();
    int id = msgget(IPC_PRIVATE, 0600);
    mqd_t queue = create(O_RDWR, 2);
    struct msqid_ds state;
    EXPECT(id == 0 && mq_send(queue, "x", 1, 0) == 0 && mq_close(queue) == 0);
    EXPECT(setns(first, CLONE_NEWIPC) == 0 && !exists(name()));
    EXPECT_ERRNO(msgctl(id, IPC_STAT, &state), EINVAL);
}

static int child_of_clone(void *nothing) {
    (void)nothing;
    EXPECT(!exists(name()));
    EXPECT_ERRNO(id_of(0), ENOENT);
    mqd_t queue = create(O_RDWR, 3);
    EXPECT(id_of(IPC_CREAT | IPC_EXCL) >= 0 && mq_send(queue, "child", 5, 0) == 0);
    return 7;
}

static int child_that_looks(void *nothing) {
    (void)nothing;
    return exists(name()) ? 5 : 6;
}

CASE(a_child_of_clone_has_queues_of_its_own) {
    enter();
    mqd_t queue = create(O_RDWR, 2);
    int id = id_of(IPC_CREAT);
    static char stack[256 << 10] __attribute__((aligned(16)));
    pid_t child = clone(child_of_clone, stack + sizeof stack, CLONE_NEWIPC | SIGCHLD, NULL);
    int status;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    EXPECT(count(queue) == 0 && exists(name()) && id_of(0) == id);
    /* This child gets no new namespace. */
    child = clone(child_that_looks, stack + sizeof stack, SIGCHLD, NULL);
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
}

CASE(a_child_of_a_bare_clone_has_queues_of_its_own) {
    enter();
    mqd_t queue = create(O_RDWR, 2);
    int id = id_of(IPC_CREAT);
    for (int first = 0; first < 3; first++) {
        pid_t child = syscall(SYS_clone, CLONE_NEWIPC | SIGCHLD, 0L, 0L, 0L, 0L);
        if (child == 0) {
            if (first == 0) EXPECT(!exists(name()));
            if (first == 1) EXPECT_ERRNO(id_of(0), ENOENT);
            if (first == 2) EXPECT_ERRNO(mq_unlink(name()), ENOENT);
            child_of_clone(NULL);
            _exit(0);
        }
        expect_success(child);
    }
    EXPECT(count(queue) == 0 && exists(name()) && id_of(0) == id);
}

CASE(is_there) { exit(exists("/there") ? 0 : 9); }

static int program(const char *which) {
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "program", which, NULL);
        _exit(127);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define OLD (KEY + 1)

CASE(finds_only_the_key_of_its_namespace) {
    EXPECT(id_of(0) >= 0);
    EXPECT_ERRNO(msgget(OLD, 0), ENOENT);
    exit(0);
}

static void *moves_and_executes(void *nothing) {
    enter();
    EXPECT(id_of(IPC_CREAT) >= 0);
    /* Long arguments make execve slow, because the kernel copies them. */
    static char text[100 << 10], *arguments[16] = {"program", "finds_only_the_key_of_its_namespace"};
    memset(text, 'x', sizeof text - 1);
    for (int i = 2; i < 15; i++) arguments[i] = text;
    execv("/proc/self/exe", arguments);
    _exit(127);
    return nothing;
}

/* The first thread makes calls until execve in the other thread replaces the program. */
CASE(a_thread_executes_a_program_in_a_namespace_of_its_own) {
    enter();
    EXPECT(msgget(OLD, IPC_CREAT | 0600) >= 0);
    pid_t child = fork();
    if (child == 0) {
        pthread_t other;
        EXPECT(pthread_create(&other, NULL, moves_and_executes, NULL) == 0);
        for (;;) EXPECT(msgget(OLD, 0) >= 0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static mqd_t there(int flags) { return mq_open("/there", O_RDWR | flags, 0600, NULL); }

CASE(programs_of_a_namespace_share_its_queues) {
    enter();
    int first = own();
    EXPECT(there(O_CREAT | O_EXCL) >= 0 && program("is_there") == 0);
    enter();
    EXPECT(program("is_there") == 9);
    EXPECT(there(O_CREAT | O_EXCL) >= 0 && program("is_there") == 0);
    EXPECT(setns(first, 0) == 0 && mq_unlink("/there") == 0 && program("is_there") == 9);
    EXPECT(system("ipcmk -Q > /dev/null") == 0 && system("test $(ipcs -q | grep -c '^0x') = 1") == 0);
    enter();
    EXPECT(system("test $(ipcs -q | grep -c '^0x') = 0") == 0);
    EXPECT(system("unshare -i sh -c 'ipcmk -Q > /dev/null && test $(ipcs -q | grep -c ^0x) = 1'") == 0);
    EXPECT(system("test $(ipcs -q | grep -c '^0x') = 0") == 0);
}

CASE(a_namespace_outlives_the_process_that_has_made_queues_in_it) {
    enter();
    pid_t child = fork();
    if (child == 0) {
        EXPECT(there(O_CREAT | O_EXCL) >= 0);
        exit(0);
    }
    expect_success(child);
    EXPECT(exists("/there"));
    int ready[2], rest[2];
    EXPECT(pipe(ready) == 0 && pipe(rest) == 0);
    child = fork();
    if (child == 0) {
        enter();
        EXPECT(there(O_CREAT | O_EXCL) >= 0 && write(ready[1], "x", 1) == 1);
        char byte;
        EXPECT(read(rest[0], &byte, 1) == 1);
        exit(0);
    }
    char byte, path[64];
    EXPECT(read(ready[0], &byte, 1) == 1);
    snprintf(path, sizeof path, "/proc/%d/ns/ipc", child);
    int kept = open(path, O_RDONLY);
    EXPECT(kept >= 0 && write(rest[1], "x", 1) == 1);
    expect_success(child);
    /* Only the descriptor keeps the namespace alive. */
    EXPECT(mq_unlink("/there") == 0 && setns(kept, CLONE_NEWIPC) == 0 && exists("/there"));
}

CASE(a_new_namespace_has_the_default_limits) {
    enter();
    int file = open("/proc/sys/kernel/msgmni", O_RDWR);
    EXPECT(file >= 0 && write(file, "77", 2) == 2 && close(file) == 0);
    enter();
    char text[16] = {0};
    file = open("/proc/sys/kernel/msgmni", O_RDONLY);
    EXPECT(file >= 0 && read(file, text, 15) > 0 && atoi(text) == 32000);
}

/* The following cases run only on umsg's queues. */

CASE(make_there) { EXPECT(there(O_CREAT | O_EXCL) >= 0); }

CASE(make_another) { EXPECT(mq_open("/another", O_RDWR | O_CREAT | O_EXCL, 0600, NULL) >= 0); }

CASE(a_process_is_killed_in_its_namespace) {
    enter();
    EXPECT(there(O_CREAT | O_EXCL) >= 0);
    kill(getpid(), SIGKILL);
}

CASE(a_bare_call_moves_the_next_program) {
    int before = own();
    EXPECT(there(O_CREAT | O_EXCL) >= 0);
    EXPECT(bare_call(SYS_unshare, CLONE_NEWIPC, 0, 0, 0) == 0 && program("is_there") == 9);
    EXPECT(setns(before, CLONE_NEWIPC) == 0 && program("is_there") == 0);
}

CASE(queues_are_shared) {
    EXPECT(there(O_CREAT | O_EXCL) >= 0);
    enter();
    EXPECT(exists("/there") && program("is_there") == 0);
}
