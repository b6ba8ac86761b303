/* Queues saved in files. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <sys/stat.h>
#include <unistd.h>

/* Returns an open file without a name. */
static int scratch_file(void)
{
    FILE *file = tmpfile();
    int fd;
    CHECK(file != NULL);
    fd = dup(fileno(file));
    CHECK(fd >= 0 && fclose(file) == 0);
    return fd;
}

static void rewind_to(int fd, off_t offset)
{
    CHECK(lseek(fd, offset, SEEK_SET) == offset);
}

/* Saves a queue with two messages in a file, and sets the file's offset to 0. */
static umsg_mqd_t saved(const char *name, int fd)
{
    umsg_mqd_t queue = make(name, 5, 33, O_NONBLOCK);
    CHECK(umsg_mq_send(queue, "low", 3, 1) == 0 && umsg_mq_send(queue, "high", 4, 7) == 0);
    CHECK(umsg_mq_snapshot(queue, fd) == 0);
    rewind_to(fd, 0);
    return queue;
}

static void expect_both_messages(umsg_mqd_t queue)
{
    char buffer[33];
    unsigned priority;
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, &priority) == 4 && priority == 7);
    CHECK(umsg_mq_receive(queue, buffer, sizeof buffer, &priority) == 3 && priority == 1);
    FAILS(umsg_mq_receive(queue, buffer, sizeof buffer, NULL), EAGAIN);
}

static void a_queue_is_made_of_what_was_saved(void)
{
    int fd = scratch_file();
    umsg_mqd_t queue = saved("/saved", fd);
    umsg_mqd_t copy = umsg_mq_restore("/copy", fd, O_RDWR | O_NONBLOCK, NULL);
    struct umsg_mq_status status;
    CHECK(copy != NONE);
    CHECK(umsg_mq_status(copy, &status, sizeof status) == 0);
    CHECK(status.max_messages == 5 && status.message_size == 33 && status.mode == 0600);
    expect_both_messages(copy);
    expect_both_messages(queue);
    done(copy, "/copy");
    done(queue, "/saved");
    CHECK(close(fd) == 0);
}

static void without_a_name_it_has_the_one_that_was_saved(void)
{
    struct umsg_mq_options options;
    int fd = scratch_file();
    umsg_mqd_t queue = saved("/again", fd);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.waiting = UMSG_WAITING_BLOCKING;
    OPENS_NOT(umsg_mq_restore(NULL, fd, O_RDWR, &options), EEXIST);
    done(queue, "/again");
    rewind_to(fd, 0);
    queue = umsg_mq_restore(NULL, fd, O_RDWR | O_NONBLOCK, &options);
    CHECK(queue != NONE);
    expect_both_messages(queue);
    done(queue, "/again");
    CHECK(close(fd) == 0);
}

static void it_goes_by_the_rules_that_were_saved(void)
{
    struct umsg_mq_options options;
    struct umsg_mq_status status;
    umsg_mqd_t queue;
    int fd = scratch_file();
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.max_messages = 1;
    options.on_full = UMSG_ON_FULL_DROP_OLDEST;
    options.dead_letter = "/rules-dead";
    options.max_deliveries = 3;
    options.fair_priorities = 4;
    options.retry_delay = 5;
    options.retry_delay_max = 6;
    options.flags = UMSG_CLOSE_WITH_LAST_PRODUCER | UMSG_TRACE_MESSAGES;
    queue = umsg_mq_open_with("/rules", O_CREAT | O_RDWR, 0620, &options);
    CHECK(queue != NONE && umsg_mq_snapshot(queue, fd) == 0);
    done(queue, "/rules");
    rewind_to(fd, 0);
    queue = umsg_mq_restore("/rules", fd, O_RDWR, NULL);
    CHECK(queue != NONE && umsg_mq_status(queue, &status, sizeof status) == 0);
    CHECK(status.max_messages == 1 && status.on_full == UMSG_ON_FULL_DROP_OLDEST);
    CHECK(status.max_deliveries == 3 && strcmp(status.dead_letter, "/rules-dead") == 0);
    CHECK(status.fair_priorities == 4 && status.retry_delay == 5 && status.retry_delay_max == 6);
    CHECK(status.close_with_last_producer == 1 && status.trace_messages == 1 && status.producers == 0);
    done(queue, "/rules");
    CHECK(umsg_mq_unlink("/rules-dead") == 0);
    CHECK(close(fd) == 0);
}

static void what_was_saved_is_sent_to_a_queue(void)
{
    int fd = scratch_file();
    umsg_mqd_t queue = saved("/source", fd);
    umsg_mqd_t target = make("/target", 3, 33, O_NONBLOCK);
    umsg_mqd_t narrow = make("/narrow", 3, 3, O_NONBLOCK);
    FAILS(umsg_mq_restore_into(narrow, fd), EMSGSIZE);
    rewind_to(fd, 0);
    CHECK(umsg_mq_restore_into(target, fd) == 0);
    rewind_to(fd, 0);
    FAILS(umsg_mq_restore_into(target, fd), EAGAIN);
    expect_both_messages(target);
    done(narrow, "/narrow");
    done(target, "/target");
    done(queue, "/source");
    CHECK(close(fd) == 0);
}

static void what_was_altered_or_cut_short_is_refused(void)
{
    int fd = scratch_file();
    umsg_mqd_t queue = saved("/altered", fd);
    struct stat stat;
    char byte;
    CHECK(fstat(fd, &stat) == 0 && stat.st_size > 40);
    CHECK(pread(fd, &byte, 1, stat.st_size - 20) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, stat.st_size - 20) == 1);
    OPENS_NOT(umsg_mq_restore("/copy", fd, O_RDWR, NULL), EBADMSG);
    CHECK(ftruncate(fd, stat.st_size / 2) == 0);
    rewind_to(fd, 0);
    FAILS(umsg_mq_restore_into(queue, fd), EBADMSG);
    CHECK(ftruncate(fd, 0) == 0);
    rewind_to(fd, 0);
    CHECK(write(fd, "this is no snapshot, whatever the file's name says", 50) == 50);
    rewind_to(fd, 0);
    OPENS_NOT(umsg_mq_restore("/copy", fd, O_RDWR, NULL), EINVAL);
    OPENS_NOT(umsg_mq_open("/copy", O_RDWR), ENOENT);
    done(queue, "/altered");
    CHECK(close(fd) == 0);
}

static void descriptors_and_handles_are_checked(void)
{
    umsg_mqd_t queue = make("/descriptors", 3, 33, 0);
    umsg_mqd_t sends = umsg_mq_open("/descriptors", O_WRONLY);
    FAILS(umsg_mq_snapshot(queue, -1), EBADF);
    FAILS(umsg_mq_snapshot(NONE, 1), EBADF);
    FAILS(umsg_mq_snapshot(sends, 1), EBADF);
    FAILS(umsg_mq_restore_into(queue, -1), EBADF);
    OPENS_NOT(umsg_mq_restore("/copy", -1, O_RDWR, NULL), EBADF);
    OPENS_NOT(umsg_mq_restore((char *)8, 0, O_RDWR, NULL), EFAULT);
    CHECK(umsg_mq_close(sends) == 0);
    done(queue, "/descriptors");
}

static const struct test_case cases[] = {
    CASE(a_queue_is_made_of_what_was_saved),
    CASE(without_a_name_it_has_the_one_that_was_saved),
    CASE(it_goes_by_the_rules_that_were_saved),
    CASE(what_was_saved_is_sent_to_a_queue),
    CASE(what_was_altered_or_cut_short_is_refused),
    CASE(descriptors_and_handles_are_checked),
};

MAIN(cases)
