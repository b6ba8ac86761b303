/* Queues in event loops: poll(2), and epoll(7) by level and by edge. */
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "/pollfd"

static short polled(int descriptor)
{
    struct pollfd entry;
    entry.fd = descriptor;
    entry.events = POLLIN | POLLOUT;
    entry.revents = 0;
    CHECK(poll(&entry, 1, 0) >= 0);
    return entry.revents;
}

static int watch(int descriptor, unsigned events)
{
    struct epoll_event event;
    int set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0);
    memset(&event, 0, sizeof event);
    event.events = events;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) == 0);
    return set;
}

/* Returns the events that an epoll set reports within the time-out, or 0. */
static unsigned told(int set, int patience)
{
    struct epoll_event event;
    int count = epoll_wait(set, &event, 1, patience);
    CHECK(count >= 0);
    return count == 0 ? 0 : event.events;
}

static void a_queue_is_readable_and_writable_as_its_messages_say(void)
{
    umsg_mqd_t queue = make(NAME, 2, 8, O_NONBLOCK);
    int descriptor = umsg_mq_pollfd(queue, UMSG_EDGES_CHANGES);
    char buffer[8];
    CHECK(descriptor >= 0);
    CHECK(umsg_mq_pollfd(queue, UMSG_EDGES_CHANGES) == descriptor);
    CHECK(polled(descriptor) == POLLOUT);
    CHECK(umsg_mq_send(queue, "a", 1, 0) == 0);
    CHECK(polled(descriptor) == (POLLIN | POLLOUT));
    CHECK(umsg_mq_send(queue, "b", 1, 0) == 0);
    CHECK(polled(descriptor) == POLLIN);
    FAILS(umsg_mq_send(queue, "c", 1, 0), EAGAIN);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 1);
    CHECK(polled(descriptor) == (POLLIN | POLLOUT));
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 1);
    CHECK(polled(descriptor) == POLLOUT);
    done(queue, NAME);
}

static void select_knows_it_too(void)
{
    umsg_mqd_t queue = make(NAME, 2, 8, O_NONBLOCK);
    int descriptor = umsg_mq_pollfd(queue, UMSG_EDGES_CHANGES);
    struct timeval now = {0, 0};
    fd_set readable, writable;
    CHECK(descriptor >= 0 && descriptor < FD_SETSIZE);
    CHECK(umsg_mq_send(queue, "a", 1, 0) == 0);
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    FD_SET(descriptor, &readable);
    FD_SET(descriptor, &writable);
    CHECK(select(descriptor + 1, &readable, &writable, NULL, &now) == 2);
    done(queue, NAME);
}

static void epoll_tells_levels_and_edges(void)
{
    umsg_mqd_t queue = make(NAME, 2, 8, O_NONBLOCK);
    int descriptor = umsg_mq_pollfd(queue, UMSG_EDGES_ALL);
    int levels = watch(descriptor, EPOLLIN);
    int edges = watch(descriptor, EPOLLIN | EPOLLOUT | EPOLLET);
    char buffer[8];
    CHECK(told(levels, 0) == 0 && told(edges, 0) == EPOLLOUT && told(edges, 0) == 0);
    CHECK(umsg_mq_send(queue, "a", 1, 0) == 0);
    CHECK(told(levels, 0) == EPOLLIN && told(levels, 0) == EPOLLIN);
    CHECK(told(edges, 0) == (EPOLLIN | EPOLLOUT) && told(edges, 0) == 0);
    CHECK(umsg_mq_send(queue, "b", 1, 0) == 0);
    CHECK(told(edges, 0) == EPOLLIN && told(edges, 0) == 0);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 1);
    CHECK(told(edges, 0) == (EPOLLIN | EPOLLOUT) && told(edges, 0) == 0);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 1);
    CHECK(told(levels, 0) == 0 && told(edges, 0) == EPOLLOUT && told(edges, 0) == 0);
    CHECK(close(levels) == 0 && close(edges) == 0);
    done(queue, NAME);
}

static void a_child_wakes_its_parent(void)
{
    umsg_mqd_t queue = make(NAME, 2, 8, O_NONBLOCK);
    int set = watch(umsg_mq_pollfd(queue, UMSG_EDGES_CHANGES), EPOLLIN);
    char buffer[8];
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(20000);
        _exit(umsg_mq_send(queue, "a", 1, 0) == 0 ? 0 : 1);
    }
    CHECK(told(set, 10000) == EPOLLIN);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 1);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(close(set) == 0);
    done(queue, NAME);
}

static void a_system_v_queue_can_be_polled_until_it_is_removed(void)
{
    struct {
        long type;
        char text[8];
    } message = {1, "a"};
    int queue = umsg_msgget(IPC_PRIVATE, 0600);
    int descriptor = umsg_msg_pollfd(queue, UMSG_EDGES_CHANGES);
    int edges;
    CHECK(queue >= 0 && descriptor >= 0);
    edges = watch(descriptor, EPOLLIN | EPOLLOUT | EPOLLET);
    CHECK(polled(descriptor) == POLLOUT && told(edges, 0) == EPOLLOUT);
    CHECK(umsg_msgsnd(queue, &message, 1, 0) == 0);
    CHECK(polled(descriptor) == (POLLIN | POLLOUT));
    CHECK(told(edges, 0) == (EPOLLIN | EPOLLOUT) && told(edges, 0) == 0);
    CHECK(umsg_msgrcv(queue, &message, sizeof message.text, 1, 0) == 1);
    CHECK(polled(descriptor) == POLLOUT);
    CHECK(close(edges) == 0);
    CHECK(umsg_msgctl(queue, IPC_RMID, NULL) == 0);
    FAILS(umsg_msg_pollfd(queue, UMSG_EDGES_CHANGES), EINVAL);
}

static void what_can_not_be_polled_is_refused(void)
{
    umsg_mqd_t queue = make(NAME, 2, 8, 0);
    FAILS(umsg_mq_pollfd(queue, 3), EINVAL);
    FAILS(umsg_mq_pollfd(NONE, UMSG_EDGES_CHANGES), EBADF);
    FAILS(umsg_msg_pollfd(-1, UMSG_EDGES_CHANGES), EINVAL);
    done(queue, NAME);
}

static const struct test_case cases[] = {
    CASE(a_queue_is_readable_and_writable_as_its_messages_say),
    CASE(select_knows_it_too),
    CASE(epoll_tells_levels_and_edges),
    CASE(a_child_wakes_its_parent),
    CASE(a_system_v_queue_can_be_polled_until_it_is_removed),
    CASE(what_can_not_be_polled_is_refused),
};

MAIN(cases)
