/* The limits of queues in /proc/sys: read, written, and obeyed. Cases on the kernel's queues run in their own IPC namespace. */
#include "check.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/msg.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static const char *const limits[] = {"fs/mqueue/msg_default", "fs/mqueue/msg_max", "fs/mqueue/msgsize_default",
                                     "fs/mqueue/msgsize_max", "fs/mqueue/queues_max", "kernel/msgmax",
                                     "kernel/msgmnb", "kernel/msgmni"};
enum { MSG_DEFAULT, MSG_MAX, MSGSIZE_DEFAULT, MSGSIZE_MAX, QUEUES_MAX, MSGMAX, MSGMNB, MSGMNI, ALL };

static const char *path_of(int limit) {
    static char path[64];
    snprintf(path, sizeof path, "/proc/sys/%s", limits[limit]);
    return path;
}

/* Enters a namespace, so that the limits of the machine do not change. Without permission, the case ends on the kernel's queues. */
static void enter(void) {
    if (unshare(CLONE_NEWIPC) != 0 && !getenv("UMSG_DIR")) exit(0);
}

static long value_of(int limit) {
    char text[32] = {0};
    int file = open(path_of(limit), O_RDONLY);
    EXPECT(file >= 0 && read(file, text, sizeof text - 1) > 0 && close(file) == 0);
    EXPECT(text[strlen(text) - 1] == '\n');
    return atol(text);
}

static long write_to(int limit, const char *text) {
    int file = open(path_of(limit), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT(file >= 0);
    long written = write(file, text, strlen(text));
    int error = errno;
    EXPECT(close(file) == 0);
    errno = error;
    return written;
}

CASE(a_written_limit_is_read_from_then_on) {
    enter();
    for (int limit = 0; limit < ALL; limit++) {
        long before = value_of(limit);
        char text[32];
        EXPECT(write_to(limit, "129\n") == 4 && value_of(limit) == 129);
        EXPECT(write_to(limit, " 0x80") == 5 && value_of(limit) == 128);
        EXPECT(write_to(limit, "0203\t\n") == 6 && value_of(limit) == 131);
        EXPECT(write_to(limit, "130 7") == 4 && value_of(limit) == 130);
        const char *junk[] = {"x", "130x", "\n", " ", "+5", "2147483648", "99999999999999999999"};
        for (unsigned i = 0; i < sizeof junk / sizeof *junk; i++) EXPECT_ERRNO(write_to(limit, junk[i]), EINVAL);
        EXPECT(write_to(limit, "") == 0 && value_of(limit) == 130);
        snprintf(text, sizeof text, "%ld\n", before);
        EXPECT(write_to(limit, text) == (long)strlen(text) && value_of(limit) == before);
    }
    for (int limit = MSG_DEFAULT; limit <= MSGSIZE_MAX; limit++) EXPECT_ERRNO(write_to(limit, "0\n"), EINVAL);
    for (int limit = MSGSIZE_DEFAULT; limit <= MSGSIZE_MAX; limit++) EXPECT_ERRNO(write_to(limit, "127\n"), EINVAL);
    for (int limit = QUEUES_MAX; limit <= MSGMNI; limit++) EXPECT(write_to(limit, "0\n") == 2 && value_of(limit) == 0);
    EXPECT_ERRNO(write_to(MSGMNI, "32769\n"), EINVAL);
}

CASE(a_descriptor_counts_what_is_written_at_its_beginning) {
    enter();
    int file = open(path_of(MSGMAX), O_RDWR | O_CLOEXEC), copy = dup(file);
    EXPECT(file >= 0 && copy >= 0 && fcntl(file, F_GETFD) == FD_CLOEXEC && (fcntl(file, F_GETFL) & O_ACCMODE) == O_RDWR);
    EXPECT(write(copy, "100\n", 4) == 4 && value_of(MSGMAX) == 100);
    EXPECT(write(file, "200\n", 4) == 4 && value_of(MSGMAX) == 100 && lseek(copy, 0, SEEK_CUR) == 8);
    EXPECT(pwrite(file, "300\n", 4, 0) == 4 && value_of(MSGMAX) == 300);
    char text[16] = {0};
    EXPECT(pread(file, text, 15, 0) == 4 && !strcmp(text, "300\n"));
    EXPECT(lseek(file, 0, SEEK_SET) == 0);
    struct iovec parts[] = {{"4", 1}, {"50\n", 3}};
    EXPECT(writev(file, parts, 2) == 4 && value_of(MSGMAX) == 450);
    EXPECT_ERRNO(pwrite(file, "y", 1, 0), EINVAL);
    EXPECT_ERRNO(pwrite(file, nowhere, 5, 0), EFAULT);
    EXPECT(close(file) == 0 && close(copy) == 0);
    file = open(path_of(MSGMAX), O_RDONLY);
    EXPECT_ERRNO(write(file, "1", 1), EBADF);
    file = open(path_of(MSGMAX), O_WRONLY);
    EXPECT_ERRNO(read(file, text, 1), EBADF);
    EXPECT(syscall(SYS_write, file, "460", 3L) == 3 && value_of(MSGMAX) == 460);
}

CASE(queues_obey_written_limits) {
    enter();
    EXPECT(write_to(MSGMAX, "100\n") == 4 && write_to(MSGMNB, "300\n") == 4);
    int id = msgget(IPC_PRIVATE, 0600);
    struct {
        long type;
        char text[200];
    } message = {.type = 1};
    struct msqid_ds state;
    EXPECT(id >= 0 && msgctl(id, IPC_STAT, &state) == 0 && state.msg_qbytes == 300);
    EXPECT(msgsnd(id, &message, 100, IPC_NOWAIT) == 0);
    EXPECT_ERRNO(msgsnd(id, &message, 101, IPC_NOWAIT), EINVAL);
    EXPECT(write_to(MSGMNI, "1\n") == 2);
    EXPECT_ERRNO(msgget(IPC_PRIVATE, 0600), ENOSPC);
    struct msginfo info;
    EXPECT(msgctl(0, IPC_INFO, (struct msqid_ds *)&info) >= 0 && info.msgmax == 100 && info.msgmnb == 300 && info.msgmni == 1);
    EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
    EXPECT(write_to(MSG_DEFAULT, "3\n") == 2 && write_to(MSGSIZE_DEFAULT, "256\n") == 4);
    mqd_t queue = mq_open(name(), O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
    struct mq_attr seen;
    EXPECT(queue >= 0 && mq_getattr(queue, &seen) == 0 && seen.mq_maxmsg == 3 && seen.mq_msgsize == 256);
    EXPECT(mq_unlink(name()) == 0);
    /* If a default is above the maximum, a new queue gets the maximum. */
    EXPECT(write_to(MSG_MAX, "2\n") == 2 && write_to(MSGSIZE_MAX, "128\n") == 4);
    queue = mq_open(name(), O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
    EXPECT(queue >= 0 && mq_getattr(queue, &seen) == 0 && seen.mq_maxmsg == 2 && seen.mq_msgsize == 128);
    EXPECT(value_of(MSG_DEFAULT) == 3 && value_of(MSGSIZE_DEFAULT) == 256);
    EXPECT(mq_unlink(name()) == 0 && write_to(MSG_DEFAULT, "5\n") == 2 && value_of(MSG_DEFAULT) == 5);
    EXPECT(write_to(MSG_MAX, "4\n") == 2);
    queue = mq_open(name(), O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
    EXPECT(queue >= 0 && mq_getattr(queue, &seen) == 0 && seen.mq_maxmsg == 4);
}

static const char next_id[] = "/proc/sys/kernel/msg_next_id";

static long next_id_is(void) {
    char text[32] = {0};
    int file = open(next_id, O_RDONLY);
    EXPECT(file >= 0 && read(file, text, sizeof text - 1) > 0 && close(file) == 0);
    return atol(text);
}

static long want_id(const char *text) {
    int file = open(next_id, O_WRONLY);
    EXPECT(file >= 0);
    long written = write(file, text, strlen(text));
    int error = errno;
    EXPECT(close(file) == 0);
    errno = error;
    return written;
}

static int new_queue(void) {
    int id = msgget(IPC_PRIVATE, 0600);
    EXPECT(id >= 0);
    return id;
}

CASE(the_next_queue_has_the_identifier_that_was_written) {
    enter();
    EXPECT(next_id_is() == -1);
    int first = new_queue();
    EXPECT(want_id("98306\n") == 6 && next_id_is() == 98306);
    /* This call creates no queue, so the wanted identifier stays. */
    EXPECT_ERRNO(msgget(0x7531, 0600), ENOENT);
    EXPECT(next_id_is() == 98306);
    int wanted = msgget(0x7531, IPC_CREAT | IPC_EXCL | 0600);
    EXPECT(wanted == 98306 && next_id_is() == -1 && msgget(0x7531, 0) == wanted);
    struct msqid_ds state;
    EXPECT(msgctl(wanted, IPC_STAT, &state) == 0 && state.msg_perm.__seq == 3);
    EXPECT(new_queue() == first + 1);
    /* The index is in use, so the queue gets the next free index. */
    EXPECT(want_id("98306") == 5 && new_queue() == 98307 && next_id_is() == -1);
    EXPECT(want_id("0") == 1 && new_queue() == 4 && new_queue() == first + 5);
    EXPECT_ERRNO(want_id("-1"), EINVAL);
    EXPECT_ERRNO(want_id("2147483648"), EINVAL);
    EXPECT(want_id("7") == 1 && want_id("4") == 1 && next_id_is() == 4);
    EXPECT(msgctl(wanted, IPC_RMID, NULL) == 0 && want_id("98306") == 5 && msgget(0x7531, IPC_CREAT | 0600) == wanted);
    for (int round = 0; round < 3; round++) EXPECT(msgctl(new_queue(), IPC_RMID, NULL) == 0);
    for (int round = 0; round < 3; round++) {
        EXPECT(want_id("65546") == 5 && next_id_is() == 65546);
        int id = new_queue();
        EXPECT(id == 65546 && next_id_is() == -1 && msgctl(id, IPC_RMID, NULL) == 0);
    }
}

CASE(another_user_takes_the_next_identifier_and_does_not_choose_it) {
    if (geteuid() != 0) return;
    if (getenv("UMSG_DIR")) EXPECT(chmod(getenv("UMSG_DIR"), 01777) == 0);
    enter();
    EXPECT(want_id("32773") == 5);
    new_queue();
    for (int round = 0; round < 2; round++) {
        EXPECT(want_id("32775") == 5);
        pid_t child = fork();
        if (child == 0) {
            EXPECT(setegid(65534) == 0 && seteuid(65534) == 0);
            EXPECT_ERRNO(open(next_id, O_WRONLY), EACCES);
            EXPECT(next_id_is() == 32775);
            int id = msgget(IPC_PRIVATE, 0600);
            EXPECT(id == 32775 && next_id_is() == -1 && msgget(IPC_PRIVATE, 0600) != 32776);
            EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
            exit(0);
        }
        expect_success(child);
        EXPECT(next_id_is() == -1 && new_queue() != 32776);
    }
}

static int put(const char *mode, const char *text) {
    FILE *stream = fopen(path_of(MSGMAX), mode);
    EXPECT(stream);
    EXPECT(fputs(text, stream) >= 0);
    return fclose(stream);
}

CASE(streams_write_limits) {
    enter();
    EXPECT(put("w", "111\n") == 0 && value_of(MSGMAX) == 111);
    EXPECT(put("ae", "112") == 0 && value_of(MSGMAX) == 112);
    EXPECT_ERRNO(put("w", "junk\n"), EINVAL);
    FILE *stream = fopen(path_of(MSGMAX), "w");
    EXPECT(stream && fprintf(stream, "%d\n", 113) == 4 && fflush(stream) == 0 && value_of(MSGMAX) == 113);
    /* The second write of the stream begins after the start of the file. The kernel ignores a write at this offset. */
    EXPECT(fprintf(stream, "114\n") == 4 && fclose(stream) == 0 && value_of(MSGMAX) == 113);
    stream = fopen(path_of(MSGMAX), "w");
    EXPECT(stream && fputs("junk", stream) >= 0);
    EXPECT_ERRNO(fflush(stream), EINVAL);
    EXPECT(ferror(stream));
    fclose(stream);
    /* libc writes the buffer before it moves the position of a stream. */
    int value = 0;
    stream = fopen(path_of(MSGMAX), "r+");
    EXPECT(stream && fprintf(stream, "%d", 115) == 3);
    rewind(stream);
    EXPECT(fscanf(stream, "%d", &value) == 1 && value == 115 && value_of(MSGMAX) == 115);
    rewind(stream);
    EXPECT(fprintf(stream, "%d", 116) == 3 && fseek(stream, 0, SEEK_SET) == 0 && value_of(MSGMAX) == 116);
    fclose(stream);
}

CASE(the_end_of_the_process_writes_what_streams_hold) {
    enter();
    int status;
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        FILE *stream = fopen(path_of(MSGMAX), "w"), *other = fopen(path_of(MSGMNB), "r+"), *closed = fopen(path_of(MSGMNI), "w");
        EXPECT(stream && other && closed && fputs("117", stream) >= 0 && fprintf(other, "%d", 118) == 3 && fclose(closed) == 0);
        exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(value_of(MSGMAX) == 117 && value_of(MSGMNB) == 118);
}

static int shell(const char *line) {
    int status = system(line);
    EXPECT(WIFEXITED(status));
    return WEXITSTATUS(status);
}

CASE(shells_and_other_programs_write_limits) {
    enter();
    EXPECT(shell("echo 201 > /proc/sys/kernel/msgmax") == 0 && value_of(MSGMAX) == 201);
    EXPECT(shell("/bin/echo 202 > /proc/sys/kernel/msgmax") == 0 && value_of(MSGMAX) == 202);
    EXPECT(shell("echo 203 | tee /proc/sys/kernel/msgmax > /dev/null") == 0 && value_of(MSGMAX) == 203);
    EXPECT(shell("test $(cat /proc/sys/kernel/msgmax) = 203") == 0);
    EXPECT(shell("echo junk 2>/dev/null > /proc/sys/kernel/msgmax") != 0 && value_of(MSGMAX) == 203);
    EXPECT(shell("/bin/echo junk 2>/dev/null > /proc/sys/kernel/msgmax") != 0 && value_of(MSGMAX) == 203);
    if (access("/bin/bash", X_OK) == 0) {
        EXPECT(shell("bash -c 'echo 204 > /proc/sys/kernel/msgmax'") == 0 && value_of(MSGMAX) == 204);
        EXPECT(shell("bash -c 'echo junk 2>/dev/null > /proc/sys/kernel/msgmax'") != 0 && value_of(MSGMAX) == 204);
    }
    if (access("/sbin/sysctl", X_OK) == 0) {
        EXPECT(shell("/sbin/sysctl -q -w kernel.msgmax=205 fs.mqueue.msg_default=7") == 0);
        EXPECT(value_of(MSGMAX) == 205 && value_of(MSG_DEFAULT) == 7);
        EXPECT(shell("test $(/sbin/sysctl -n kernel.msgmax) = 205") == 0);
    }
}

CASE(another_user_reads_limits_and_does_not_write_them) {
    if (geteuid() != 0) return;
    if (getenv("UMSG_DIR")) EXPECT(chmod(getenv("UMSG_DIR"), 01777) == 0);
    enter();
    int file = open(path_of(MSGMAX), O_WRONLY);
    EXPECT(file >= 0 && write_to(MSGMAX, "300\n") == 4);
    EXPECT(setegid(65534) == 0 && seteuid(65534) == 0);
    EXPECT(value_of(MSGMAX) == 300);
    for (int limit = 0; limit < ALL; limit++) {
        EXPECT_ERRNO(open(path_of(limit), O_WRONLY | O_CREAT | O_TRUNC, 0600), EACCES);
        EXPECT_ERRNO(openat(AT_FDCWD, path_of(limit), O_RDWR), EACCES);
        const char *modes[] = {"w", "a", "r+"};
        for (int mode = 0; mode < 3; mode++) {
            errno = 0;
            EXPECT(!fopen(path_of(limit), modes[mode]) && errno == EACCES);
        }
    }
}

/* Returns the bytes that a queue is charged for: getrlimit(2). */
static long charge(long messages, long size) { return messages * (48 + 48 + size); }

static void allow(long bytes) {
    struct rlimit limit = {bytes, bytes};
    EXPECT(prlimit(0, RLIMIT_MSGQUEUE, &limit, NULL) == 0);
}

static mqd_t sized(const char *queue, long messages, long size) {
    struct mq_attr attributes = {.mq_maxmsg = messages, .mq_msgsize = size};
    return mq_open(queue, O_RDWR | O_CREAT, 0600, &attributes);
}

/* On umsg, this limit applies because the test has enabled it for the namespace. */
CASE(a_user_has_the_bytes_of_rlimit_msgqueue) {
    if (geteuid() != 0) return;
    enter();
    /* No other run of this case has this user: the kernel counts a user's queues in all namespaces, and frees an ended namespace some time later. */
    uid_t user = 20000 + getpid() % 40000;
    EXPECT(setresgid(user, user, user) == 0);
    allow(charge(10, 100) + charge(7, 50) + charge(1, 8) - 1);
    EXPECT(setresuid(user, user, user) == 0);
    mqd_t first = sized("/first", 10, 100), second = sized("/second", 7, 50);
    EXPECT(first >= 0 && second >= 0);
    EXPECT_ERRNO(sized("/third", 1, 8), EMFILE);
    /* A queue is charged only once: at its creation. */
    EXPECT(mq_close(sized("/first", 10, 8192)) == 0);
    EXPECT(mq_close(second) == 0 && mq_unlink("/second") == 0 && mq_close(sized("/third", 1, 8)) == 0);
    EXPECT_ERRNO(sized("/second", 7, 50), EMFILE);
    EXPECT(mq_close(sized("/second", 7, 49)) == 0);
    for (int round = 0; round < 3; round++) EXPECT(mq_unlink("/second") == 0 && mq_close(sized("/second", 7, 49)) == 0);
    allow(0);
    EXPECT(mq_unlink("/second") == 0);
    EXPECT_ERRNO(sized("/second", 1, 1), EMFILE);
    EXPECT(mq_close(sized("/third", 1, 8)) == 0);
}
