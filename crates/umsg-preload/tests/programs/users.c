/* Several users in one namespace: a queue's mode controls open, send, receive, poll and unlink. Needs root. */
#include "check.h"
#include <grp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/msg.h>

enum { OWNER = 61001, MEMBER = 61002, STRANGER = 61003, GROUP = 61000 };

/* Prepares umsg's namespace for several users, as `umsg setup` does. Returns 0 if the program does not run as root. */
static int can_become_others(void) {
    if (geteuid() != 0) {
        fprintf(stderr, "left out: only root can become other users\n");
        return 0;
    }
    const char *directory = getenv("UMSG_DIR");
    if (directory) EXPECT(chmod(directory, 01777) == 0);
    umask(0);
    EXPECT(mq_close(create(O_RDWR, 1)) == 0 && mq_unlink(name()) == 0);
    return 1;
}

/* Runs `act` as another user, in a separate process. */
static void as(uid_t user, void (*act)(void)) {
    pid_t child = fork();
    if (child == 0) {
        gid_t group = user == OWNER ? GROUP : user, further = GROUP;
        EXPECT(setgroups(user == MEMBER, &further) == 0 && setgid(group) == 0 && setuid(user) == 0);
        act();
        _exit(0);
    }
    expect_success(child);
}

static unsigned mode;
static unsigned granted;

static void create_with_mode(void) {
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    mqd_t queue = mq_open(queue_name, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, mode, &attributes);
    EXPECT(queue >= 0);
    EXPECT(mq_send(queue, "owner", 5, 0) == 0);
    struct stat status;
    EXPECT(fstat(queue, &status) == 0 && (status.st_mode & 07777) == mode && status.st_uid == OWNER && status.st_gid == GROUP);
}

static int access_mode;

static unsigned needed(void) { return access_mode == O_RDONLY ? 4 : access_mode == O_WRONLY ? 2 : 6; }

/* The queue has one message and room for three. */
static void use_as_granted(void) {
    char buffer[16];
    EXPECT_ERRNO(mq_open(queue_name, access_mode | O_CREAT | O_EXCL, 0666, NULL), EEXIST);
    if (needed() & ~granted) {
        EXPECT_ERRNO(mq_open(queue_name, access_mode), EACCES);
        EXPECT_ERRNO(mq_open(queue_name, access_mode | O_CREAT, 0666, NULL), EACCES);
        return;
    }
    mqd_t queue = mq_open(queue_name, access_mode | O_NONBLOCK);
    EXPECT(queue >= 0 && count(queue) == 1);
    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLOUT, {0}};
    EXPECT(epoll_ctl(set, EPOLL_CTL_ADD, queue, &event) == 0);
    EXPECT(epoll_wait(set, &event, 1, 0) == 1 && event.events == (EPOLLIN | EPOLLOUT));
    if (access_mode == O_RDONLY)
        EXPECT_ERRNO(mq_send(queue, "x", 1, 0), EBADF);
    else
        EXPECT(mq_send(queue, "guest", 5, 1) == 0);
    if (access_mode == O_WRONLY)
        EXPECT_ERRNO(mq_receive(queue, buffer, 16, NULL), EBADF);
    else
        EXPECT(mq_receive(queue, buffer, 16, NULL) == 5 && !memcmp(buffer, access_mode == O_RDWR ? "guest" : "owner", 5));
    unsigned expected = access_mode == O_RDONLY ? EPOLLOUT : EPOLLIN | EPOLLOUT;
    EXPECT(epoll_wait(set, &event, 1, 0) == 1 && event.events == expected);
}

/* Restores the state that `use_as_granted` expects: the queue has one message. */
static void put_in_order(void) {
    char buffer[16];
    mqd_t queue = mq_open(queue_name, O_RDWR | O_NONBLOCK);
    EXPECT(queue >= 0);
    while (mq_receive(queue, buffer, 16, NULL) >= 0) {}
    EXPECT(mq_send(queue, "owner", 5, 0) == 0);
    EXPECT(mq_close(queue) == 0);
}

static void must_not_unlink(void) { EXPECT_ERRNO(mq_unlink(queue_name), EACCES); }

static void unlink_it(void) { EXPECT(mq_unlink(queue_name) == 0); }

CASE(each_user_may_do_what_the_mode_grants_him) {
    if (!can_become_others()) return;
    unsigned modes[] = {0600, 0660, 0644, 0222, 0622, 0444, 0420, 0066, 0606, 0};
    uid_t users[] = {OWNER, MEMBER, STRANGER};
    int accesses[] = {O_RDONLY, O_WRONLY, O_RDWR};
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        mode = modes[i];
        as(OWNER, create_with_mode);
        for (int one = 0; one < 9; one++) {
            granted = mode >> (6 - one / 3 * 3) & 6;
            access_mode = accesses[one % 3];
            put_in_order();
            as(users[one / 3], use_as_granted);
        }
        as(MEMBER, must_not_unlink);
        as(STRANGER, must_not_unlink);
        as(OWNER, unlink_it);
        EXPECT_ERRNO(mq_unlink(queue_name), ENOENT);
    }
}

CASE(root_does_what_it_wants) {
    if (!can_become_others()) return;
    mode = 0;
    as(OWNER, create_with_mode);
    granted = 6;
    for (access_mode = O_RDONLY; access_mode <= O_RDWR; access_mode++) {
        put_in_order();
        use_as_granted();
    }
    unlink_it();
}

CASE(a_name_that_its_owner_gave_up_is_anybodys) {
    if (!can_become_others()) return;
    mode = 0666;
    as(OWNER, create_with_mode);
    mqd_t old = mq_open(queue_name, O_RDWR);
    as(OWNER, unlink_it);
    mqd_t new = mq_open(queue_name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
    EXPECT(old >= 0 && new >= 0 && count(old) == 1 && count(new) == 0);
    mode = 0600;
    as(OWNER, must_not_unlink);
    as(STRANGER, must_not_unlink);
    granted = 0;
    as(STRANGER, use_as_granted);
}

static void send_one(void) {
    mqd_t queue = mq_open(queue_name, O_WRONLY);
    EXPECT(queue >= 0 && mq_send(queue, "x", 1, 0) == 0);
}

/* With mode 0622, all users send, and only the owner receives. With mode 0662, the group receives, too. */
static void wait_for_a_stranger(void) {
    char buffer[16];
    mqd_t queue = mq_open(queue_name, O_RDONLY);
    struct pollfd one = {queue, POLLIN, 0};
    EXPECT(queue >= 0 && poll(&one, 1, 20000) == 1 && one.revents == POLLIN);
    EXPECT(mq_receive(queue, buffer, 16, NULL) == 1);
}

CASE(a_poller_is_told_of_what_other_users_send) {
    if (!can_become_others()) return;
    uid_t receivers[] = {OWNER, MEMBER}, senders[] = {STRANGER, OWNER};
    for (int i = 0; i < 2; i++) {
        mode = i ? 0662 : 0622;
        struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
        mqd_t queue = mq_open(queue_name, O_RDWR | O_CREAT | O_EXCL, mode, &attributes);
        EXPECT(queue >= 0 && fchown(queue, OWNER, GROUP) == 0);
        pid_t child = fork();
        if (child == 0) {
            as(receivers[i], wait_for_a_stranger);
            _exit(0);
        }
        usleep(100000);
        as(senders[i], send_one);
        expect_success(child);
        EXPECT(mq_unlink(queue_name) == 0 && mq_close(queue) == 0);
    }
}

static mqd_t opened_before;

static void poll_what_was_opened_before(void) {
    EXPECT_ERRNO(mq_open(queue_name, O_RDONLY), EACCES);
    struct pollfd one = {opened_before, POLLIN, 0};
    EXPECT(poll(&one, 1, 20) == 0);
    pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        _exit(mq_send(opened_before, "x", 1, 0) != 0);
    }
    EXPECT(poll(&one, 1, 20000) == 1 && one.revents == POLLIN);
    expect_success(child);
}

/* Acts as a daemon: opens the queue as root, and polls the queue as a user without permission to open it. */
CASE(who_gave_up_his_user_still_polls) {
    if (!can_become_others()) return;
    opened_before = create(O_RDWR, 4);
    as(STRANGER, poll_what_was_opened_before);
    EXPECT(count(opened_before) == 1);
}

static void open_as(uid_t effective) {
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    EXPECT(seteuid(effective) == 0);
    EXPECT_ERRNO(mq_open(queue_name, O_RDWR), EACCES);
    EXPECT_ERRNO(mq_open(queue_name, O_RDONLY | O_CREAT, 0600, &attributes), EACCES);
    EXPECT_ERRNO(mq_open(queue_name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes), EEXIST);
    EXPECT_ERRNO(mq_unlink(queue_name), EACCES);
    EXPECT(seteuid(0) == 0);
}

/* The process has used queues as root before. No process has the queue open. */
CASE(a_process_with_another_effective_user_is_denied_the_queues_of_others) {
    if (!can_become_others()) return;
    mode = 0600;
    EXPECT(mq_close(create(O_RDWR, 4)) == 0);
    open_as(STRANGER);
    EXPECT(mq_unlink(queue_name) == 0);
    as(OWNER, create_with_mode);
    open_as(STRANGER);
    EXPECT(mq_unlink(queue_name) == 0);
    EXPECT(seteuid(STRANGER) == 0);
    EXPECT_ERRNO(mq_open(queue_name, O_RDWR), ENOENT);
    EXPECT(seteuid(0) == 0);
}

/* Only on umsg: without root, a process can't add the missing directories of the queues. */
CASE(a_creation_where_only_root_can_prepare_the_namespace_is_denied) {
    const char *directory = getenv("UMSG_DIR");
    if (geteuid() != 0 || !directory) return;
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    EXPECT(chmod(directory, 01777) == 0 && seteuid(STRANGER) == 0);
    EXPECT_ERRNO(mq_open("/none", O_RDWR), ENOENT);
    EXPECT_ERRNO(mq_open("/none", O_RDWR | O_CREAT, 0600, &attributes), EACCES);
    EXPECT_ERRNO(msgget(1, 0600), ENOENT);
    EXPECT_ERRNO(msgget(1, 0600 | IPC_CREAT), EACCES);
    EXPECT_ERRNO(msgget(IPC_PRIVATE, 0600), EACCES);
    EXPECT(seteuid(0) == 0);
}
