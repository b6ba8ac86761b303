/* Opening, closing and unlinking queues, and invalid handles. */
#define _DEFAULT_SOURCE
#include "check.h"

#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

static void a_queue_is_created_once_and_opened_again(void)
{
    umsg_mqd_t first = make("/open", 3, 16, 0);
    umsg_mqd_t second = umsg_mq_open("/open", O_RDWR);
    struct umsg_mq_attr attr;
    CHECK(second != NONE && second != first);
    CHECK(umsg_mq_getattr(second, &attr) == 0);
    CHECK(attr.mq_maxmsg == 3 && attr.mq_msgsize == 16 && attr.mq_curmsgs == 0 && attr.mq_flags == 0);
    OPENS_NOT(umsg_mq_open("/open", O_RDWR | O_CREAT | O_EXCL, 0600, NULL), EEXIST);
    CHECK(umsg_mq_close(second) == 0);
    done(first, "/open");
    OPENS_NOT(umsg_mq_open("/open", O_RDWR), ENOENT);
    FAILS(umsg_mq_unlink("/open"), ENOENT);
}

static void without_attributes_a_queue_has_the_namespaces(void)
{
    umsg_mqd_t queue = umsg_mq_open("/default", O_CREAT | O_RDWR, 0600, NULL);
    struct umsg_mq_attr attr;
    CHECK(queue != NONE);
    CHECK(umsg_mq_getattr(queue, &attr) == 0);
    CHECK(attr.mq_maxmsg == 10 && attr.mq_msgsize == 8192);
    done(queue, "/default");
}

static void names_and_attributes_are_judged(void)
{
    struct umsg_mq_attr attr;
    char name[300];
    OPENS_NOT(umsg_mq_open("no-slash", O_RDWR), EINVAL);
    OPENS_NOT(umsg_mq_open("/a/b", O_RDWR), EACCES);
    OPENS_NOT(umsg_mq_open("/", O_RDWR), ENOENT);
    memset(name, 'x', sizeof name);
    name[0] = '/';
    name[257] = 0;
    OPENS_NOT(umsg_mq_open(name, O_RDWR), ENAMETOOLONG);
    FAILS(umsg_mq_unlink(name), ENAMETOOLONG);
    FAILS(umsg_mq_unlink("no-slash"), EINVAL);
    memset(&attr, 0, sizeof attr);
    OPENS_NOT(umsg_mq_open("/judged", O_CREAT | O_RDWR, 0600, &attr), EINVAL);
    attr.mq_maxmsg = -1;
    attr.mq_msgsize = 16;
    OPENS_NOT(umsg_mq_open("/judged", O_CREAT | O_RDWR, 0600, &attr), EINVAL);
}

static void bad_addresses_are_efault(void)
{
    OPENS_NOT(umsg_mq_open(NULL, O_RDWR), EFAULT);
    OPENS_NOT(umsg_mq_open("/bad", O_CREAT | O_RDWR, 0600, (struct umsg_mq_attr *)8), EFAULT);
    OPENS_NOT(umsg_mq_open_with("/bad", O_RDWR, 0, (struct umsg_mq_options *)8), EFAULT);
    FAILS(umsg_mq_unlink(NULL), EFAULT);
    FAILS(umsg_mq_unlink_in(NULL, "/bad"), EFAULT);
}

static void what_is_no_handle_is_ebadf(void)
{
    umsg_mqd_t queue = make("/handle", 1, 16, 0);
    umsg_mqd_t wrong[9];
    struct umsg_mq_attr attr;
    size_t i;
    char byte;
    wrong[0] = NONE;
    wrong[1] = NULL;
    wrong[2] = (umsg_mqd_t)8;
    wrong[3] = (umsg_mqd_t)&byte;
    wrong[4] = (umsg_mqd_t)((uintptr_t)queue + 1);
    wrong[5] = (umsg_mqd_t)((uintptr_t)queue ^ (uintptr_t)1 << 40);
    wrong[6] = (umsg_mqd_t)((uintptr_t)queue + 64 * 16);
    /* wrong[7] is the handle of a slot that was never used. wrong[8] is the queue's handle with an earlier generation count. */
    wrong[7] = (umsg_mqd_t)(uintptr_t)(63 * 16 + 8);
    wrong[8] = (umsg_mqd_t)((uintptr_t)queue - ((uintptr_t)1 << 32));
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        FAILS(umsg_mq_send(wrong[i], "x", 1, 0), EBADF);
        FAILS(umsg_mq_getattr(wrong[i], &attr), EBADF);
        FAILS(umsg_mq_close(wrong[i]), EBADF);
    }
    CHECK(umsg_mq_send(queue, "x", 1, 0) == 0);
    done(queue, "/handle");
}

static void a_closed_handle_is_no_other_queues(void)
{
    umsg_mqd_t old = make("/closed", 1, 16, 0);
    umsg_mqd_t others[200];
    size_t i;
    char buffer[16];
    done(old, "/closed");
    FAILS(umsg_mq_close(old), EBADF);
    for (i = 0; i < 200; i++)
        others[i] = i == 0 ? make("/closed", 1, 16, 0) : umsg_mq_open("/closed", O_RDWR);
    FAILS(umsg_mq_send(old, "x", 1, 0), EBADF);
    FAILS(umsg_mq_receive(old, buffer, sizeof buffer, NULL), EBADF);
    for (i = 1; i < 200; i++)
        CHECK(umsg_mq_close(others[i]) == 0);
    done(others[0], "/closed");
}

static void options_say_more_than_posix_knows(void)
{
    struct umsg_mq_options options;
    struct umsg_mq_attr attr;
    umsg_mqd_t queue;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.directory = getenv("UMSG_DIR");
    options.max_messages = 7;
    options.message_size = 33;
    options.waiting = UMSG_WAITING_BLOCKING;
    queue = umsg_mq_open_with("/options", O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &options);
    CHECK(queue != NONE);
    CHECK(umsg_mq_getattr(queue, &attr) == 0);
    CHECK(attr.mq_maxmsg == 7 && attr.mq_msgsize == 33 && attr.mq_flags == O_NONBLOCK);
    CHECK(umsg_mq_close(queue) == 0);
    CHECK(umsg_mq_unlink_in(options.directory, "/options") == 0);
    queue = umsg_mq_open_with("/options", O_CREAT | O_RDWR, 0600, NULL);
    CHECK(queue != NONE);
    done(queue, "/options");
}

static void what_a_directory_or_a_dead_letter_queue_may_not_be_is_told(void)
{
    struct umsg_mq_options options;
    umsg_mqd_t small;
    char directory[4096], file[4200];
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    snprintf(directory, sizeof directory, "%s/no-namespace", getenv("UMSG_DIR"));
    snprintf(file, sizeof file, "%s/a-file", directory);
    CHECK(mkdir(directory, 0700) == 0 && mkdir(file, 0700) == 0);
    options.directory = directory;
    OPENS_NOT(umsg_mq_open_with("/q", O_CREAT | O_RDWR, 0600, &options), ENOTEMPTY);
    OPENS_NOT(umsg_mq_open_with("/q", O_RDWR, 0, &options), ENOTEMPTY);
    FAILS(umsg_mq_unlink_in(directory, "/q"), ENOTEMPTY);
    CHECK(rmdir(file) == 0 && rmdir(directory) == 0);
    options.directory = NULL;
    options.message_size = 17;
    options.dead_letter = "/q";
    OPENS_NOT(umsg_mq_open_with("/q", O_CREAT | O_RDWR, 0600, &options), EINVAL);
    small = make("/small", 1, 16, 0);
    options.dead_letter = "/small";
    OPENS_NOT(umsg_mq_open_with("/q", O_CREAT | O_RDWR, 0600, &options), EINVAL);
    done(small, "/small");
}

static void options_of_another_version_are_understood_or_refused(void)
{
    struct {
        struct umsg_mq_options known;
        char unknown[64];
    } later;
    umsg_mqd_t queue;
    memset(&later, 0, sizeof later);
    later.known.size = sizeof later;
    queue = umsg_mq_open_with("/later", O_CREAT | O_RDWR, 0600, &later.known);
    CHECK(queue != NONE);
    done(queue, "/later");
    later.unknown[40] = 1;
    OPENS_NOT(umsg_mq_open_with("/later", O_CREAT | O_RDWR, 0600, &later.known), E2BIG);
    later.known.size = 0;
    OPENS_NOT(umsg_mq_open_with("/later", O_CREAT | O_RDWR, 0600, &later.known), EINVAL);
    later.known.size = (size_t)-1;
    OPENS_NOT(umsg_mq_open_with("/later", O_CREAT | O_RDWR, 0600, &later.known), EINVAL);
    later.known.size = sizeof later.known;
    later.known.waiting = 99;
    OPENS_NOT(umsg_mq_open_with("/later", O_CREAT | O_RDWR, 0600, &later.known), EINVAL);
    later.known.waiting = 0;
    later.known.directory = "/nowhere/at/all";
    OPENS_NOT(umsg_mq_open_with("/later", O_CREAT | O_RDWR, 0600, &later.known), ENOENT);
    FAILS(umsg_mq_unlink_in("/nowhere/at/all", "/later"), ENOENT);
}

/* Returns options for a queue of two messages of 16 bytes. */
static struct umsg_mq_options of_two(void)
{
    struct umsg_mq_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.max_messages = 2;
    options.message_size = 16;
    return options;
}

static umsg_mqd_t make_with(const struct umsg_mq_options *options)
{
    umsg_mqd_t queue = umsg_mq_open_with("/rules", O_CREAT | O_EXCL | O_RDWR, 0600, options);
    CHECK(queue != NONE);
    return queue;
}

static void a_full_queue_does_what_its_creator_wanted(void)
{
    struct umsg_mq_options options;
    struct umsg_mq_status status;
    umsg_mqd_t queue;
    char buffer[16];
    options = of_two();
    options.on_full = UMSG_ON_FULL_FAIL;
    queue = make_with(&options);
    CHECK(umsg_mq_send(queue, "1", 1, 0) == 0 && umsg_mq_send(queue, "2", 1, 0) == 0);
    FAILS(umsg_mq_send(queue, "3", 1, 0), EAGAIN);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.on_full == UMSG_ON_FULL_FAIL && status.dropped == 0);
    done(queue, "/rules");
    options.on_full = UMSG_ON_FULL_DROP_OLDEST;
    queue = make_with(&options);
    CHECK(umsg_mq_send(queue, "1", 1, 0) == 0 && umsg_mq_send(queue, "2", 1, 0) == 0);
    CHECK(umsg_mq_send(queue, "3", 1, 0) == 0);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.on_full == UMSG_ON_FULL_DROP_OLDEST && status.dropped == 1);
    CHECK(umsg_mq_receive(queue, buffer, 16, NULL) == 1 && buffer[0] == '2');
    done(queue, "/rules");
    options.on_full = 3;
    OPENS_NOT(umsg_mq_open_with("/rules", O_CREAT | O_RDWR, 0600, &options), EINVAL);
}

static void an_existing_queue_is_opened_if_it_is_as_wanted(void)
{
    struct umsg_mq_options options;
    umsg_mqd_t queue, other;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.max_messages = 2;
    options.message_size = 16;
    options.on_full = UMSG_ON_FULL_FAIL;
    queue = make_with(&options);
    options.max_messages = 3;
    other = umsg_mq_open_with("/rules", O_CREAT | O_RDWR, 0600, &options);
    CHECK(other != NONE && umsg_mq_close(other) == 0);
    options.existing = UMSG_EXISTING_MATCH;
    OPENS_NOT(umsg_mq_open_with("/rules", O_CREAT | O_RDWR, 0600, &options), EINVAL);
    options.max_messages = 2;
    other = umsg_mq_open_with("/rules", O_CREAT | O_RDWR, 0600, &options);
    CHECK(other != NONE && umsg_mq_close(other) == 0);
    options.on_full = UMSG_ON_FULL_DROP_OLDEST;
    options.existing = UMSG_EXISTING_MATCH_POLICY;
    OPENS_NOT(umsg_mq_open_with("/rules", O_CREAT | O_RDWR, 0600, &options), EINVAL);
    CHECK(strstr(umsg_last_error(), "on_full is Fail, not DropOldest") != NULL);
    options.existing = UMSG_EXISTING_ANY;
    other = umsg_mq_open_with("/rules", O_CREAT | O_RDWR, 0600, &options);
    CHECK(other != NONE && umsg_mq_close(other) == 0);
    options.existing = 3;
    OPENS_NOT(umsg_mq_open_with("/rules", O_CREAT | O_RDWR, 0600, &options), EINVAL);
    done(queue, "/rules");
}

static void a_queue_that_is_to_go_goes_with_the_last_handle(void)
{
    struct umsg_mq_options options;
    struct umsg_mq_status status;
    umsg_mqd_t queue, other;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = UMSG_REMOVE_ON_LAST_CLOSE;
    queue = make_with(&options);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.remove_on_last_close == 1);
    other = umsg_mq_open("/rules", O_RDWR);
    CHECK(other != NONE);
    CHECK(umsg_mq_close(queue) == 0);
    CHECK(umsg_mq_send(other, "kept", 4, 0) == 0);
    queue = umsg_mq_open("/rules", O_RDWR);
    CHECK(queue != NONE);
    CHECK(umsg_mq_close(other) == 0 && umsg_mq_close(queue) == 0);
    OPENS_NOT(umsg_mq_open("/rules", O_RDWR), ENOENT);
    options.flags = 8;
    OPENS_NOT(umsg_mq_open_with("/rules", O_CREAT | O_RDWR, 0600, &options), EINVAL);
    options.flags = 0;
    queue = make_with(&options);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.remove_on_last_close == 0);
    done(queue, "/rules");
}

static void what_can_not_be_delivered_goes_to_the_dead_letter_queue(void)
{
    struct umsg_mq_options options;
    struct umsg_mq_status status;
    struct umsg_mq_lease lease;
    umsg_mqd_t queue, dead;
    char buffer[16];
    options = of_two();
    options.max_deliveries = 1;
    OPENS_NOT(umsg_mq_open_with("/rules", O_CREAT | O_RDWR, 0600, &options), EINVAL);
    options.dead_letter = "no-slash";
    OPENS_NOT(umsg_mq_open_with("/rules", O_CREAT | O_RDWR, 0600, &options), EINVAL);
    options.dead_letter = "/dead";
    options.time_to_live = (uint64_t)3600 * 1000000000;
    queue = make_with(&options);
    CHECK(umsg_mq_send(queue, "hopeless", 8, 5) == 0);
    CHECK(umsg_mq_lease(queue, &lease, NULL) == 0 && umsg_mq_return(&lease) == 0);
    dead = umsg_mq_open("/dead", O_RDONLY | O_NONBLOCK);
    CHECK(dead != NONE);
    CHECK(umsg_mq_receive(dead, buffer, sizeof buffer, NULL) == 8);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.dead_lettered == 1 && status.set_aside == 0 && status.messages == 0);
    CHECK(status.max_deliveries == 1 && strcmp(status.dead_letter, "/dead") == 0);
    CHECK(status.time_to_live == (uint64_t)3600 * 1000000000 && status.expired == 0);
    done(dead, "/dead");
    done(queue, "/rules");
}

static void a_message_that_is_too_old_is_not_delivered(void)
{
    struct umsg_mq_options options;
    struct umsg_mq_status status;
    umsg_mqd_t queue;
    char buffer[16];
    options = of_two();
    options.time_to_live = 1000000;
    queue = umsg_mq_open_with("/old", O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &options);
    CHECK(queue != NONE && umsg_mq_send(queue, "old", 3, 0) == 0);
    CHECK(usleep(100000) == 0);
    FAILS(umsg_mq_receive(queue, buffer, sizeof buffer, NULL), EAGAIN);
    CHECK(umsg_mq_status(queue, &status, sizeof status) == 0 && status.expired == 1);
    done(queue, "/old");
}

static void the_access_mode_is_enforced(void)
{
    umsg_mqd_t queue = make("/access", 2, 16, 0);
    umsg_mqd_t sends = umsg_mq_open("/access", O_WRONLY);
    umsg_mqd_t receives = umsg_mq_open("/access", O_RDONLY);
    char buffer[16];
    CHECK(sends != NONE && receives != NONE);
    CHECK(umsg_mq_send(sends, "x", 1, 0) == 0);
    FAILS(umsg_mq_send(receives, "x", 1, 0), EBADF);
    FAILS(umsg_mq_receive(sends, buffer, sizeof buffer, NULL), EBADF);
    CHECK(umsg_mq_receive(receives, buffer, sizeof buffer, NULL) == 1);
    OPENS_NOT(umsg_mq_open("/access", O_ACCMODE), EINVAL);
    CHECK(umsg_mq_close(sends) == 0 && umsg_mq_close(receives) == 0);
    done(queue, "/access");
}

static void an_unlinked_queue_lives_until_it_is_closed(void)
{
    umsg_mqd_t queue = make("/unlinked", 2, 16, 0);
    char buffer[16];
    CHECK(umsg_mq_unlink("/unlinked") == 0);
    CHECK(umsg_mq_send(queue, "still", 5, 3) == 0);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, NULL) == 5);
    CHECK(umsg_mq_close(queue) == 0);
}

static const struct test_case cases[] = {
    CASE(a_queue_is_created_once_and_opened_again),
    CASE(without_attributes_a_queue_has_the_namespaces),
    CASE(names_and_attributes_are_judged),
    CASE(bad_addresses_are_efault),
    CASE(what_is_no_handle_is_ebadf),
    CASE(a_closed_handle_is_no_other_queues),
    CASE(options_say_more_than_posix_knows),
    CASE(what_a_directory_or_a_dead_letter_queue_may_not_be_is_told),
    CASE(options_of_another_version_are_understood_or_refused),
    CASE(a_full_queue_does_what_its_creator_wanted),
    CASE(an_existing_queue_is_opened_if_it_is_as_wanted),
    CASE(a_queue_that_is_to_go_goes_with_the_last_handle),
    CASE(what_can_not_be_delivered_goes_to_the_dead_letter_queue),
    CASE(a_message_that_is_too_old_is_not_delivered),
    CASE(the_access_mode_is_enforced),
    CASE(an_unlinked_queue_lives_until_it_is_closed),
};

MAIN(cases)
