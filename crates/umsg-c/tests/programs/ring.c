/* Rings: messages, notifications and waits. */
#define _GNU_SOURCE
#include "check.h"
#include "times.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <umsg/ring.h>
#include <unistd.h>

/* Checks that the call returns NULL and sets errno to this error. */
#define MAKES_NOT(call, error)                                                                    \
    do {                                                                                          \
        errno = 0;                                                                                \
        CHECK((call) == NULL && errno == (error));                                                \
    } while (0)

static void sleep_for(long milliseconds)
{
    struct timespec time = {0, 0};
    time.tv_nsec = milliseconds * 1000000;
    CHECK(nanosleep(&time, NULL) == 0);
}

/* A ring, with or without a name, and a sender of the ring. */
struct pair {
    struct umsg_ring *ring;
    struct umsg_ring_sender *sender;
};

static struct pair make_pair(uint32_t entries, uint32_t overflow, const char *name)
{
    struct umsg_ring_options options = umsg_ring_defaults();
    struct pair pair;
    options.entries = entries;
    options.overflow = overflow == 0 ? UMSG_RING_NO_OVERFLOW : overflow;
    options.name = name;
    pair.ring = umsg_ring_create(&options);
    CHECK(pair.ring != NULL);
    pair.sender = umsg_ring_sender_of(pair.ring);
    CHECK(pair.sender != NULL);
    return pair;
}

static void end(struct pair pair)
{
    CHECK(umsg_ring_sender_free(pair.sender) == 0);
    CHECK(umsg_ring_free(pair.ring) == 0);
}

static void put(struct umsg_ring_sender *sender, uint64_t user_data)
{
    struct umsg_ring_post post = umsg_ring_post_of(user_data, NULL, 0);
    CHECK(umsg_ring_send(sender, &post) == 0);
}

static void get(struct umsg_ring *ring, uint64_t user_data)
{
    struct umsg_ring_message message;
    CHECK(umsg_ring_receive(ring, &message) == 0);
    CHECK(message.user_data == user_data);
}

static struct umsg_ring_status status_of(struct umsg_ring *ring)
{
    struct umsg_ring_status status;
    CHECK(umsg_ring_status(ring, &status, sizeof status) == 0);
    return status;
}

/* Ends a child with status 0, by an execve: at an exit, valgrind would read all of the ring's memory. */
static void leave(void)
{
    execlp("true", "true", (char *)NULL);
    _exit(1);
}

static void ends_well(pid_t child)
{
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static void a_message_comes_as_it_was_sent(void)
{
    struct pair pair = make_pair(8, 0, NULL);
    struct umsg_ring_post post = umsg_ring_post_of(UINT64_MAX, "payload", 7);
    struct umsg_ring_message message;
    struct umsg_ring_tag tag;
    post.res = -5;
    post.flags = UINT32_MAX;
    CHECK(umsg_ring_send(pair.sender, &post) == 0);
    CHECK(umsg_ring_try_send(pair.sender, &post) == 0);
    CHECK(umsg_ring_timedsend(pair.sender, &post, &past) == 0);
    CHECK(umsg_ring_tag(pair.sender, &tag) == 0 && tag.pid == (uint32_t)getpid());
    CHECK(umsg_ring_receive(pair.ring, &message) == 0);
    CHECK(message.user_data == UINT64_MAX && message.res == -5 && message.flags == UINT32_MAX);
    CHECK(message.len == 7 && memcmp(message.payload, "payload", 7) == 0);
    CHECK(message.pid == tag.pid && message.index == tag.index && message.fd == -1);
    CHECK(umsg_ring_try_receive(pair.ring, &message) == 0 && message.len == 7);
    CHECK(umsg_ring_timedreceive(pair.ring, &message, &past) == 0);
    FAILS(umsg_ring_try_receive(pair.ring, &message), EAGAIN);
    FAILS(umsg_ring_timedreceive(pair.ring, &message, &past), ETIMEDOUT);
    CHECK(strstr(umsg_last_error(), "timed out") != NULL);
    end(pair);
}

static void what_overflows_keeps_its_order_and_what_has_no_room_is_refused_or_counted(void)
{
    struct pair pair = make_pair(2, 2, NULL);
    struct umsg_ring_post post = umsg_ring_post_of(9, NULL, 0);
    struct umsg_ring_status status;
    struct timespec soon;
    uint64_t i;
    for (i = 0; i < 4; i++)
        put(pair.sender, i);
    FAILS(umsg_ring_try_send(pair.sender, &post), EAGAIN);
    CHECK(strstr(umsg_last_error(), "overflow are full") != NULL);
    soon = in_milliseconds(20);
    FAILS(umsg_ring_timedsend(pair.sender, &post, &soon), ETIMEDOUT);
    CHECK(umsg_ring_send_or_drop(pair.sender, &post) == 0);
    status = status_of(pair.ring);
    CHECK(status.entries == 2 && status.overflow == 2 && status.messages == 4);
    CHECK(status.overflowing == 2 && status.dropped == 1 && status.blocked_senders == 0);
    for (i = 0; i < 4; i++)
        get(pair.ring, i);
    CHECK(umsg_ring_send_or_drop(pair.sender, &post) == 1);
    end(pair);
}

static void a_batch_is_sent_whole_and_received_in_parts(void)
{
    struct pair pair = make_pair(40, 0, NULL);
    struct umsg_ring_post posts[41], more;
    struct umsg_ring_message messages[50];
    char texts[40][64];
    int i, n;
    posts[40] = umsg_ring_post_of(40, NULL, 0);
    for (i = 0; i < 40; i++) {
        memset(texts[i], i, sizeof texts[i]);
        posts[i] = umsg_ring_post_of(i, texts[i], i == 0 ? 64 : (size_t)i);
    }
    CHECK(umsg_ring_send_batch(pair.sender, posts, 40, 0, NULL) == 0);
    FAILS(umsg_ring_send_batch(pair.sender, posts, 1, UMSG_RING_NOWAIT, NULL), EAGAIN);
    FAILS(umsg_ring_send_batch(pair.sender, posts, 1, 0, &past), ETIMEDOUT);
    CHECK(umsg_ring_receive_batch(pair.ring, messages, 3) == 3);
    CHECK(((char *)messages[0].payload)[63] == 0 && messages[2].user_data == 2);
    n = umsg_ring_receive_batch(pair.ring, messages, 50);
    CHECK(n == 37);
    for (i = 0; i < n; i++) {
        CHECK(messages[i].user_data == (uint64_t)i + 3 && messages[i].len == (size_t)i + 3);
        CHECK(memcmp(messages[i].payload, texts[i + 3], messages[i].len) == 0);
    }
    CHECK(umsg_ring_receive_batch(pair.ring, messages, 50) == 0);
    more = umsg_ring_post_of(1, posts, 65);
    FAILS(umsg_ring_send_batch(pair.sender, &more, 1, 0, NULL), EMSGSIZE);
    CHECK(strstr(umsg_last_error(), "65 bytes is too long for this call, which takes at most 64 bytes") != NULL);
    CHECK(umsg_ring_send_batch(pair.sender, NULL, 0, 0, NULL) == 0);
    FAILS(umsg_ring_send_batch(pair.sender, posts, 41, 0, NULL), EMSGSIZE);
    FAILS(umsg_ring_send_batch(pair.sender, NULL, 1, 0, NULL), EFAULT);
    end(pair);
}

static void a_long_payload_goes_through_a_ring_that_was_made_for_it(void)
{
    static char text[100001];
    struct umsg_ring_options options = umsg_ring_defaults();
    struct umsg_ring_post post = umsg_ring_post_of(1, text, sizeof text - 1);
    struct umsg_ring_message message;
    struct pair pair;
    options.longest = sizeof text - 1;
    options.entries = 3;
    options.overflow = UMSG_RING_NO_OVERFLOW;
    pair.ring = umsg_ring_create(&options);
    CHECK(pair.ring != NULL);
    pair.sender = umsg_ring_sender_of(pair.ring);
    memset(text, 'x', sizeof text);
    CHECK(umsg_ring_send(pair.sender, &post) == 0);
    CHECK(umsg_ring_timedsend(pair.sender, &post, &past) == 0);
    CHECK(umsg_ring_send_or_drop(pair.sender, &post) == 1);
    CHECK(umsg_ring_send_or_drop(pair.sender, &post) == 0);
    CHECK(umsg_ring_receive(pair.ring, &message) == 0 && message.len == sizeof text - 1);
    CHECK(memcmp(message.payload, text, message.len) == 0);
    CHECK(umsg_ring_receive_batch(pair.ring, &message, 1) == 1 && message.len == sizeof text - 1);
    CHECK(memcmp(message.payload, text, message.len) == 0);
    post.len = sizeof text;
    FAILS(umsg_ring_try_send(pair.sender, &post), EMSGSIZE);
    CHECK(status_of(pair.ring).longest == sizeof text - 1);
    end(pair);
}

static void reads(int fd, const char *text)
{
    char buffer[16];
    CHECK(read(fd, buffer, sizeof buffer) == (ssize_t)strlen(text));
    CHECK(memcmp(buffer, text, strlen(text)) == 0);
}

static void a_descriptor_goes_with_its_message(void)
{
    struct pair pair = make_pair(8, 0, NULL);
    struct umsg_ring_post post = umsg_ring_post_of(3, "take it", 7);
    struct umsg_ring_message message;
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(umsg_ring_send_fd(pair.sender, &post, ends[1], 0, NULL) == 0);
    CHECK(close(ends[1]) == 0);
    CHECK(umsg_ring_receive(pair.ring, &message) == 0);
    CHECK(message.user_data == 3 && message.fd >= 0 && message.res == message.fd);
    CHECK(fcntl(message.fd, F_GETFD) == FD_CLOEXEC);
    CHECK(write(message.fd, "here", 4) == 4 && close(message.fd) == 0);
    reads(ends[0], "here");
    FAILS(umsg_ring_send_fd(pair.sender, &post, -1, 0, NULL), EBADF);
    FAILS(umsg_ring_send_fd(pair.sender, &post, 1000000, 0, NULL), EBADF);
    FAILS(umsg_ring_send_fd(pair.sender, &post, 0, 2, NULL), EINVAL);
    FAILS(umsg_ring_try_receive(pair.ring, &message), EAGAIN);
    CHECK(close(ends[0]) == 0);
    end(pair);
}

static void a_descriptor_can_come_without_a_message(void)
{
    struct pair pair = make_pair(8, 0, NULL);
    struct umsg_ring_message message;
    int ends[2], ticket, taken;
    CHECK(pipe(ends) == 0);
    ticket = umsg_ring_pass_fd(pair.sender, ends[1]);
    CHECK(ticket >= 0);
    FAILS(umsg_ring_try_receive(pair.ring, &message), EAGAIN);
    taken = umsg_ring_take_fd(pair.ring, ticket);
    CHECK(taken >= 0 && write(taken, "there", 5) == 5);
    reads(ends[0], "there");
    FAILS(umsg_ring_take_fd(pair.ring, ticket), EBADF);
    CHECK(strstr(umsg_last_error(), "ticket") != NULL);
    FAILS(umsg_ring_pass_fd(pair.sender, -1), EBADF);
    CHECK(close(taken) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    end(pair);
}

static void a_sender_learns_from_its_own_ring_what_became_of_a_message(void)
{
    struct pair own = make_pair(8, 0, NULL), other = make_pair(1, 0, NULL);
    struct umsg_ring_post post = umsg_ring_post_of(1, NULL, 0), done = umsg_ring_post_of(9, "", 0);
    struct umsg_ring_message message;
    int i;
    for (i = 0; i < 2; i++)
        CHECK(umsg_ring_send_completing(other.sender, &post, UMSG_RING_NOWAIT, NULL, own.sender,
                                        &done) == 0);
    CHECK(umsg_ring_receive(own.ring, &message) == 0 && message.user_data == 9 && message.res == 0);
    CHECK(umsg_ring_receive(own.ring, &message) == 0 && message.res == -EAGAIN);
    get(other.ring, 1);
    FAILS(umsg_ring_send_completing(other.sender, &post, 0, NULL, NULL, &done), EBADF);
    FAILS(umsg_ring_try_receive(other.ring, &message), EAGAIN);
    end(own);
    end(other);
}

static void a_disabled_ring_refuses_until_it_is_enabled_and_a_closed_one_for_good(void)
{
    struct umsg_ring_options options = umsg_ring_defaults();
    struct umsg_ring_post post = umsg_ring_post_of(1, NULL, 0);
    struct pair pair;
    options.flags = UMSG_RING_DISABLED;
    pair.ring = umsg_ring_create(&options);
    CHECK(pair.ring != NULL);
    pair.sender = umsg_ring_sender_of(pair.ring);
    FAILS(umsg_ring_send(pair.sender, &post), EBADFD);
    FAILS(umsg_ring_pass_fd(pair.sender, 0), EBADFD);
    CHECK(status_of(pair.ring).enabled == 0);
    CHECK(umsg_ring_enable(pair.ring) == 0 && status_of(pair.ring).enabled == 1);
    put(pair.sender, 7);
    CHECK(umsg_ring_close(pair.ring) == 0 && status_of(pair.ring).closed == 1);
    FAILS(umsg_ring_send(pair.sender, &post), EPIPE);
    get(pair.ring, 7);
    CHECK(umsg_ring_free(pair.ring) == 0);
    FAILS(umsg_ring_try_send(pair.sender, &post), EPIPE);
    CHECK(strstr(umsg_last_error(), "owner closed the ring") != NULL);
    CHECK(umsg_ring_sender_free(pair.sender) == 0);
}

#define SEVERAL 16

static void *send_slowly(void *sender)
{
    uint64_t i;
    for (i = 0; i < SEVERAL; i++) {
        sleep_for(2);
        put(sender, i);
    }
    return NULL;
}

/* Waits for several messages that arrive one by one. Returns how often the receiver slept during the wait. */
static uint64_t wait_for_several(struct pair pair)
{
    uint64_t slept = status_of(pair.ring).slept;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, send_slowly, pair.sender) == 0);
    CHECK(umsg_ring_wait(pair.ring, SEVERAL, NULL) >= SEVERAL);
    slept = status_of(pair.ring).slept - slept;
    CHECK(pthread_join(thread, NULL) == 0);
    return slept;
}

static void a_receiver_is_woken_once_by_the_last_message_that_it_waits_for(void)
{
    struct pair pair = make_pair(64, 0, NULL);
    struct umsg_ring_message messages[SEVERAL];
    struct umsg_ring_status status;
    struct timespec soon;
    uint64_t slept;
    CHECK(umsg_ring_set_waiting(pair.ring, UMSG_WAITING_BLOCKING) == 0);
    FAILS(umsg_ring_set_waiting(pair.ring, 3), EINVAL);
    /* On a busy machine, all messages may arrive before the receiver waits for them. */
    while ((slept = wait_for_several(pair)) == 0)
        CHECK(umsg_ring_receive_batch(pair.ring, messages, SEVERAL) == SEVERAL);
    CHECK(slept == 1);
    status = status_of(pair.ring);
    CHECK(status.time_asleep > 0 && status.time_spun == 0);
    CHECK(umsg_ring_receive_batch(pair.ring, messages, SEVERAL) == SEVERAL);
    FAILS(umsg_ring_wait(pair.ring, 1, &past), ETIMEDOUT);
    soon = in_milliseconds(20);
    FAILS(umsg_ring_wait(pair.ring, 1, &soon), ETIMEDOUT);
    CHECK(umsg_ring_set_waiting(pair.ring, UMSG_WAITING_SPINNING) == 0);
    /* The time-out is long enough for the receiver to begin to spin, even under valgrind. */
    soon = in_milliseconds(200);
    FAILS(umsg_ring_wait(pair.ring, 1, &soon), ETIMEDOUT);
    CHECK(status_of(pair.ring).time_spun > 0);
    end(pair);
}

struct seen {
    struct pair pair;
    uint64_t count;
    size_t bytes;
};

static void note(const struct umsg_ring_message *message, void *argument)
{
    struct seen *seen = argument;
    struct umsg_ring_message other;
    CHECK(message->user_data == seen->count && message->pid == (uint32_t)getpid());
    seen->count++;
    seen->bytes += message->len;
    FAILS(umsg_ring_try_receive(seen->pair.ring, &other), EBUSY);
    FAILS(umsg_ring_free(seen->pair.ring), EBUSY);
    CHECK(strstr(umsg_last_error(), "has not returned yet") != NULL);
}

static void a_function_is_called_with_each_message_that_is_there(void)
{
    struct seen seen = {{NULL, NULL}, 0, 0};
    struct umsg_ring_post post;
    uint64_t i;
    seen.pair = make_pair(100, 0, NULL);
    for (i = 0; i < 100; i++) {
        post = umsg_ring_post_of(i, "text", i % 5);
        CHECK(umsg_ring_send(seen.pair.sender, &post) == 0);
    }
    CHECK(umsg_ring_drain(seen.pair.ring, note, &seen) == 100);
    CHECK(seen.count == 100 && seen.bytes == 200);
    CHECK(umsg_ring_drain(seen.pair.ring, note, &seen) == 0);
    FAILS(umsg_ring_drain(seen.pair.ring, NULL, NULL), EFAULT);
    end(seen.pair);
}

static int is_readable(int fd)
{
    struct pollfd one;
    one.fd = fd;
    one.events = POLLIN;
    return poll(&one, 1, 0);
}

static void the_descriptor_is_readable_while_there_are_messages(void)
{
    struct pair pair = make_pair(8, 0, NULL);
    struct umsg_ring_message message;
    int fd;
    put(pair.sender, 1);
    fd = umsg_ring_descriptor(pair.ring);
    CHECK(fd >= 0 && is_readable(fd) == 1);
    get(pair.ring, 1);
    FAILS(umsg_ring_try_receive(pair.ring, &message), EAGAIN);
    CHECK(is_readable(fd) == 0);
    put(pair.sender, 2);
    CHECK(is_readable(fd) == 1 && umsg_ring_descriptor(pair.ring) == fd);
    CHECK(umsg_ring_receive_batch(pair.ring, &message, 1) == 1);
    CHECK(umsg_ring_receive_batch(pair.ring, &message, 1) == 0);
    CHECK(is_readable(fd) == 0);
    end(pair);
}

static int is_wanted(uint32_t pid, uint32_t index, void *argument)
{
    struct umsg_ring_tag *tag = argument;
    return pid == tag->pid && index == tag->index;
}

static void messages_of_senders_that_are_not_wanted_are_dropped_and_counted(void)
{
    struct pair pair = make_pair(8, 0, NULL);
    struct umsg_ring_sender *other = umsg_ring_sender_clone(pair.sender);
    struct umsg_ring_message message;
    struct umsg_ring_tag tag, others;
    CHECK(other != NULL);
    CHECK(umsg_ring_tag(pair.sender, &tag) == 0 && umsg_ring_tag(other, &others) == 0);
    CHECK(tag.index != others.index);
    CHECK(umsg_ring_accept_only(pair.ring, is_wanted, &tag) == 0);
    put(other, 1);
    put(pair.sender, 2);
    put(other, 3);
    get(pair.ring, 2);
    CHECK(umsg_ring_receive_batch(pair.ring, &message, 1) == 0);
    CHECK(umsg_ring_refused(pair.ring) == 2);
    CHECK(umsg_ring_accept_only(pair.ring, NULL, NULL) == 0);
    put(other, 4);
    get(pair.ring, 4);
    CHECK(umsg_ring_sender_free(other) == 0);
    end(pair);
}

static void another_process_finds_a_ring_by_its_name(void)
{
    struct pair pair = make_pair(8, 0, "/ring");
    struct umsg_ring_options options = umsg_ring_defaults();
    struct umsg_ring_message message;
    struct umsg_ring_sender *sender;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct umsg_ring_post post = umsg_ring_post_of(7, "from afar", 9);
        sender = umsg_ring_open("/ring");
        CHECK(sender != NULL && umsg_ring_send(sender, &post) == 0);
        CHECK(umsg_ring_send_fd(sender, &post, 0, 0, NULL) == 0);
        leave();
    }
    CHECK(umsg_ring_receive(pair.ring, &message) == 0 && message.pid == (uint32_t)child);
    CHECK(message.len == 9 && memcmp(message.payload, "from afar", 9) == 0);
    CHECK(umsg_ring_receive(pair.ring, &message) == 0 && close(message.fd) == 0);
    ends_well(child);
    options.name = "/ring";
    MAKES_NOT(umsg_ring_create(&options), EBUSY);
    FAILS(umsg_ring_unlink("/ring"), EBUSY);
    sender = umsg_ring_open_in(getenv("UMSG_DIR"), "/ring");
    CHECK(sender != NULL && umsg_ring_sender_free(sender) == 0);
    end(pair);
    MAKES_NOT(umsg_ring_open("/ring"), ENOENT);
    CHECK(strncmp(umsg_last_error(), "no ring has this name", 20) == 0);
    options.name = "/";
    MAKES_NOT(umsg_ring_create(&options), EINVAL);
    CHECK(strstr(umsg_last_error(), "a ring's name") != NULL);
    options.name = NULL;
    options.directory = "/nowhere";
    MAKES_NOT(umsg_ring_create(&options), EINVAL);
    options.name = "/ring";
    options.directory = "";
    MAKES_NOT(umsg_ring_create(&options), ENOENT);
    CHECK(strstr(umsg_last_error(), "(mkdir -m 700 )") == NULL);
    MAKES_NOT(umsg_ring_open("ring"), EINVAL);
    MAKES_NOT(umsg_ring_open_in(NULL, "/ring"), EFAULT);
    FAILS(umsg_ring_unlink_in(getenv("UMSG_DIR"), "/ring"), ENOENT);
}

static void senders_learn_of_the_owners_death(void)
{
    struct umsg_ring_sender *sender = NULL;
    struct umsg_ring_status status;
    struct umsg_ring_post post = umsg_ring_post_of(1, NULL, 0);
    int ends[2];
    pid_t child;
    CHECK(pipe(ends) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        make_pair(8, 0, "/doomed");
        CHECK(write(ends[1], "made", 4) == 4);
        for (;;)
            pause();
    }
    reads(ends[0], "made");
    sender = umsg_ring_open("/doomed");
    CHECK(sender != NULL && umsg_ring_send(sender, &post) == 0);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    while (umsg_ring_send(sender, &post) == 0) {
        sleep_for(5);
        umsg_ring_sender_status(sender, &status, sizeof status);
        CHECK(status.messages < 8);
    }
    CHECK(errno == EOWNERDEAD && strstr(umsg_last_error(), "owner died") != NULL);
    CHECK(umsg_ring_sender_status(sender, &status, sizeof status) == 0);
    CHECK(status.owner == (uint32_t)child && status.owner_alive == 0);
    CHECK(umsg_ring_unlink("/doomed") == 0);
    CHECK(umsg_ring_sender_free(sender) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void a_child_sends_by_what_its_parent_made_and_closes_nothing(void)
{
    struct pair pair = make_pair(8, 0, NULL);
    struct umsg_ring_message message;
    struct umsg_ring_tag tag;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        put(pair.sender, 7);
        CHECK(umsg_ring_tag(pair.sender, &tag) == 0 && tag.pid == (uint32_t)getpid());
        FAILS(umsg_ring_receive(pair.ring, &message), EPERM);
        FAILS(umsg_ring_try_receive(pair.ring, &message), EPERM);
        FAILS(umsg_ring_timedreceive(pair.ring, &message, NULL), EPERM);
        FAILS(umsg_ring_receive_batch(pair.ring, &message, 1), EPERM);
        FAILS(umsg_ring_drain(pair.ring, NULL, NULL), EPERM);
        FAILS(umsg_ring_wait(pair.ring, 1, NULL), EPERM);
        FAILS(umsg_ring_descriptor(pair.ring), EPERM);
        FAILS(umsg_ring_take_fd(pair.ring, 0), EPERM);
        FAILS(umsg_ring_enable(pair.ring), EPERM);
        FAILS(umsg_ring_close(pair.ring), EPERM);
        FAILS(umsg_ring_accept_only(pair.ring, NULL, NULL), EPERM);
        FAILS(umsg_ring_refused(pair.ring), EPERM);
        FAILS(umsg_ring_set_waiting(pair.ring, UMSG_WAITING_BLOCKING), EPERM);
        end(pair);
        leave();
    }
    CHECK(umsg_ring_receive(pair.ring, &message) == 0);
    CHECK(message.user_data == 7 && message.pid == (uint32_t)child);
    ends_well(child);
    put(pair.sender, 8);
    get(pair.ring, 8);
    end(pair);
}

#define THREADS 3
#define EACH 500

static void *send_many(void *of)
{
    struct umsg_ring_sender *sender = umsg_ring_sender_clone(of);
    uint64_t i;
    for (i = 0; i < EACH; i++)
        put(sender, i);
    CHECK(umsg_ring_sender_free(sender) == 0);
    return NULL;
}

static void many_senders_lose_nothing_and_keep_their_own_order(void)
{
    struct pair pair = make_pair(8, 8, NULL);
    struct umsg_ring_message message;
    uint64_t next[THREADS + 2] = {0};
    pthread_t threads[THREADS];
    int i;
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, send_many, pair.sender) == 0);
    for (i = 0; i < THREADS * EACH; i++) {
        CHECK(umsg_ring_receive(pair.ring, &message) == 0);
        CHECK(message.index < THREADS + 2 && message.user_data == next[message.index]++);
    }
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    end(pair);
}

static void *wait_for_one(void *ring)
{
    get(ring, 1);
    return NULL;
}

static void one_thread_at_a_time_receives(void)
{
    struct pair pair = make_pair(8, 0, NULL);
    struct umsg_ring_message message;
    pthread_t thread;
    CHECK(umsg_ring_set_waiting(pair.ring, UMSG_WAITING_BLOCKING) == 0);
    CHECK(pthread_create(&thread, NULL, wait_for_one, pair.ring) == 0);
    while (status_of(pair.ring).slept == 0)
        sleep_for(1);
    FAILS(umsg_ring_try_receive(pair.ring, &message), EBUSY);
    FAILS(umsg_ring_close(pair.ring), EBUSY);
    FAILS(umsg_ring_descriptor(pair.ring), EBUSY);
    put(pair.sender, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    FAILS(umsg_ring_try_receive(pair.ring, &message), EAGAIN);
    end(pair);
}

static void what_is_none_is_refused(void)
{
    struct pair pair = make_pair(8, 0, NULL);
    struct umsg_ring_post post = umsg_ring_post_of(1, NULL, 3);
    struct umsg_ring_message message;
    struct umsg_ring_status status;
    FAILS(umsg_ring_free(NULL), EBADF);
    FAILS(umsg_ring_receive(NULL, &message), EBADF);
    FAILS(umsg_ring_wait((struct umsg_ring *)8, 1, NULL), EBADF);
    FAILS(umsg_ring_status(NULL, &status, sizeof status), EBADF);
    FAILS(umsg_ring_sender_free(NULL), EBADF);
    FAILS(umsg_ring_send(NULL, &post), EBADF);
    FAILS(umsg_ring_send_fd(NULL, &post, 0, 0, NULL), EBADF);
    MAKES_NOT(umsg_ring_sender_of(NULL), EBADF);
    MAKES_NOT(umsg_ring_sender_clone(NULL), EBADF);
    FAILS(umsg_ring_send(pair.sender, NULL), EFAULT);
    FAILS(umsg_ring_send(pair.sender, &post), EFAULT);
    FAILS(umsg_ring_try_receive(pair.ring, NULL), EFAULT);
    FAILS(umsg_ring_receive_batch(pair.ring, NULL, 1), EFAULT);
    CHECK(umsg_ring_receive_batch(pair.ring, NULL, 0) == 0);
    FAILS(umsg_ring_status(pair.ring, NULL, sizeof status), EFAULT);
    FAILS(umsg_ring_timedsend(pair.sender, NULL, &wrong), EINVAL);
    FAILS(umsg_ring_timedreceive(NULL, NULL, &wrong), EINVAL);
    FAILS(umsg_ring_wait(NULL, 1, (struct timespec *)8), EFAULT);
    FAILS(umsg_ring_unlink(NULL), EFAULT);
    end(pair);
}

static void options_that_are_none_are_refused(void)
{
    struct {
        struct umsg_ring_options known;
        long unknown;
    } later;
    struct umsg_ring_options options = umsg_ring_defaults();
    struct umsg_ring *ring;
    options.size = 8;
    MAKES_NOT(umsg_ring_create(&options), EINVAL);
    options = umsg_ring_defaults();
    options.flags = 2;
    MAKES_NOT(umsg_ring_create(&options), EINVAL);
    options = umsg_ring_defaults();
    options.waiting = 7;
    MAKES_NOT(umsg_ring_create(&options), EINVAL);
    options = umsg_ring_defaults();
    options.entries = 2000000;
    MAKES_NOT(umsg_ring_create(&options), EINVAL);
    CHECK(strstr(umsg_last_error(), "1048576") != NULL);
    options = umsg_ring_defaults();
    options.name = "no-slash";
    MAKES_NOT(umsg_ring_create(&options), EINVAL);
    MAKES_NOT(umsg_ring_create((struct umsg_ring_options *)8), EFAULT);
    memset(&later, 0, sizeof later);
    later.known.size = sizeof later;
    ring = umsg_ring_create(&later.known);
    CHECK(ring != NULL && umsg_ring_free(ring) == 0);
    later.unknown = 1;
    MAKES_NOT(umsg_ring_create(&later.known), E2BIG);
}

static void a_status_is_told_as_far_as_both_sides_know_it(void)
{
    struct pair pair = make_pair(8, 4, NULL);
    struct {
        struct umsg_ring_status known;
        long unknown;
    } later;
    memset(&later, 0xff, sizeof later);
    CHECK(umsg_ring_status(pair.ring, &later.known, 8) == 0);
    CHECK(later.known.messages == 0 && later.known.overflowing == UINT64_MAX);
    CHECK(umsg_ring_status(pair.ring, &later.known, sizeof later) == 0);
    CHECK(later.known.entries == 8 && later.known.overflow == 4 && later.unknown == 0);
    CHECK(later.known.owner == (uint32_t)getpid() && later.known.owner_alive == 1);
    CHECK(later.known.longest == 64 && later.known.memory > 0 && later.known.created > 0);
    end(pair);
}

static const struct test_case cases[] = {
    CASE(a_message_comes_as_it_was_sent),
    CASE(what_overflows_keeps_its_order_and_what_has_no_room_is_refused_or_counted),
    CASE(a_batch_is_sent_whole_and_received_in_parts),
    CASE(a_long_payload_goes_through_a_ring_that_was_made_for_it),
    CASE(a_descriptor_goes_with_its_message),
    CASE(a_descriptor_can_come_without_a_message),
    CASE(a_sender_learns_from_its_own_ring_what_became_of_a_message),
    CASE(a_disabled_ring_refuses_until_it_is_enabled_and_a_closed_one_for_good),
    CASE(a_receiver_is_woken_once_by_the_last_message_that_it_waits_for),
    CASE(a_function_is_called_with_each_message_that_is_there),
    CASE(the_descriptor_is_readable_while_there_are_messages),
    CASE(messages_of_senders_that_are_not_wanted_are_dropped_and_counted),
    CASE(another_process_finds_a_ring_by_its_name),
    CASE(senders_learn_of_the_owners_death),
    CASE(a_child_sends_by_what_its_parent_made_and_closes_nothing),
    CASE(many_senders_lose_nothing_and_keep_their_own_order),
    CASE(one_thread_at_a_time_receives),
    CASE(what_is_none_is_refused),
    CASE(options_that_are_none_are_refused),
    CASE(a_status_is_told_as_far_as_both_sides_know_it),
};

MAIN(cases)
