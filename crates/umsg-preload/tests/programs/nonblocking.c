/* O_NONBLOCK of a queue's descriptor, changed in every way while calls use the queue. */
#include "check.h"
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

extern char **environ;

/* Expects that receives fail at once (`expected` is 1), or wait until their time-out. */
static void expect_nonblocking(mqd_t queue, int expected) {
    char buffer[16];
    for (int call = 0; call < 2; call++) {
        struct timespec soon = in_ms(10);
        EXPECT_ERRNO(mq_timedreceive(queue, buffer, 16, NULL, &soon), expected ? EAGAIN : ETIMEDOUT);
    }
    EXPECT(fcntl(queue, F_GETFL) == (O_RDWR | (expected ? O_NONBLOCK : 0)));
}

CASE(a_change_by_any_call_counts_at_once) {
    mqd_t queue = create(O_RDWR, 4);
    expect_nonblocking(queue, 0);
    for (int flag = 1; flag >= 0; flag--) {
        int flags = flag ? O_NONBLOCK : 0;
        EXPECT(fcntl(queue, F_SETFL, flags) == 0);
        expect_nonblocking(queue, flag);
        EXPECT(fcntl(queue, F_SETFL, O_NONBLOCK - flags) == 0);
        EXPECT(ioctl(queue, FIONBIO, &flag) == 0);
        expect_nonblocking(queue, flag);
        EXPECT(fcntl(queue, F_SETFL, O_NONBLOCK - flags) == 0);
        struct mq_attr attributes = {.mq_flags = flags};
        EXPECT(mq_setattr(queue, &attributes, NULL) == 0);
        expect_nonblocking(queue, flag);
    }
    EXPECT_ERRNO(ioctl(queue, FIONBIO, nowhere), EFAULT);
    expect_nonblocking(queue, 0);
}

CASE(descriptors_of_their_own_descriptions_do_not_share_the_flag) {
    mqd_t queue = create(O_RDWR, 4);
    mqd_t other = mq_open(name(), O_RDWR | O_NONBLOCK);
    mqd_t same = dup(other);
    expect_nonblocking(queue, 0);
    expect_nonblocking(same, 1);
    EXPECT(fcntl(same, F_SETFL, 0) == 0);
    expect_nonblocking(other, 0);
    /* The next calls of mq_open reuse the mappings of the closed queues. */
    EXPECT(mq_close(same) == 0 && mq_close(other) == 0 && mq_close(queue) == 0);
    other = mq_open(name(), O_RDWR | O_NONBLOCK);
    expect_nonblocking(other, 1);
    expect_nonblocking(mq_open(name(), O_RDWR), 0);
}

CASE(a_child_changes_it_for_its_parent) {
    mqd_t queue = create(O_RDWR, 4);
    expect_nonblocking(queue, 0);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(fcntl(queue, F_SETFL, O_NONBLOCK) == 0);
        _exit(0);
    }
    expect_success(child);
    expect_nonblocking(queue, 1);
    /* Sets the flag back. Since the fork, the flag is shared with another process, so each call asks the kernel for it. */
    EXPECT(fcntl(queue, F_SETFL, 0) == 0);
    expect_nonblocking(queue, 0);
    child = fork();
    if (child == 0) {
        expect_nonblocking(queue, 0);
        EXPECT(fcntl(queue, F_SETFL, O_NONBLOCK) == 0);
        _exit(0);
    }
    expect_success(child);
    expect_nonblocking(queue, 1);
}

CASE(after_a_fork_a_change_of_ones_own_is_not_the_last) {
    mqd_t queue = create(O_RDWR, 4);
    int to_parent[2], to_child[2];
    EXPECT(pipe(to_parent) == 0 && pipe(to_child) == 0);
    char turn = 0;
    pid_t child = fork();
    if (child == 0) {
        EXPECT(fcntl(queue, F_SETFL, O_NONBLOCK) == 0);
        EXPECT(write(to_parent[1], &turn, 1) == 1 && read(to_child[0], &turn, 1) == 1);
        expect_nonblocking(queue, 0);
        _exit(0);
    }
    EXPECT(read(to_parent[0], &turn, 1) == 1);
    EXPECT(fcntl(queue, F_SETFL, 0) == 0);
    EXPECT(write(to_child[1], &turn, 1) == 1);
    expect_success(child);
}

CASE(a_parent_changes_it_for_its_child) {
    mqd_t queue = create(O_RDWR, 4);
    expect_nonblocking(queue, 0);
    int turns[2];
    EXPECT(pipe(turns) == 0);
    pid_t child = fork();
    if (child == 0) {
        char turn;
        EXPECT(read(turns[0], &turn, 1) == 1);
        expect_nonblocking(queue, 1);
        _exit(0);
    }
    EXPECT(fcntl(queue, F_SETFL, O_NONBLOCK) == 0);
    EXPECT(write(turns[1], "x", 1) == 1);
    expect_success(child);
}

CASE(a_receiver_of_the_descriptor_changes_it) {
    int ends[2];
    EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    /* The child exists before the queue does: only the socket passes the descriptor. */
    pid_t child = fork();
    /* A program need not align the buffer. */
    char byte = 0, buffer[1 + CMSG_SPACE(sizeof(int))] = {0};
    char *control = buffer + (getenv("SEVERAL") != NULL);
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int))};
    if (child == 0) {
        EXPECT(recvmsg(ends[1], &message, 0) == 1);
        int got;
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
        EXPECT(fcntl(got, F_SETFL, O_NONBLOCK) == 0);
        _exit(0);
    }
    mqd_t queue = create(O_RDWR, 4);
    expect_nonblocking(queue, 0);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &queue, sizeof(int));
    struct mmsghdr messages = {.msg_hdr = message};
    if (getenv("SEVERAL"))
        EXPECT(sendmmsg(ends[0], &messages, 1, 0) == 1);
    else
        EXPECT(sendmsg(ends[0], &message, 0) == 1);
    expect_success(child);
    expect_nonblocking(queue, 1);
}

CASE(a_receiver_of_several_messages_changes_it) {
    EXPECT(setenv("SEVERAL", "1", 1) == 0);
    a_receiver_of_the_descriptor_changes_it();
}

/* The programs that the next cases start run this case. */
CASE(change_inherited) {
    EXPECT(fcntl(atoi(getenv("QUEUE")), F_SETFL, O_NONBLOCK) == 0);
}

static void expect_change_by_a_new_program(mqd_t queue, int inherited) {
    char number[16];
    snprintf(number, sizeof number, "%d", inherited);
    EXPECT(setenv("QUEUE", number, 1) == 0);
    char *arguments[] = {"program", "change_inherited", NULL};
    pid_t child;
    EXPECT(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
    expect_success(child);
    expect_nonblocking(queue, 1);
}

CASE(a_program_that_is_started_with_a_duplicate_changes_it) {
    mqd_t queue = create(O_RDWR, 4);
    expect_nonblocking(queue, 0);
    expect_change_by_a_new_program(queue, dup(queue));
    EXPECT(fcntl(queue, F_SETFL, 0) == 0);
    expect_change_by_a_new_program(queue, dup2(queue, 100));
    EXPECT(fcntl(queue, F_SETFL, 0) == 0);
    expect_change_by_a_new_program(queue, fcntl(queue, F_DUPFD, 200));
}

CASE(a_program_that_is_started_with_the_descriptor_changes_it) {
    mqd_t queue = create(O_RDWR, 4);
    expect_nonblocking(queue, 0);
    EXPECT(fcntl(queue, F_SETFD, 0) == 0);
    expect_change_by_a_new_program(queue, queue);
    mqd_t other = mq_open(name(), O_RDWR);
    expect_nonblocking(other, 0);
    EXPECT(ioctl(other, FIONCLEX) == 0);
    expect_change_by_a_new_program(other, other);
}

CASE(a_program_that_a_vfork_child_starts_changes_it) {
    mqd_t queue = create(O_RDWR, 4);
    expect_nonblocking(queue, 0);
    EXPECT(setenv("QUEUE", "100", 1) == 0);
    char *arguments[] = {"program", "change_inherited", NULL};
    pid_t child = vfork();
    if (child == 0) {
        dup2(queue, 100);
        execve("/proc/self/exe", arguments, environ);
        _exit(1);
    }
    expect_success(child);
    expect_nonblocking(queue, 1);
}
