/* Queues' descriptors in epoll: levels, edges, and the ends of registrations. */
#include "check.h"
#include "cancelled.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

static mqd_t queue;
static int set;

static void start(long depth) {
    queue = create(O_RDWR | O_NONBLOCK, depth);
    EXPECT((set = epoll_create1(EPOLL_CLOEXEC)) >= 0);
}

static void send_one(void) { EXPECT(mq_send(queue, "x", 1, 0) == 0); }

static void receive_one(void) {
    char buffer[16];
    EXPECT(mq_receive(queue, buffer, 16, NULL) >= 0);
}

static int control(int operation, int descriptor, unsigned events, int data) {
    struct epoll_event event = {events, {.u64 = (unsigned long)data << 40 | 7}};
    return epoll_ctl(set, operation, descriptor, &event);
}

static void add(int descriptor, unsigned events, int data) { EXPECT(control(EPOLL_CTL_ADD, descriptor, events, data) == 0); }

/* Returns the events of the set, or 0. The set has at most one event, with this data. */
static unsigned only_event_within(int timeout, int data) {
    struct epoll_event found[4] = {0};
    int count = epoll_wait(set, found, 4, timeout);
    EXPECT(count == 0 || count == 1);
    EXPECT(count == 0 || found->data.u64 == ((unsigned long)data << 40 | 7));
    return count ? found->events : 0;
}

static unsigned only_event(int data) { return only_event_within(0, data); }

static int events_now(void) {
    struct epoll_event found[16];
    return epoll_wait(set, found, 16, 0);
}

CASE(a_registered_queue_is_told_as_long_as_it_is_ready) {
    start(2);
    add(queue, EPOLLIN | EPOLLOUT, 1);
    EXPECT(only_event(1) == EPOLLOUT && only_event(1) == EPOLLOUT);
    send_one();
    EXPECT(only_event(1) == (EPOLLIN | EPOLLOUT) && only_event(1) == (EPOLLIN | EPOLLOUT));
    send_one();
    EXPECT(only_event(1) == EPOLLIN && only_event(1) == EPOLLIN);
    receive_one(), receive_one();
    EXPECT(only_event(1) == EPOLLOUT);
}

CASE(all_events_are_told_by_their_names) {
    start(1);
    add(queue, EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLPRI | EPOLLRDHUP | EPOLLRDBAND, 3);
    EXPECT(only_event(3) == (EPOLLOUT | EPOLLWRNORM));
    send_one();
    EXPECT(only_event(3) == (EPOLLIN | EPOLLRDNORM));
}

CASE(registrations_are_changed_and_removed) {
    start(2);
    EXPECT_ERRNO(control(EPOLL_CTL_MOD, queue, EPOLLIN, 1), ENOENT);
    EXPECT_ERRNO(control(EPOLL_CTL_DEL, queue, EPOLLIN, 1), ENOENT);
    add(queue, EPOLLOUT, 1);
    EXPECT_ERRNO(control(EPOLL_CTL_ADD, queue, EPOLLIN, 1), EEXIST);
    EXPECT(only_event(1) == EPOLLOUT);
    EXPECT(control(EPOLL_CTL_MOD, queue, EPOLLIN, 2) == 0 && only_event(2) == 0);
    send_one();
    EXPECT(only_event(2) == EPOLLIN);
    EXPECT(control(EPOLL_CTL_MOD, queue, EPOLLIN | EPOLLOUT, 3) == 0 && only_event(3) == (EPOLLIN | EPOLLOUT));
    EXPECT(epoll_ctl(set, EPOLL_CTL_DEL, queue, NULL) == 0 && events_now() == 0);
    EXPECT_ERRNO(epoll_ctl(set, EPOLL_CTL_DEL, queue, NULL), ENOENT);
    add(queue, EPOLLIN, 4);
    EXPECT(only_event(4) == EPOLLIN);
}

CASE(epoll_ctl_refuses_what_it_refuses_of_any_file) {
    start(2);
    struct epoll_event event = {EPOLLIN, {0}};
    EXPECT_ERRNO(epoll_ctl(-1, EPOLL_CTL_ADD, queue, &event), EBADF);
    EXPECT_ERRNO(epoll_ctl(999, EPOLL_CTL_ADD, queue, &event), EBADF);
    // The lowest free number is no epoll set. A file that the library opens during the call must not get this number.
    int lowest = dup(0);
    EXPECT(close(lowest) == 0);
    EXPECT_ERRNO(epoll_ctl(lowest, EPOLL_CTL_MOD, queue, &event), EBADF);
    EXPECT_ERRNO(epoll_ctl(lowest, EPOLL_CTL_DEL, queue, &event), EBADF);
    EXPECT_ERRNO(epoll_ctl(0, EPOLL_CTL_ADD, queue, &event), EINVAL);
    EXPECT_ERRNO(epoll_ctl(queue, EPOLL_CTL_ADD, queue, &event), EINVAL);
    EXPECT_ERRNO(epoll_ctl(queue, EPOLL_CTL_ADD, set, &event), EINVAL);
    EXPECT_ERRNO(epoll_ctl(set, 99, queue, &event), EINVAL);
    EXPECT_ERRNO(epoll_ctl(set, EPOLL_CTL_ADD, queue, (struct epoll_event *)8), EFAULT);
    EXPECT_ERRNO(epoll_ctl(set, EPOLL_CTL_MOD, queue, nowhere), EFAULT);
    EXPECT_ERRNO(control(EPOLL_CTL_ADD, queue, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1), EINVAL);
    EXPECT(mq_close(queue) == 0);
    EXPECT_ERRNO(epoll_ctl(set, EPOLL_CTL_ADD, queue, &event), EBADF);
}

static pid_t later(void (*act)(void)) {
    pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        act();
        _exit(0);
    }
    return child;
}

CASE(a_blocked_epoll_wait_ends_when_another_process_sends_or_receives) {
    start(1);
    add(queue, EPOLLIN, 1);
    pid_t child = later(send_one);
    EXPECT(only_event_within(-1, 1) == EPOLLIN);
    expect_success(child);
    EXPECT(control(EPOLL_CTL_MOD, queue, EPOLLOUT, 2) == 0);
    child = later(receive_one);
    EXPECT(only_event_within(-1, 2) == EPOLLOUT);
    expect_success(child);
}

CASE(each_send_and_each_receive_is_an_edge) {
    start(4);
    add(queue, EPOLLIN | EPOLLET, 1);
    EXPECT(only_event(1) == 0);
    for (int i = 0; i < 4; i++) {
        send_one();
        EXPECT(only_event(1) == EPOLLIN && only_event(1) == 0);
    }
    for (int i = 0; i < 3; i++) {
        receive_one();
        EXPECT(only_event(1) == EPOLLIN && only_event(1) == 0);
    }
    receive_one();
    EXPECT(only_event(1) == 0);
    send_one(), receive_one();
    EXPECT(only_event(1) == 0);
}

CASE(an_edge_is_told_with_all_that_is_ready) {
    start(3);
    add(queue, EPOLLIN | EPOLLOUT | EPOLLET, 1);
    EXPECT(only_event(1) == EPOLLOUT && only_event(1) == 0);
    send_one();
    EXPECT(only_event(1) == (EPOLLIN | EPOLLOUT) && only_event(1) == 0);
    send_one();
    EXPECT(only_event(1) == (EPOLLIN | EPOLLOUT) && only_event(1) == 0);
    send_one();
    EXPECT(only_event(1) == EPOLLIN && only_event(1) == 0);
    receive_one();
    EXPECT(only_event(1) == (EPOLLIN | EPOLLOUT) && only_event(1) == 0);
    receive_one(), receive_one();
    EXPECT(only_event(1) == EPOLLOUT && only_event(1) == 0);
}

CASE(edges_of_room_alone) {
    start(3);
    add(queue, EPOLLOUT | EPOLLET, 1);
    EXPECT(only_event(1) == EPOLLOUT && only_event(1) == 0);
    send_one();
    EXPECT(only_event(1) == EPOLLOUT && only_event(1) == 0);
    send_one();
    EXPECT(only_event(1) == EPOLLOUT && only_event(1) == 0);
    send_one();
    EXPECT(only_event(1) == 0);
    receive_one();
    EXPECT(only_event(1) == EPOLLOUT && only_event(1) == 0);
}

CASE(edges_cross_processes) {
    start(5);
    add(queue, EPOLLIN | EPOLLET, 1);
    for (int i = 0; i < 4; i++) {
        pid_t child = later(send_one);
        EXPECT(only_event_within(-1, 1) == EPOLLIN && only_event(1) == 0);
        expect_success(child);
    }
}

/* On umsg's queues, a process that polls at the same instant may be notified twice. */
CASE(of_a_message_that_fills_the_queue_other_processes_are_told) {
    start(1);
    add(queue, EPOLLIN | EPOLLET, 1);
    for (int i = 0; i < 4; i++) {
        pid_t child = later(send_one);
        EXPECT(only_event_within(-1, 1) == EPOLLIN);
        expect_success(child);
        unsigned again = only_event(1);
        EXPECT((again == 0 || again == EPOLLIN) && only_event(1) == 0);
        receive_one();
        EXPECT(only_event(1) == 0);
    }
}

CASE(a_changed_registration_is_told_anew) {
    start(4);
    send_one();
    add(queue, EPOLLIN | EPOLLET, 1);
    EXPECT(only_event(1) == EPOLLIN && only_event(1) == 0);
    EXPECT(control(EPOLL_CTL_MOD, queue, EPOLLIN | EPOLLET, 2) == 0);
    EXPECT(only_event(2) == EPOLLIN && only_event(2) == 0);
    EXPECT(control(EPOLL_CTL_MOD, queue, EPOLLIN | EPOLLONESHOT, 3) == 0);
    EXPECT(only_event(3) == EPOLLIN && only_event(3) == 0);
    send_one();
    EXPECT(only_event(3) == 0);
    EXPECT(control(EPOLL_CTL_MOD, queue, EPOLLIN | EPOLLONESHOT, 4) == 0);
    EXPECT(only_event(4) == EPOLLIN && only_event(4) == 0);
}

CASE(of_exclusive_waiters_at_least_one_is_told) {
    start(8);
    int received[2];
    EXPECT(pipe(received) == 0);
    pid_t children[3];
    for (int i = 0; i < 3; i++)
        if ((children[i] = fork()) == 0) {
            set = epoll_create1(0);
            queue = mq_open(name(), O_RDONLY | O_NONBLOCK);
            add(queue, EPOLLIN | EPOLLEXCLUSIVE, 1);
            for (char buffer[16] = ""; buffer[0] != 's';) {
                struct epoll_event found;
                EXPECT(epoll_wait(set, &found, 1, 20000) == 1);
                if (mq_receive(queue, buffer, 16, NULL) == 1) EXPECT(write(received[1], buffer, 1) == 1);
            }
            _exit(0);
        }
    char byte;
    for (int i = 0; i < 200; i++) {
        send_one();
        EXPECT(read(received[0], &byte, 1) == 1 && byte == 'x');
    }
    for (int i = 0; i < 3; i++) {
        EXPECT(mq_send(queue, "s", 1, 0) == 0);
        EXPECT(read(received[0], &byte, 1) == 1 && byte == 's');
    }
    for (int i = 0; i < 3; i++) expect_success(children[i]);
}

CASE(queues_stand_beside_other_files) {
    start(1);
    int pipes[2], sockets[2];
    EXPECT(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    add(pipes[0], EPOLLIN, 1);
    add(queue, EPOLLIN, 2);
    add(sockets[0], EPOLLIN, 3);
    EXPECT(events_now() == 0);
    send_one();
    EXPECT(only_event(2) == EPOLLIN);
    EXPECT(write(pipes[1], "x", 1) == 1 && write(sockets[1], "x", 1) == 1 && events_now() == 3);
    receive_one();
    EXPECT(events_now() == 2);
}

CASE(a_set_with_a_ready_queue_is_ready_itself) {
    start(1);
    add(queue, EPOLLIN, 1);
    struct pollfd one = {set, POLLIN, 0};
    EXPECT(poll(&one, 1, 0) == 0);
    pid_t child = later(send_one);
    EXPECT(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
    expect_success(child);
    int outer = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.fd = 5}};
    EXPECT(epoll_ctl(outer, EPOLL_CTL_ADD, set, &event) == 0 && epoll_wait(outer, &event, 1, 0) == 1);
}

CASE(the_last_close_ends_a_registration) {
    start(2);
    mqd_t other = mq_open(name(), O_RDWR);
    add(other, EPOLLIN, 1);
    send_one();
    EXPECT(only_event(1) == EPOLLIN && mq_close(other) == 0 && events_now() == 0);
    mqd_t again = mq_open(name(), O_RDWR);
    EXPECT(again == other && events_now() == 0);
    EXPECT_ERRNO(control(EPOLL_CTL_DEL, again, 0, 0), ENOENT);
    add(again, EPOLLIN, 2);
    EXPECT(only_event(2) == EPOLLIN);
    EXPECT(dup2(0, again) == again && events_now() == 0);
    EXPECT(mq_open(name(), O_RDWR) >= 0);
    mqd_t third = mq_open(name(), O_RDWR);
    add(third, EPOLLIN, 3);
    EXPECT(only_event(3) == EPOLLIN && close_range(third, third, 0) == 0 && events_now() == 0);
}

CASE(a_duplicate_keeps_a_registration) {
    start(2);
    mqd_t first = mq_open(name(), O_RDWR);
    int second = dup(first);
    add(first, EPOLLIN, 1);
    send_one();
    EXPECT(mq_close(first) == 0 && only_event(1) == EPOLLIN);
    EXPECT_ERRNO(control(EPOLL_CTL_DEL, first, 0, 0), EBADF);
    EXPECT_ERRNO(control(EPOLL_CTL_MOD, second, EPOLLIN, 0), ENOENT);
    EXPECT(dup2(second, first) == first);
    EXPECT_ERRNO(control(EPOLL_CTL_ADD, first, EPOLLIN, 2), EEXIST);
    EXPECT(control(EPOLL_CTL_MOD, first, EPOLLIN, 3) == 0 && only_event(3) == EPOLLIN);
    EXPECT(mq_close(first) == 0 && only_event(3) == EPOLLIN && close(second) == 0 && events_now() == 0);
}

CASE(duplicates_are_registered_apart) {
    start(2);
    int copies[] = {queue, dup(queue), dup(queue), mq_open(name(), O_RDONLY)};
    for (int i = 0; i < 4; i++) add(copies[i], i == 1 ? EPOLLOUT : EPOLLIN, i);
    send_one(), send_one();
    EXPECT(events_now() == 3);
    EXPECT(control(EPOLL_CTL_DEL, copies[2], 0, 0) == 0 && events_now() == 2);
    EXPECT(control(EPOLL_CTL_DEL, copies[0], 0, 0) == 0 && only_event(3) == EPOLLIN);
    EXPECT(mq_close(copies[3]) == 0 && events_now() == 0);
    receive_one();
    EXPECT(only_event(1) == EPOLLOUT);
}

CASE(a_queue_is_registered_in_several_sets) {
    start(2);
    add(queue, EPOLLIN, 1);
    int first = set;
    EXPECT((set = epoll_create1(0)) >= 0);
    add(queue, EPOLLIN | EPOLLOUT, 2);
    EXPECT(only_event(2) == EPOLLOUT);
    send_one();
    EXPECT(only_event(2) == (EPOLLIN | EPOLLOUT) && control(EPOLL_CTL_DEL, queue, 0, 0) == 0 && events_now() == 0);
    set = first;
    EXPECT(only_event(1) == EPOLLIN);
}

static void wait_for_end(int end) {
    char byte;
    EXPECT(read(end, &byte, 1) == 0);
}

CASE(a_forked_child_keeps_a_registration) {
    start(2);
    mqd_t other = mq_open(name(), O_RDWR);
    add(other, EPOLLIN, 1);
    send_one();
    int pipes[2];
    EXPECT(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(pipes[1]);
        wait_for_end(pipes[0]);
        EXPECT(only_event(1) == EPOLLIN);
        EXPECT(mq_close(other) == 0 && events_now() == 0);
        _exit(0);
    }
    EXPECT(mq_close(other) == 0 && only_event(1) == EPOLLIN);
    close(pipes[1]);
    expect_success(child);
    EXPECT(events_now() == 0);
}

CASE(a_childs_close_leaves_its_parents_registration) {
    start(2);
    add(queue, EPOLLIN, 1);
    send_one();
    pid_t child = fork();
    if (child == 0) {
        EXPECT(mq_close(queue) == 0 && only_event(1) == EPOLLIN);
        for (int descriptor = 3; descriptor < 2000; descriptor++) close(descriptor);
        _exit(0);
    }
    expect_success(child);
    EXPECT(only_event(1) == EPOLLIN && control(EPOLL_CTL_DEL, queue, 0, 0) == 0);
    child = fork();
    if (child == 0) {
        add(queue, EPOLLIN, 2);
        _exit(0);
    }
    expect_success(child);
    EXPECT(only_event(2) == EPOLLIN);
}

CASE(a_child_that_starts_a_program_leaves_its_parents_registration) {
    start(2);
    mqd_t other = mq_open(name(), O_RDWR);
    send_one();
    add(other, EPOLLIN, 1);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(control(EPOLL_CTL_MOD, other, EPOLLIN, 2) == 0);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    expect_success(child);
    EXPECT(only_event(2) == EPOLLIN && mq_close(other) == 0 && events_now() == 0);
}

static int free_descriptors(void) {
    int copies[64], count = 0;
    while (count < 64 && (copies[count] = dup(0)) >= 0) count++;
    for (int i = 0; i < count; i++) close(copies[i]);
    return count;
}

/* The library's own descriptors leave the lowest numbers free, and survive a program that closes all descriptors. */
CASE(a_program_that_closes_everything_else_keeps_polling) {
    closefrom(3);
    start(2);
    add(queue, EPOLLIN, 1);
    struct pollfd one = {queue, POLLIN, 0};
    EXPECT(poll(&one, 1, 1) == 0);
    int lowest = dup(0);
    EXPECT(lowest == set + 1 && close(lowest) == 0);
    for (int round = 0; round < 4; round++) {
        if (round == 0)
            for (int descriptor = set + 1; descriptor < 70000; descriptor++) EXPECT_ERRNO(close(descriptor), EBADF);
        if (round == 1) EXPECT(close_range(set + 1, ~0U, 0) == 0);
        if (round == 2) closefrom(set + 1);
        if (round == 3)
            for (int descriptor = set + 1; descriptor < 70000; descriptor++) {
                EXPECT_ERRNO(fcntl(descriptor, F_GETFD), EBADF);
                EXPECT_ERRNO(dup(descriptor), EBADF);
            }
        send_one();
        EXPECT(only_event(1) == EPOLLIN && poll(&one, 1, -1) == 1);
        receive_one();
        EXPECT(only_event(1) == 0 && poll(&one, 1, 1) == 0);
    }
}

CASE(a_daemon_that_closes_everything_can_poll_again) {
    start(2);
    add(queue, EPOLLIN, 1);
    EXPECT(close_range(3, ~0U, 0) == 0);
    EXPECT((set = epoll_create1(0)) == 3);
    EXPECT((queue = mq_open(name(), O_RDWR)) == 4);
    add(queue, EPOLLIN, 2);
    send_one();
    EXPECT(only_event(2) == EPOLLIN && free_descriptors() == 64);
}

CASE(queues_come_and_go_and_leave_no_descriptors) {
    start(2);
    struct rlimit limit = {200, 200};
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int round = 0; round < 2000; round++) {
        mqd_t other = mq_open(name(), O_RDWR);
        EXPECT(other >= 0);
        add(other, EPOLLIN, 1);
        struct pollfd one = {other, POLLOUT, 0};
        EXPECT(poll(&one, 1, 20) == 1);
        if (round % 3 == 0) EXPECT(close(dup(other)) == 0);
        if (round % 3 == 1) {
            int copy = dup(other);
            add(copy, EPOLLIN, 2);
            EXPECT(close(copy) == 0);
        }
        EXPECT(mq_close(other) == 0);
    }
    EXPECT(events_now() == 0 && free_descriptors() == 64);
}

static void *wait_for_ever(void *unused) {
    struct epoll_event found;
    pthread_barrier_wait(&barrier);
    epoll_wait(set, &found, 1, -1);
    return unused;
}

CASE(a_thread_in_epoll_wait_can_be_cancelled) {
    start(2);
    add(queue, EPOLLIN, 1);
    pthread_barrier_init(&barrier, NULL, 2);
    for (int round = 0; round < 50; round++) {
        pthread_t thread = started(wait_for_ever, NULL);
        if (round % 2) usleep(1000);
        expect_cancelled(thread);
    }
    send_one();
    EXPECT(only_event(1) == EPOLLIN);
}

static volatile int stop;

static void *poll_and_register(void *unused) {
    while (!stop) {
        struct pollfd one = {queue, POLLIN | POLLOUT, 0};
        EXPECT(poll(&one, 1, 1) >= 0);
        struct epoll_event event = {EPOLLIN | EPOLLET, {0}};
        if (epoll_ctl(set, EPOLL_CTL_ADD, queue, &event) != 0) EXPECT(epoll_ctl(set, EPOLL_CTL_MOD, queue, &event) <= 0);
        EXPECT(epoll_wait(set, &event, 1, 0) >= 0);
        epoll_ctl(set, EPOLL_CTL_DEL, queue, NULL);
    }
    return unused;
}

CASE(descriptors_come_and_go_while_threads_poll_and_register_them) {
    start(4);
    mqd_t keeper = mq_open(name(), O_RDWR | O_NONBLOCK);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) EXPECT(pthread_create(&threads[i], NULL, poll_and_register, NULL) == 0);
    char buffer[16];
    for (int round = 0; round < 3000; round++) {
        mqd_t other = round % 2 ? mq_open(name(), O_RDWR | O_NONBLOCK) : dup(keeper);
        EXPECT(other >= 0 && dup2(other, queue) == queue && close(other) == 0);
        if (mq_send(keeper, "x", 1, 0) != 0) EXPECT(mq_receive(keeper, buffer, 16, NULL) == 1);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(mq_close(queue) == 0 && mq_close(set) == 0 && (set = epoll_create1(0)) >= 0);
    while (mq_receive(keeper, buffer, 16, NULL) == 1) {}
    add(keeper, EPOLLIN, 1);
    EXPECT(only_event(1) == 0);
    EXPECT(mq_send(keeper, "x", 1, 0) == 0);
    EXPECT(only_event(1) == EPOLLIN);
    EXPECT(free_descriptors() == 64);
}

/* Edge-triggered events as programs use them: after an event, a receiver takes all messages. No message may stay unnoticed. */
CASE(a_receiver_driven_by_edges_misses_nothing) {
    enum { SENDERS = 3, EACH = 5000 };
    start(5);
    add(queue, EPOLLIN | EPOLLET, 1);
    pid_t senders[SENDERS];
    for (int i = 0; i < SENDERS; i++)
        if ((senders[i] = fork()) == 0) {
            mqd_t own = mq_open(name(), O_WRONLY);
            for (int sent = 0; sent < EACH; sent++) EXPECT(mq_send(own, "x", 1, 0) == 0);
            _exit(0);
        }
    for (int received = 0; received < SENDERS * EACH;) {
        char buffer[16];
        EXPECT(only_event_within(20000, 1) == EPOLLIN);
        while (mq_receive(queue, buffer, 16, NULL) == 1) received++;
    }
    for (int i = 0; i < SENDERS; i++) expect_success(senders[i]);
    EXPECT(only_event(1) == 0 && count(queue) == 0);
}

/* Edge-triggered events for room: after each event, a sender fills the queue. No free room may stay unnoticed. */
CASE(a_sender_driven_by_edges_misses_nothing) {
    enum { RECEIVERS = 3, EACH = 5000 };
    start(5);
    add(queue, EPOLLOUT | EPOLLET, 1);
    pid_t receivers[RECEIVERS];
    for (int i = 0; i < RECEIVERS; i++)
        if ((receivers[i] = fork()) == 0) {
            mqd_t own = mq_open(name(), O_RDONLY);
            char buffer[16];
            for (int received = 0; received < EACH; received++) EXPECT(mq_receive(own, buffer, 16, NULL) == 1);
            _exit(0);
        }
    for (int sent = 0; sent < RECEIVERS * EACH;) {
        EXPECT(only_event_within(20000, 1) == EPOLLOUT);
        while (sent < RECEIVERS * EACH && mq_send(queue, "x", 1, 0) == 0) sent++;
    }
    for (int i = 0; i < RECEIVERS; i++) expect_success(receivers[i]);
    EXPECT(count(queue) == 0);
}
