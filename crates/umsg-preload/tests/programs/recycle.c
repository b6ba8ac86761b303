/* Queues of one name that are created and removed one after the other. */
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/socket.h>

extern char **environ;

/* Checks the error of the previous call. */
static void expect_error(int error) {
    int found = errno;
    EXPECT(found == error);
}

static mqd_t make(int flags) { return create(O_RDWR | flags, 4); }

static void take_away(mqd_t queue) { EXPECT(mq_close(queue) == 0 && mq_unlink(name()) == 0); }

/* From the second removal on, the drop-in uses the segment of the removed queue for the next queue. */
static void warm_up(void) {
    for (int round = 0; round < 3; round++) take_away(make(0));
}

static void send_text(mqd_t queue, const char *text) { EXPECT(mq_send(queue, text, strlen(text), 3) == 0); }

static void expect_text(mqd_t queue, const char *text) {
    char buffer[17] = {0};
    unsigned priority;
    struct timespec soon = in_ms(10000);
    EXPECT(mq_timedreceive(queue, buffer, 16, &priority, &soon) == (ssize_t)strlen(text));
    EXPECT(!strcmp(buffer, text) && priority == 3);
}

static void expect_empty(mqd_t queue) {
    struct mq_attr attributes;
    EXPECT(mq_getattr(queue, &attributes) == 0);
    EXPECT(attributes.mq_curmsgs == 0 && attributes.mq_maxmsg == 4 && attributes.mq_msgsize == 16);
}

static pid_t child(void (*work)(mqd_t), mqd_t queue) {
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0) {
        work(queue);
        _exit(0);
    }
    return pid;
}

/* Checks that an earlier queue, which another process still has open, keeps its message "old" and shares nothing with the new queue. */
static void expect_apart(mqd_t old) {
    mqd_t queue = make(0);
    expect_empty(queue);
    send_text(queue, "new");
    expect_text(old, "old");
    struct timespec soon = in_ms(20);
    char buffer[16];
    EXPECT_ERRNO(mq_timedreceive(old, buffer, 16, NULL, &soon), ETIMEDOUT);
    expect_text(queue, "new");
    send_text(old, "late");
    expect_empty(queue);
    take_away(queue);
}

CASE(each_queue_is_new) {
    warm_up();
    char buffer[16];
    for (int round = 0; round < 50; round++) {
        int flags = round % 3 == 0 ? O_NONBLOCK : 0;
        mqd_t queue = make(flags);
        struct stat status;
        EXPECT(fstat(queue, &status) == 0 && (status.st_mode & 0777) == 0600 && status.st_uid == geteuid());
        EXPECT(fcntl(queue, F_GETFL) == (O_RDWR | flags) && fcntl(queue, F_GETFD) == FD_CLOEXEC);
        expect_empty(queue);
        for (int message = 0; message < 4; message++) EXPECT(mq_send(queue, "0123456789abcdef", message * 5, message * round) == 0);
        struct timespec soon = in_ms(1);
        EXPECT_ERRNO(mq_timedsend(queue, "", 0, 0, &soon), flags ? EAGAIN : ETIMEDOUT);
        for (int message = round % 5; message < 4; message++) EXPECT(mq_receive(queue, buffer, 16, NULL) >= 0);
        EXPECT_ERRNO(mq_open(name(), O_RDWR | O_CREAT | O_EXCL, 0600, NULL), EEXIST);
        EXPECT(mq_close(queue) == 0);
        EXPECT_ERRNO(mq_open(name(), O_RDWR | O_CREAT | O_EXCL, 0600, NULL), EEXIST);
        queue = mq_open(name(), O_RDWR);
        EXPECT(queue >= 0 && count(queue) == round % 5);
        take_away(queue);
        EXPECT_ERRNO(mq_unlink(name()), ENOENT);
        EXPECT_ERRNO(mq_open(name(), O_RDWR), ENOENT);
        EXPECT_ERRNO(mq_open(name(), O_WRONLY), ENOENT);
    }
}

/* Opens or creates the queue with these flags, this mode and these attributes. */
static mqd_t make_as(int flags, mode_t mode, long depth, long size) {
    struct mq_attr attributes = {.mq_maxmsg = depth, .mq_msgsize = size};
    mqd_t queue = mq_open(name(), flags | O_CREAT, mode, &attributes);
    EXPECT(queue >= 0 && mq_getattr(queue, &attributes) == 0);
    EXPECT(attributes.mq_maxmsg == depth && attributes.mq_msgsize == size && attributes.mq_curmsgs == 0);
    struct stat status;
    EXPECT(fstat(queue, &status) == 0 && (status.st_mode & 0777) == mode);
    return queue;
}

CASE(each_queue_has_its_own_attributes_mode_and_access) {
    warm_up();
    for (int round = 0; round < 4; round++) {
        take_away(make_as(O_RDWR, 0600, 4, 16));
        take_away(make_as(O_RDWR, 0600, 5, 16));
        take_away(make_as(O_RDWR, 0600, 4, 32));
        take_away(make_as(O_RDWR, 0400, 4, 16));
        take_away(make_as(O_RDWR, 0640, 4, 16));
        mqd_t writer = make_as(O_WRONLY, 0600, 4, 16);
        char buffer[16];
        EXPECT_ERRNO(mq_receive(writer, buffer, 16, NULL), EBADF);
        send_text(writer, "kept");
        EXPECT(mq_close(writer) == 0);
        mqd_t reader = mq_open(name(), O_RDONLY);
        EXPECT_ERRNO(mq_send(reader, "", 0, 0), EBADF);
        expect_text(reader, "kept");
        take_away(reader);
        struct mq_attr none = {.mq_maxmsg = 0, .mq_msgsize = 16};
        EXPECT_ERRNO(mq_open(name(), O_RDWR | O_CREAT, 0600, &none), EINVAL);
        mqd_t queue = mq_open(name(), O_RDWR | O_CREAT, 0600, NULL);
        struct mq_attr attributes;
        EXPECT(mq_getattr(queue, &attributes) == 0 && attributes.mq_maxmsg == 10 && attributes.mq_msgsize == 8192);
        EXPECT(fchmod(queue, 0606) == 0);
        take_away(queue);
    }
}

static void use_old(mqd_t queue) { expect_apart(queue); }

CASE(a_forked_child_goes_on_with_its_queue) {
    warm_up();
    for (int round = 0; round < 3; round++) {
        mqd_t queue = make(0);
        send_text(queue, "old");
        int go[2];
        EXPECT(pipe(go) == 0);
        pid_t pid = fork();
        if (pid == 0) {
            char byte;
            EXPECT(read(go[0], &byte, 1) == 1);
            expect_text(queue, "old");
            EXPECT(count(queue) == 0);
            _exit(0);
        }
        take_away(queue);
        queue = make(0);
        send_text(queue, "new");
        EXPECT(write(go[1], "x", 1) == 1);
        expect_success(pid);
        expect_text(queue, "new");
        take_away(queue);
        close(go[0]);
        close(go[1]);
    }
    mqd_t queue = make(0);
    send_text(queue, "old");
    EXPECT(mq_unlink(name()) == 0);
    expect_success(child(use_old, queue));
}

static void open_and_use(mqd_t unused) {
    (void)unused;
    mqd_t queue = mq_open(name(), O_RDWR);
    EXPECT(queue >= 0);
    expect_text(queue, "old");
    send_text(queue, "answer");
    EXPECT(mq_close(queue) == 0);
    EXPECT(mq_unlink(name()) == 0);
    take_away(make(0));
    take_away(make(0));
    queue = make(0);
    send_text(queue, "child");
    EXPECT(mq_close(queue) == 0);
}

CASE(a_forked_child_makes_queues_of_its_own) {
    warm_up();
    mqd_t queue = make(0);
    send_text(queue, "old");
    EXPECT(mq_close(queue) == 0);
    expect_success(child(open_and_use, -1));
    queue = mq_open(name(), O_RDWR | O_CREAT, 0600, NULL);
    expect_text(queue, "child");
    take_away(queue);
    warm_up();
    /* The child finds the segment that its parent keeps for the next queue. */
    pid_t pid = fork();
    if (pid == 0) {
        EXPECT_ERRNO(mq_open(name(), O_RDWR), ENOENT);
        EXPECT_ERRNO(mq_unlink(name()), ENOENT);
        queue = make(0);
        expect_empty(queue);
        send_text(queue, "child");
        _exit(0);
    }
    expect_success(pid);
    EXPECT_ERRNO(mq_open(name(), O_RDWR | O_CREAT | O_EXCL, 0600, NULL), EEXIST);
    queue = mq_open(name(), O_RDWR | O_CREAT, 0600, NULL);
    expect_text(queue, "child");
    take_away(queue);
}

CASE(a_duplicate_goes_on_with_its_queue) {
    warm_up();
    for (int round = 0; round < 3; round++) {
        mqd_t queue = make(0);
        int other = round == 0 ? dup(queue) : round == 1 ? fcntl(queue, F_DUPFD_CLOEXEC, 30) : dup2(queue, 40);
        EXPECT(other >= 0);
        send_text(queue, "old");
        take_away(queue);
        expect_apart(other);
        EXPECT(close(other) == 0);
    }
}

/* A message that carries a descriptor. */
struct parcel {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec bytes;
    struct msghdr message;
};

static void wrap(struct parcel *parcel) {
    memset(parcel, 0, sizeof *parcel);
    parcel->bytes = (struct iovec){&parcel->byte, 1};
    parcel->message.msg_iov = &parcel->bytes;
    parcel->message.msg_iovlen = 1;
    parcel->message.msg_control = parcel->control;
    parcel->message.msg_controllen = sizeof parcel->control;
}

static void put(int socket, int descriptor) {
    struct parcel parcel;
    wrap(&parcel);
    struct cmsghdr *header = CMSG_FIRSTHDR(&parcel.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    EXPECT(sendmsg(socket, &parcel.message, 0) == 1);
}

static int get(int socket) {
    struct parcel parcel;
    wrap(&parcel);
    int received;
    EXPECT(recvmsg(socket, &parcel.message, 0) == 1);
    memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&parcel.message)), sizeof received);
    return received;
}

static int pass(int descriptor) {
    int sockets[2];
    EXPECT(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0);
    put(sockets[0], descriptor);
    EXPECT(mq_close(descriptor) == 0 && mq_unlink(name()) == 0);
    mqd_t next = make(0);
    send_text(next, "new");
    int received = get(sockets[1]);
    EXPECT(close(sockets[0]) == 0 && close(sockets[1]) == 0);
    expect_text(received, "old");
    EXPECT(count(received) == 0);
    expect_text(next, "new");
    take_away(next);
    return received;
}

CASE(a_descriptor_in_a_socket_goes_on_with_its_queue) {
    warm_up();
    for (int round = 0; round < 3; round++) {
        mqd_t queue = make(0);
        send_text(queue, "old");
        EXPECT(close(pass(queue)) == 0);
    }
}

CASE(a_spawned_program_goes_on_with_its_queue) {
    warm_up();
    for (int round = 0; round < 3; round++) {
        mqd_t queue = make(0);
        send_text(queue, "old");
        posix_spawn_file_actions_t actions;
        EXPECT(posix_spawn_file_actions_init(&actions) == 0);
        EXPECT(posix_spawn_file_actions_adddup2(&actions, queue, 60) == 0);
        char *arguments[] = {"recycle", "the_queue_60_has_the_message_old", NULL};
        pid_t pid;
        EXPECT(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ) == 0);
        take_away(queue);
        queue = make(0);
        send_text(queue, "new");
        expect_success(pid);
        expect_text(queue, "new");
        take_away(queue);
        EXPECT(posix_spawn_file_actions_destroy(&actions) == 0);
    }
}

/* The spawned program runs this case. */
CASE(the_queue_60_has_the_message_old) {
    usleep(50000);
    expect_text(60, "old");
    EXPECT(count(60) == 0);
}

static int rounds_of_opener = 200;

/* Opens the queue `rounds_of_opener` times. After each opening, receives a message if the queue has one, and closes the queue. */
static void open_often(mqd_t unused) {
    (void)unused;
    int found = 0;
    while (found < rounds_of_opener) {
        mqd_t queue = mq_open(name(), O_RDWR | O_NONBLOCK);
        if (queue < 0) {
            expect_error(ENOENT);
            continue;
        }
        found++;
        char buffer[17] = {0};
        unsigned priority;
        ssize_t length = mq_receive(queue, buffer, 16, &priority);
        if (length < 0) {
            expect_error(EAGAIN);
        } else {
            EXPECT(priority == (unsigned)length && !strncmp(buffer, "0123456789abcdef", length));
        }
        EXPECT(count(queue) <= 2);
        EXPECT(mq_close(queue) == 0);
    }
}

CASE(a_process_that_opens_meanwhile_finds_a_whole_queue_or_none) {
    warm_up();
    pid_t opener = child(open_often, -1);
    long own = 0, taken = 0;
    for (siginfo_t info = {0}; info.si_pid == 0;) {
        EXPECT(waitid(P_PID, opener, &info, WEXITED | WNOHANG | WNOWAIT) == 0);
        mqd_t queue = make(O_NONBLOCK);
        EXPECT(count(queue) == 0);
        char buffer[17] = {0};
        unsigned length = 1 + own % 16, priority;
        for (int message = 0; message < 2; message++) EXPECT(mq_send(queue, "0123456789abcdef", length, length) == 0);
        ssize_t got = mq_receive(queue, buffer, 16, &priority);
        if (got < 0) {
            expect_error(EAGAIN);
            taken++;
        } else {
            EXPECT(got == (ssize_t)length && priority == length);
        }
        own++;
        take_away(queue);
    }
    expect_success(opener);
}

/* Creates, uses and removes a queue, while other processes or threads do the same with the same name. */
static void make_often(mqd_t unused) {
    (void)unused;
    for (int round = 0; round < 400; round++) {
        struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
        mqd_t queue = mq_open(name(), O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, 0600, &attributes);
        if (queue < 0) {
            expect_error(EEXIST);
            continue;
        }
        EXPECT(count(queue) == 0);
        EXPECT(mq_send(queue, (char *)&round, sizeof round, 0) == 0);
        int mine;
        char buffer[16];
        EXPECT(mq_receive(queue, buffer, 16, NULL) == sizeof mine);
        memcpy(&mine, buffer, sizeof mine);
        EXPECT(mine == round);
        EXPECT(mq_close(queue) == 0);
        EXPECT(mq_unlink(name()) == 0);
        EXPECT(mq_open("/umsg-preload-no-such-queue", O_RDWR) < 0);
    }
}

CASE(several_processes_that_create_one_name_have_it_in_turn) {
    name();
    pid_t children[4];
    for (int i = 0; i < 4; i++) children[i] = child(make_often, -1);
    for (int i = 0; i < 4; i++) expect_success(children[i]);
    EXPECT_ERRNO(mq_open(name(), O_RDWR), ENOENT);
    take_away(make(0));
}

static void *make_often_in_thread(void *unused) {
    (void)unused;
    make_often(-1);
    return NULL;
}

CASE(several_threads_that_create_one_name_have_it_in_turn) {
    name();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) EXPECT(pthread_create(&threads[i], NULL, make_often_in_thread, NULL) == 0);
    for (int i = 0; i < 4; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    take_away(make(0));
}

static atomic_int stops;

static void *fork_often(void *unused) {
    (void)unused;
    while (!stops) {
        pid_t pid = fork();
        if (pid == 0) {
            /* If the child has inherited an open queue, the queue stays unchanged. */
            for (int number = 3; number < 12; number++) {
                struct mq_attr attributes;
                if (mq_getattr(number, &attributes) == 0) {
                    long before = attributes.mq_curmsgs;
                    usleep(300);
                    EXPECT(mq_getattr(number, &attributes) == 0 && attributes.mq_maxmsg == 4);
                    EXPECT(before <= 1 && attributes.mq_curmsgs <= 1);
                }
            }
            _exit(0);
        }
        expect_success(pid);
    }
    return NULL;
}

CASE(a_process_that_forks_meanwhile_has_whole_queues) {
    warm_up();
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, fork_often, NULL) == 0);
    for (int round = 0; round < 2000; round++) {
        mqd_t queue = make(0);
        expect_empty(queue);
        send_text(queue, "message");
        expect_text(queue, "message");
        take_away(queue);
    }
    stops = 1;
    EXPECT(pthread_join(thread, NULL) == 0);
}

static atomic_int receiver;

static void *receive_old(void *queue) {
    receiver = gettid();
    expect_text((mqd_t)(long)queue, "old");
    return NULL;
}

/* The kernel keeps a queue as long as a call on it lasts. A message on another descriptor ends the call. */
CASE(a_blocked_call_goes_on_with_its_queue) {
    warm_up();
    mqd_t queue = make(0), other = mq_open(name(), O_WRONLY);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, receive_old, (void *)(long)queue) == 0);
    while (!receiver) usleep(1000);
    await_sleep(receiver);
    take_away(queue);
    mqd_t next = make(0);
    send_text(next, "new");
    usleep(10000);
    send_text(other, "old");
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(mq_close(other) == 0);
    expect_text(next, "new");
    take_away(next);
}

static volatile sig_atomic_t is_unlinking, is_passed;
static int passed[2];

/* Opens the queue during its removal, passes the descriptor on, and closes the queue. */
static void pass_on(int signal) {
    (void)signal;
    int error = errno;
    if (is_unlinking && !is_passed) {
        mqd_t queue = mq_open(name(), O_RDWR);
        if (queue >= 0) {
            put(passed[0], queue);
            is_passed = 1;
            mq_close(queue);
        }
    }
    errno = error;
}

CASE(a_descriptor_that_a_handler_passes_on_during_the_removal_goes_on_with_its_queue) {
    name();
    EXPECT(socketpair(AF_UNIX, SOCK_DGRAM, 0, passed) == 0);
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    EXPECT(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct timespec end = in_ms(1500), now;
    for (long round = 0;; round++) {
        mqd_t queue = make(0);
        EXPECT(mq_close(queue) == 0);
        is_passed = 0;
        is_unlinking = 1;
        struct itimerspec soon = {.it_value.tv_nsec = 1 + round * 7919 % 30000};
        EXPECT(timer_settime(timer, 0, &soon, NULL) == 0);
        EXPECT(mq_unlink(name()) == 0);
        is_unlinking = 0;
        queue = make(0);
        send_text(queue, "new");
        if (is_passed) {
            mqd_t old = get(passed[1]);
            expect_empty(old);
            EXPECT(close(old) == 0);
        }
        take_away(queue);
        clock_gettime(CLOCK_REALTIME, &now);
        if (now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec > end.tv_nsec)) break;
    }
    EXPECT(timer_delete(timer) == 0);
}

static void nothing(int signal) { (void)signal; }

CASE(a_queue_that_was_polled_or_had_a_registration_leaves_nothing) {
    signal(SIGUSR1, nothing);
    warm_up();
    for (int round = 0; round < 4; round++) {
        mqd_t queue = make(0);
        if (round & 1) {
            struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
            EXPECT(mq_notify(queue, &event) == 0);
        } else {
            struct pollfd polled = {.fd = queue, .events = POLLIN};
            EXPECT(poll(&polled, 1, 0) == 0);
            send_text(queue, "seen");
            EXPECT(poll(&polled, 1, 1000) == 1 && polled.revents == POLLIN);
        }
        take_away(queue);
        queue = make(0);
        struct pollfd polled = {.fd = queue, .events = POLLIN | POLLOUT};
        EXPECT(poll(&polled, 1, 1000) == 1 && polled.revents == POLLOUT);
        take_away(queue);
        take_away(make(0));
    }
}

/* Only on umsg: the inode number shows whether the segment was used again. */
CASE(the_segment_is_used_again) {
    warm_up();
    struct stat first, now;
    mqd_t queue = make(0);
    EXPECT(fstat(queue, &first) == 0);
    send_text(queue, "kept");
    take_away(queue);
    for (int round = 0; round < 10; round++) {
        queue = make(0);
        EXPECT(fstat(queue, &now) == 0 && now.st_ino == first.st_ino);
        expect_empty(queue);
        take_away(queue);
    }
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    expect_success(pid);
    queue = make(0);
    EXPECT(fstat(queue, &now) == 0 && now.st_ino == first.st_ino);
    take_away(queue);
}

/* Only on umsg: the next case runs in the namespace that this case leaves behind. */
CASE(a_process_is_killed_between_two_queues) {
    warm_up();
    kill(getpid(), SIGKILL);
}
