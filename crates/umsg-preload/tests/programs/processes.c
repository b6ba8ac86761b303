/* Descriptors that a process inherits, or gets from another process. */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static void expect_message(mqd_t queue, const char *expected) {
    char buffer[16];
    struct timespec later = in_ms(20000);
    ssize_t length = mq_timedreceive(queue, buffer, 16, NULL, &later);
    EXPECT(length == (ssize_t)strlen(expected) && !memcmp(buffer, expected, length));
}

CASE(a_forked_child_shares_the_descriptor) {
    mqd_t queue = create(O_RDWR, 4);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(mq_send(queue, "child", 5, 0) == 0);
        EXPECT(fcntl(queue, F_SETFL, O_NONBLOCK) == 0);
        EXPECT(mq_close(queue) == 0);
        EXPECT_ERRNO(mq_send(queue, "x", 1, 0), EBADF);
        _exit(0);
    }
    expect_success(child);
    EXPECT(fcntl(queue, F_GETFL) == (O_RDWR | O_NONBLOCK));
    expect_message(queue, "child");
    EXPECT(mq_send(queue, "parent", 6, 0) == 0);
}

CASE(a_grandchild_of_a_bare_fork_shares_the_descriptor) {
    mqd_t queue = create(O_RDWR, 4);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        EXPECT(mq_send(queue, "one", 3, 0) == 0);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            EXPECT(mq_send(queue, "two", 3, 0) == 0);
            EXPECT(mq_close(queue) == 0);
            _exit(0);
        }
        expect_success(grandchild);
        EXPECT(mq_send(queue, "three", 5, 0) == 0);
        _exit(0);
    }
    expect_success(child);
    EXPECT(count(queue) == 3);
}

/* The calls of a program that inherits an open queue. Other cases start this case as a program. */
CASE(use_inherited) {
    mqd_t queue = atoi(getenv("QUEUE"));
    char text[100];
    EXPECT(read(queue, text, sizeof text) == 60);
    struct mq_attr attributes;
    EXPECT(mq_getattr(queue, &attributes) == 0 && attributes.mq_maxmsg == 4 && attributes.mq_curmsgs == 1);
    struct stat status;
    EXPECT(fstat(queue, &status) == 0 && status.st_size == 80);
    struct pollfd one = {queue, POLLIN | POLLOUT, 0};
    EXPECT(poll(&one, 1, -1) == 1 && one.revents == (POLLIN | POLLOUT));
    expect_message(queue, "before");
    EXPECT_ERRNO(mq_send(queue, "x", 1, 0), EBADF);
    one.events = POLLIN;
    EXPECT(poll(&one, 1, 10) == 0);
    EXPECT(mq_close(queue) == 0);
    EXPECT_ERRNO(mq_close(queue), EBADF);
}

/* The first call of the program uses the inherited queue. */
CASE(receive_and_poll_inherited) {
    mqd_t queue = atoi(getenv("QUEUE"));
    expect_message(queue, "before");
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    EXPECT(epoll_ctl(set, EPOLL_CTL_ADD, queue, &event) == 0);
    EXPECT(mq_send(queue, "after", 5, 0) == 0 && epoll_wait(set, &event, 1, 0) == 1);
}

/* The first call on the inherited queue is a select in a forked child. */
CASE(select_inherited_in_a_child) {
    int queue = atoi(getenv("QUEUE"));
    pid_t child = fork();
    if (child == 0) {
        fd_set readable, writable;
        FD_ZERO(&readable);
        FD_SET(queue, &readable);
        writable = readable;
        EXPECT(select(queue + 1, &readable, &writable, NULL, &(struct timeval){0}) == 1);
        EXPECT(!FD_ISSET(queue, &readable) && FD_ISSET(queue, &writable));
        _exit(0);
    }
    expect_success(child);
}

/* Before the inherited queue, the program uses a queue that it has created. */
CASE(use_inherited_after_another) {
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 1};
    mqd_t other = mq_open(name(), O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    EXPECT(other >= 0 && mq_send(other, "x", 1, 0) == 0 && mq_close(other) == 0);
    int queue = atoi(getenv("QUEUE"));
    struct pollfd one = {queue, POLLIN, 0};
    EXPECT(poll(&one, 1, 0) == 1 && one.revents == POLLIN);
    expect_message(queue, "before");
    EXPECT(poll(&one, 1, 0) == 0);
}

/* The program sets FD_CLOEXEC on the inherited descriptor before any other call. */
CASE(mark_inherited) {
    int queue = atoi(getenv("QUEUE")), is_range = !strcmp(getenv("MARK"), "range");
    EXPECT((is_range ? close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) : ioctl(queue, FIOCLEX)) == 0);
    EXPECT(fcntl(queue, F_GETFD) == FD_CLOEXEC);
    struct pollfd one = {queue, POLLIN, 0};
    EXPECT(poll(&one, 1, 0) == 0);
    struct stat status;
    EXPECT(fstat(queue, &status) == 0 && status.st_size == 80);
}

/* The close of an inherited descriptor ends the registration with its queue, even if no earlier call has used the descriptor. */
CASE(close_inherited_unseen) {
    unsigned number = atoi(getenv("QUEUE"));
    mqd_t queue = mq_open(getenv("NAME"), O_RDWR);
    struct sigevent silent = {.sigev_notify = SIGEV_NONE};
    EXPECT(queue >= 0 && mq_notify(queue, &silent) == 0);
    EXPECT_ERRNO(mq_notify(queue, &silent), EBUSY);
    EXPECT(close_range(number, number, 0) == 0);
    EXPECT(mq_notify(queue, &silent) == 0);
}

/* fstat, the only call of this program, changes nothing in the open file description. */
CASE(query_inherited) {
    struct stat status;
    EXPECT(fstat(atoi(getenv("QUEUE")), &status) == 0 && status.st_size == 80);
}

CASE(expect_nothing_inherited) {
    EXPECT_ERRNO(mq_getattr(atoi(getenv("QUEUE")), &(struct mq_attr){0}), EBADF);
    EXPECT_ERRNO(close(atoi(getenv("QUEUE"))), EBADF);
}

static pid_t start(const char *program, mqd_t queue) {
    char number[16];
    snprintf(number, sizeof number, "%d", queue);
    setenv("QUEUE", number, 1);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "program", program, NULL);
        _exit(1);
    }
    return child;
}

CASE(exec_drops_the_descriptor) {
    expect_success(start("expect_nothing_inherited", create(O_RDWR, 4)));
}

CASE(without_close_on_exec_the_descriptor_survives_exec) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(mq_send(queue, "before", 6, 0) == 0);
    mqd_t reader = mq_open(name(), O_RDONLY);
    EXPECT(fcntl(reader, F_SETFD, 0) == 0);
    expect_success(start("use_inherited", reader));
}

CASE(a_duplicate_survives_exec) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(mq_send(queue, "before", 6, 0) == 0);
    expect_success(start("use_inherited", dup(mq_open(name(), O_RDONLY))));
}

CASE(a_duplicate_of_a_high_number_survives_exec) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(mq_send(queue, "before", 6, 0) == 0);
    mqd_t reader = mq_open(name(), O_RDONLY);
    /* Puts other descriptors and a gap between the low and the high number. */
    for (int number = 20; number < 40; number++) EXPECT(dup2(0, number) == number);
    int high = fcntl(reader, F_DUPFD, 700);
    EXPECT(high >= 700);
    expect_success(start("use_inherited", high));
}

CASE(a_queue_that_survives_exec_is_polled_after_a_receive) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(mq_send(queue, "before", 6, 0) == 0 && fcntl(queue, F_SETFD, 0) == 0);
    expect_success(start("receive_and_poll_inherited", queue));
}

CASE(a_queue_that_survives_exec_is_selected_by_a_child) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(fcntl(queue, F_SETFD, 0) == 0);
    expect_success(start("select_inherited_in_a_child", queue));
}

CASE(a_queue_that_survives_exec_is_known_beside_another) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(mq_send(queue, "before", 6, 0) == 0 && fcntl(queue, F_SETFD, 0) == 0);
    expect_success(start("use_inherited_after_another", queue));
}

CASE(a_queue_that_survives_exec_is_known_after_it_was_marked) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(fcntl(queue, F_SETFD, 0) == 0);
    for (int i = 0; i < 2; i++) {
        EXPECT(setenv("MARK", i ? "range" : "ioctl", 1) == 0);
        expect_success(start("mark_inherited", queue));
    }
}

CASE(the_close_of_an_inherited_descriptor_ends_a_registration) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(fcntl(queue, F_SETFD, 0) == 0 && setenv("NAME", name(), 1) == 0);
    expect_success(start("close_inherited_unseen", queue));
}

CASE(several_descriptors_survive_exec) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(mq_send(queue, "before", 6, 0) == 0);
    mqd_t reader = mq_open(name(), O_RDONLY);
    int low = dup(reader), high = fcntl(reader, F_DUPFD, 300);
    EXPECT(low >= 0 && low < 16 && high >= 300);
    expect_success(start("query_inherited", high));
    expect_success(start("use_inherited", low));
}

static void send_descriptor(int socket, int descriptor) {
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    EXPECT(sendmsg(socket, &message, 0) == 1);
}

static int receive_descriptor(int socket) {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    EXPECT(recvmsg(socket, &message, 0) == 1);
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

CASE(a_descriptor_sent_over_a_socket_shares_the_open_file_description) {
    int sockets[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t child = fork();
    if (child == 0) {
        mqd_t queue = receive_descriptor(sockets[1]);
        char text[100];
        EXPECT(read(queue, text, sizeof text) == 60);
        expect_message(queue, "passed");
        EXPECT_ERRNO(mq_send(queue, "x", 1, 0), EBADF);
        EXPECT(fcntl(queue, F_SETFL, O_NONBLOCK) == 0);
        EXPECT_ERRNO(mq_receive(queue, text, 100, NULL), EAGAIN);
        _exit(0);
    }
    EXPECT(mq_send(create(O_RDWR, 4), "passed", 6, 0) == 0);
    mqd_t reader = mq_open(name(), O_RDONLY);
    send_descriptor(sockets[0], reader);
    expect_success(child);
    EXPECT(fcntl(reader, F_GETFL) == O_NONBLOCK);
}

/* Like Python's subprocess, the child of vfork closes descriptors while it runs on its parent's memory. */
CASE(a_vfork_child_closes_only_its_own_descriptors) {
    mqd_t queue = create(O_RDWR, 4);
    mqd_t other = mq_open(name(), O_RDWR);
    pid_t child = vfork();
    if (child == 0) {
        if (close(queue) != 0 || dup2(0, other) != other) _exit(1);
        close_range(3, ~0U, 0);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    expect_success(child);
    EXPECT(mq_send(queue, "still", 5, 0) == 0);
    expect_message(other, "still");
    struct stat status;
    EXPECT(fstat(queue, &status) == 0 && status.st_size == 80);
    EXPECT(mq_close(queue) == 0 && mq_close(other) == 0);
    EXPECT_ERRNO(mq_send(queue, "x", 1, 0), EBADF);
}

CASE(a_vfork_child_of_a_forked_child_closes_only_its_own_descriptors) {
    mqd_t queue = create(O_RDWR, 4);
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = vfork();
        if (grandchild == 0) {
            if (close(queue) != 0) _exit(1);
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        expect_success(grandchild);
        struct stat status;
        EXPECT(fstat(queue, &status) == 0 && status.st_size == 80);
        EXPECT(mq_send(queue, "x", 1, 0) == 0);
        EXPECT(mq_close(queue) == 0);
        EXPECT_ERRNO(mq_send(queue, "x", 1, 0), EBADF);
        _exit(0);
    }
    expect_success(child);
    EXPECT(count(queue) == 1);
}
