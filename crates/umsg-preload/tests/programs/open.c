/* mq_open and mq_unlink. */
#include "check.h"

static char long_name[5000];

static const char *of_length(int length) {
    memset(long_name, 'a', sizeof long_name);
    long_name[0] = '/';
    long_name[length] = 0;
    return long_name;
}

/* glibc refuses a name without a slash; musl passes it to the kernel as it is. */
#ifdef __GLIBC__
#define WITHOUT_SLASH(glibc, musl) (glibc)
#else
#define WITHOUT_SLASH(glibc, musl) (musl)
#endif

CASE(bad_names_are_refused_as_by_the_kernel) {
    struct {
        const char *name;
        int error;
    } names[] = {{"umsg-preload-no-such-queue", WITHOUT_SLASH(EINVAL, ENOENT)},
                 {"", WITHOUT_SLASH(EINVAL, ENOENT)},
                 {"a/b", WITHOUT_SLASH(EINVAL, EACCES)},
                 {"..", WITHOUT_SLASH(EINVAL, EACCES)},
                 {"/", ENOENT},
                 {"//", EACCES},
                 {"/a/", EACCES},
                 {"/a/b", EACCES},
                 {"/.", EACCES},
                 {"/..", EACCES},
                 {"/umsg-preload-no-such-queue", ENOENT}};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        EXPECT_ERRNO(mq_open(names[i].name, O_RDWR), names[i].error);
        EXPECT_ERRNO(mq_unlink(names[i].name), names[i].error);
    }
    EXPECT_ERRNO(mq_open(of_length(257), O_RDWR | O_CREAT, 0600, NULL), ENAMETOOLONG);
    EXPECT_ERRNO(mq_unlink(of_length(257)), ENAMETOOLONG);
    EXPECT_ERRNO(mq_open(of_length(4097), O_RDWR), ENAMETOOLONG);
    int without = WITHOUT_SLASH(EINVAL, ENAMETOOLONG);
    EXPECT_ERRNO(mq_open(of_length(257) + 1, O_RDWR | O_CREAT, 0600, NULL), without);
    EXPECT_ERRNO(mq_unlink(of_length(257) + 1), without);
    EXPECT_ERRNO(mq_open(of_length(4098) + 1, O_RDWR), without);
}

CASE(a_name_without_its_slash_is_refused_by_glibc_and_the_same_queue_for_musl) {
    const char *whole = name(), *bare = whole + 1;
#ifdef __GLIBC__
    EXPECT_ERRNO(mq_open(bare, O_RDWR | O_CREAT, 0600, NULL), EINVAL);
    EXPECT(mq_close(create(O_RDWR, 4)) == 0);
    EXPECT_ERRNO(mq_open(bare, O_RDWR), EINVAL);
    EXPECT_ERRNO(mq_unlink(bare), EINVAL);
#else
    for (int round = 0; round < 6; round++) {
        const char *one = round % 2 ? whole : bare, *other = round % 2 ? bare : whole;
        mqd_t queue = mq_open(one, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
        EXPECT(queue >= 0 && mq_send(queue, "x", 1, 0) == 0);
        EXPECT_ERRNO(mq_open(other, O_RDWR | O_CREAT | O_EXCL, 0600, NULL), EEXIST);
        mqd_t again = mq_open(other, O_RDWR);
        EXPECT(again >= 0 && count(again) == 1 && mq_close(queue) == 0 && mq_close(again) == 0);
        again = mq_open(one, O_RDWR);
        EXPECT(again >= 0 && count(again) == 1 && mq_close(again) == 0);
        /* In three rounds the queue is closed, in three rounds it is open: the library removes closed and open queues in different ways. */
        queue = round < 3 ? -1 : mq_open(whole, O_RDWR);
        EXPECT(mq_unlink(other) == 0);
        EXPECT_ERRNO(mq_open(whole, O_RDWR), ENOENT);
        EXPECT_ERRNO(mq_open(bare, O_RDWR), ENOENT);
        EXPECT_ERRNO(mq_unlink(one), ENOENT);
        EXPECT(queue < 0 || mq_close(queue) == 0);
    }
    char longest[256];
    memset(longest, 'b', 255);
    longest[255] = 0;
    mqd_t queue = mq_open(longest, O_RDWR | O_CREAT, 0600, NULL);
    int unlinked = mq_unlink(longest);
    EXPECT(queue >= 0 && unlinked == 0);
#endif
}

CASE(a_name_of_255_bytes_is_fine) {
    mqd_t queue = mq_open(of_length(256), O_RDWR | O_CREAT, 0600, NULL);
    int unlinked = mq_unlink(of_length(256));
    EXPECT(queue >= 0 && unlinked == 0);
}

/* Access mode 3. In musl, O_ACCMODE contains O_PATH, too. */
#define NO_ACCESS (O_WRONLY | O_RDWR)

CASE(opening_tells_missing_existing_and_wrong_access_apart) {
    EXPECT_ERRNO(mq_open(name(), O_RDWR), ENOENT);
    EXPECT_ERRNO(mq_open(name(), NO_ACCESS), ENOENT);
    create(O_RDWR, 4);
    EXPECT_ERRNO(mq_open(name(), O_RDWR | O_CREAT | O_EXCL, 0600, NULL), EEXIST);
    EXPECT_ERRNO(mq_open(name(), NO_ACCESS), EINVAL);
    EXPECT_ERRNO(mq_open(name(), NO_ACCESS | O_CREAT, 0600, NULL), EINVAL);
    EXPECT_ERRNO(mq_open(name(), NO_ACCESS | O_CREAT | O_EXCL, 0600, NULL), EEXIST);
}

CASE(access_mode_3_creates_a_queue_that_can_only_be_closed) {
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    mqd_t queue = mq_open(name(), NO_ACCESS | O_CREAT, 0600, &attributes);
    EXPECT(queue >= 0);
    EXPECT(fcntl(queue, F_GETFL) == NO_ACCESS);
    char buffer[16];
    EXPECT_ERRNO(mq_send(queue, "x", 1, 0), EBADF);
    EXPECT_ERRNO(mq_receive(queue, buffer, 16, NULL), EBADF);
    EXPECT(count(queue) == 0);
    EXPECT(mq_close(queue) == 0);
}

CASE(attributes_count_only_when_a_queue_is_created) {
    struct mq_attr none = {.mq_maxmsg = 0, .mq_msgsize = 16};
    EXPECT_ERRNO(mq_open(name(), O_RDWR | O_CREAT, 0600, &none), EINVAL);
    struct mq_attr negative = {.mq_maxmsg = 4, .mq_msgsize = -1};
    EXPECT_ERRNO(mq_open(name(), O_RDWR | O_CREAT, 0600, &negative), EINVAL);
    struct mq_attr huge = {.mq_maxmsg = 1L << 40, .mq_msgsize = 16};
    EXPECT_ERRNO(mq_open(name(), O_RDWR | O_CREAT, 0600, &huge), EINVAL);
    create(O_RDWR, 4);
    EXPECT(mq_open(name(), O_RDWR | O_CREAT, 0600, &none) >= 0);
    EXPECT(mq_open(name(), O_RDWR, 0600, &none) >= 0);
}

CASE(without_attributes_a_queue_takes_10_messages_of_8192_bytes) {
    mqd_t queue = mq_open(name(), O_RDWR | O_CREAT, 0600, NULL);
    struct mq_attr attributes;
    EXPECT(mq_getattr(queue, &attributes) == 0);
    EXPECT(attributes.mq_maxmsg == 10 && attributes.mq_msgsize == 8192);
    EXPECT(attributes.mq_flags == 0 && attributes.mq_curmsgs == 0);
}

CASE(mq_flags_given_at_creation_are_ignored) {
    struct mq_attr attributes = {.mq_flags = O_NONBLOCK, .mq_maxmsg = 4, .mq_msgsize = 16};
    mqd_t queue = mq_open(name(), O_RDWR | O_CREAT, 0600, &attributes);
    EXPECT(queue >= 0);
    EXPECT(fcntl(queue, F_GETFL) == O_RDWR);
}

CASE(a_bad_address_of_attributes_is_efault_before_the_name_is_judged) {
    EXPECT_ERRNO(mq_open(name(), O_RDWR | O_CREAT, 0600, (void *)8), EFAULT);
    EXPECT_ERRNO(mq_open("/", O_RDWR | O_CREAT, 0600, (void *)8), EFAULT);
    EXPECT_ERRNO(mq_open("x", O_RDWR | O_CREAT, 0600, (void *)8), WITHOUT_SLASH(EINVAL, EFAULT));
    EXPECT_ERRNO(mq_open(name(), O_RDWR, 0600, (void *)8), ENOENT);
}

CASE(an_unlinked_queue_lives_until_its_last_close_and_its_name_is_free) {
    mqd_t old = create(O_RDWR | O_NONBLOCK, 4);
    EXPECT(mq_send(old, "old", 3, 0) == 0);
    EXPECT(mq_unlink(name()) == 0);
    EXPECT_ERRNO(mq_unlink(name()), ENOENT);
    mqd_t fresh = create(O_RDWR | O_NONBLOCK, 4);
    char buffer[16];
    EXPECT_ERRNO(mq_receive(fresh, buffer, 16, NULL), EAGAIN);
    EXPECT(mq_receive(old, buffer, 16, NULL) == 3 && !memcmp(buffer, "old", 3));
}

CASE(messages_persist_with_no_opener) {
    mqd_t queue = create(O_WRONLY, 4);
    EXPECT(mq_send(queue, "kept", 4, 7) == 0);
    EXPECT(mq_close(queue) == 0);
    queue = mq_open(name(), O_RDONLY);
    char buffer[16];
    unsigned priority;
    EXPECT(mq_receive(queue, buffer, 16, &priority) == 4 && priority == 7);
}

CASE(the_mode_is_masked_by_the_umask) {
    umask(022);
    mqd_t queue = mq_open(name(), O_RDWR | O_CREAT, 07777, NULL);
    struct stat status;
    EXPECT(fstat(queue, &status) == 0);
    EXPECT(status.st_mode == (S_IFREG | 07755));
}

CASE(a_program_that_changed_its_user_finds_the_same_queues) {
    if (geteuid() != 0) return;
    name();
    pid_t child = fork();
    if (child == 0) {
        umask(0);
        mqd_t queue = mq_open(name(), O_RDWR | O_CREAT, 0666, NULL);
        _exit(queue < 0 || mq_send(queue, "root", 4, 0) != 0);
    }
    expect_success(child);
    EXPECT(setegid(65534) == 0 && seteuid(65534) == 0);
    mqd_t queue = mq_open(name(), O_RDWR);
    EXPECT(queue >= 0 && count(queue) == 1);
    EXPECT_ERRNO(mq_unlink(name()), EACCES);
    EXPECT(seteuid(0) == 0);
}

/* Runs `work` in a child, which must end with status 0. */
static void in_child(void (*work)(void)) {
    pid_t child = fork();
    if (child == 0) {
        work();
        _exit(0);
    }
    expect_success(child);
}

static void replace_queue(void) {
    struct mq_attr attributes = {.mq_maxmsg = 7, .mq_msgsize = 16};
    EXPECT(mq_unlink(name()) == 0);
    mqd_t queue = mq_open(name(), O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    EXPECT(queue >= 0 && mq_send(queue, "new", 3, 0) == 0);
}

static void unlink_it(void) { EXPECT(mq_unlink(name()) == 0); }

CASE(a_queue_that_is_opened_again_is_the_one_that_has_the_name) {
    mqd_t first = create(O_RDWR, 4);
    EXPECT(mq_send(first, "old", 3, 0) == 0 && mq_close(first) == 0);
    for (int round = 0; round < 3; round++) {
        mqd_t again = mq_open(name(), O_RDWR);
        EXPECT(again == first && count(again) == 1);
        EXPECT(mq_close(again) == 0);
    }
    in_child(replace_queue);
    mqd_t other = mq_open(name(), O_RDWR | O_CREAT, 0600, NULL);
    struct mq_attr attributes;
    EXPECT(mq_getattr(other, &attributes) == 0 && attributes.mq_maxmsg == 7 && attributes.mq_curmsgs == 1);
    EXPECT(mq_close(other) == 0);
    in_child(unlink_it);
    EXPECT_ERRNO(mq_open(name(), O_RDWR), ENOENT);
}

static void make_it(void) { EXPECT(mq_open(name(), O_RDWR | O_CREAT | O_EXCL, 0600, NULL) >= 0); }

/* Looks for a missing name so often, and for so long, that the library may answer from its memory of missing names. */
static void miss_it_for_a_while(void) {
    for (int round = 0; round < 40; round++) {
        EXPECT_ERRNO(mq_open(name(), O_RDWR), ENOENT);
        usleep(2000);
    }
}

CASE(a_queue_for_which_a_program_waits_is_found_as_soon_as_it_is_there) {
    for (int round = 0; round < 3; round++) {
        miss_it_for_a_while();
        EXPECT_ERRNO(mq_open("/umsg-preload-no-such-queue", O_RDWR), ENOENT);
        EXPECT_ERRNO(mq_open(name(), O_RDWR), ENOENT);
        miss_it_for_a_while();
        in_child(make_it);
        mqd_t queue = mq_open(name(), O_RDWR);
        EXPECT(queue >= 0 && mq_close(queue) == 0);
        in_child(unlink_it);
        EXPECT_ERRNO(mq_open(name(), O_RDWR), ENOENT);
    }
    miss_it_for_a_while();
    make_it();
    mqd_t queue = mq_open(name(), O_RDWR);
    EXPECT(queue >= 0 && mq_close(queue) == 0);
}

CASE(a_queue_that_is_opened_again_has_the_access_and_the_flags_of_this_opening) {
    EXPECT(mq_close(create(O_RDWR, 4)) == 0);
    char buffer[16];
    for (int round = 0; round < 2; round++) {
        mqd_t both = mq_open(name(), O_RDWR | O_NONBLOCK), reader = mq_open(name(), O_RDONLY);
        mqd_t writer = mq_open(name(), O_WRONLY | O_NONBLOCK), waits = mq_open(name(), O_RDWR);
        EXPECT(both >= 0 && reader >= 0 && writer >= 0 && waits >= 0);
        EXPECT_ERRNO(mq_receive(both, buffer, 16, NULL), EAGAIN);
        EXPECT_ERRNO(mq_send(reader, "x", 1, 0), EBADF);
        EXPECT(mq_send(writer, "x", 1, 0) == 0 && mq_receive(reader, buffer, 16, NULL) == 1);
        EXPECT_ERRNO(mq_receive(writer, buffer, 16, NULL), EBADF);
        struct timespec soon = in_ms(20);
        EXPECT_ERRNO(mq_timedreceive(waits, buffer, 16, NULL, &soon), ETIMEDOUT);
        EXPECT(fcntl(both, F_GETFL) == (O_RDWR | O_NONBLOCK) && fcntl(waits, F_GETFL) == O_RDWR);
        EXPECT(fcntl(both, F_GETFD) == FD_CLOEXEC && fcntl(waits, F_GETFD) == FD_CLOEXEC);
        EXPECT(!mq_close(both) && !mq_close(reader) && !mq_close(writer) && !mq_close(waits));
    }
}

CASE(a_queue_that_is_opened_again_asks_for_the_permissions_of_then) {
    if (geteuid() != 0) return;
    EXPECT(mq_close(create(O_RDWR, 4)) == 0);
    EXPECT(mq_close(mq_open(name(), O_RDONLY)) == 0);
    EXPECT(setegid(65534) == 0 && seteuid(65534) == 0);
    EXPECT_ERRNO(mq_open(name(), O_RDWR), EACCES);
    EXPECT_ERRNO(mq_open(name(), O_RDONLY), EACCES);
    EXPECT(seteuid(0) == 0 && setegid(0) == 0);
    mqd_t queue = mq_open(name(), O_RDWR);
    EXPECT(queue >= 0 && fchmod(queue, 0604) == 0 && mq_close(queue) == 0);
    EXPECT(setegid(65534) == 0 && seteuid(65534) == 0);
    EXPECT_ERRNO(mq_open(name(), O_RDWR), EACCES);
    EXPECT_ERRNO(mq_open(name(), O_WRONLY), EACCES);
    EXPECT(mq_open(name(), O_RDONLY) >= 0);
    EXPECT(seteuid(0) == 0);
}

CASE(flags_without_a_meaning_are_kept) {
    mq_close(create(O_RDWR, 4));
    const unsigned forgotten = O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC;
    const unsigned changed = O_APPEND | O_NONBLOCK | O_NOATIME;
    for (int bit = 2; bit < 32; bit++) {
        unsigned flag = 1U << bit, large = 0x8000;
        if (flag == O_DIRECT || flag == O_PATH || flag == O_EXCL) continue;
        mqd_t queue = mq_open(name(), (int)(O_RDWR | flag), 0600, NULL);
        EXPECT(queue >= 0);
        unsigned kept = flag & ~forgotten;
        EXPECT((unsigned)fcntl(queue, F_GETFL) == (O_RDWR | kept));
        int copy = dup(queue);
        EXPECT(copy >= 0 && (unsigned)fcntl(copy, F_GETFL) == (O_RDWR | kept) && close(copy) == 0);
        EXPECT(fcntl(queue, F_SETFL, O_NONBLOCK) == 0);
        EXPECT((unsigned)fcntl(queue, F_GETFL) == (O_RDWR | O_NONBLOCK | (kept & ~changed)));
        EXPECT(fcntl(queue, F_SETFL, O_SYNC | large) == 0);
        EXPECT((unsigned)fcntl(queue, F_GETFL) == (O_RDWR | (kept & ~changed)));
        EXPECT(mq_send(queue, "x", 1, 0) == 0);
        char text[16];
        EXPECT(mq_receive(queue, text, 16, NULL) == 1 && mq_close(queue) == 0);
        queue = mq_open(name(), O_RDWR);
        EXPECT(fcntl(queue, F_GETFL) == O_RDWR && mq_close(queue) == 0);
    }
    mqd_t queue = mq_open(name(), O_RDONLY | O_SYNC | O_NOFOLLOW | O_NONBLOCK);
    EXPECT(fcntl(queue, F_GETFL) == (O_RDONLY | O_SYNC | O_NOFOLLOW | O_NONBLOCK));
    EXPECT(mq_setattr(queue, &(struct mq_attr){0}, NULL) == 0);
    pid_t child = fork();
    if (child == 0) _exit(fcntl(queue, F_GETFL) != (O_RDONLY | O_SYNC | O_NOFOLLOW));
    expect_success(child);
}

CASE(o_direct_is_refused_once_the_queue_exists) {
    EXPECT_ERRNO(mq_open(name(), O_RDWR | O_DIRECT), ENOENT);
    EXPECT_ERRNO(mq_open(name(), O_RDWR | O_CREAT | O_EXCL | O_DIRECT, 0600, NULL), EINVAL);
    EXPECT_ERRNO(mq_open(name(), O_RDWR | O_CREAT | O_EXCL | O_DIRECT, 0600, NULL), EEXIST);
    mqd_t queue = mq_open(name(), O_RDWR);
    EXPECT(queue >= 0 && fcntl(queue, F_SETFL, O_APPEND) == 0);
    EXPECT_ERRNO(fcntl(queue, F_SETFL, O_DIRECT | O_NONBLOCK), EINVAL);
    EXPECT(fcntl(queue, F_GETFL) == (O_RDWR | O_APPEND));
    int next = dup(0);
    close(next);
    EXPECT_ERRNO(mq_open(name(), O_RDWR | O_DIRECT), EINVAL);
    EXPECT(dup(0) == next);
}

CASE(o_path_opens_no_queue) {
    EXPECT_ERRNO(mq_open(name(), O_RDWR | O_PATH), ENOENT);
    mq_close(create(O_RDWR, 4));
    int lowest = dup(0);
    close(lowest);
    int place = mq_open(name(), O_RDWR | O_PATH);
    EXPECT(place == lowest && (fcntl(place, F_GETFL) & O_PATH) && fcntl(place, F_GETFD) == FD_CLOEXEC);
    EXPECT_ERRNO(mq_send(place, "x", 1, 0), EBADF);
    EXPECT_ERRNO(mq_getattr(place, &(struct mq_attr){0}), EBADF);
    EXPECT_ERRNO(fcntl(place, F_SETFL, 0), EBADF);
    char text[16];
    EXPECT_ERRNO(read(place, text, 16), EBADF);
    EXPECT(close(place) == 0);
}
