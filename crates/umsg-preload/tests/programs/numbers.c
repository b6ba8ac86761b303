/* Descriptor numbers that are duplicated, closed in bulk, and used again. */
#include "check.h"
#include <sys/resource.h>
#include <sys/syscall.h>

static int is_queue(int descriptor) {
    struct mq_attr attributes;
    struct stat status;
    int by_attributes = mq_getattr(descriptor, &attributes) == 0;
    int by_status = fstat(descriptor, &status) == 0 && status.st_size == 80;
    EXPECT(by_attributes == by_status);
    return by_attributes;
}

CASE(every_kind_of_duplicate_is_a_queue) {
    mqd_t queue = create(O_RDWR, 8);
    int file = open("/dev/null", O_RDWR);
    int copies[] = {dup(queue), dup2(queue, 100), dup3(queue, 101, O_CLOEXEC), dup2(queue, file),
                    fcntl(queue, F_DUPFD, 200), fcntl(queue, F_DUPFD_CLOEXEC, 300)};
    for (unsigned i = 0; i < sizeof copies / sizeof *copies; i++) {
        EXPECT(is_queue(copies[i]));
        EXPECT(mq_send(copies[i], "x", 1, 0) == 0);
    }
    EXPECT(copies[3] == file && copies[4] == 200 && copies[5] == 300);
    EXPECT(dup2(queue, queue) == queue && is_queue(queue));
    EXPECT(mq_close(queue) == 0 && !is_queue(queue));
    EXPECT(is_queue(copies[0]) && count(copies[0]) == 6);
}

CASE(a_number_given_to_another_file_is_no_queue) {
    mqd_t queue = create(O_RDWR, 8);
    int file = open("/dev/null", O_RDWR);
    EXPECT(dup2(file, queue) == queue);
    EXPECT(!is_queue(queue));
    EXPECT(write(queue, "x", 1) == 1);
    EXPECT_ERRNO(dup2(999, file), EBADF);
}

CASE(a_failed_dup2_leaves_the_queue) {
    mqd_t queue = create(O_RDWR, 8);
    EXPECT_ERRNO(dup2(999, queue), EBADF);
    EXPECT(is_queue(queue));
    EXPECT(mq_send(queue, "x", 1, 0) == 0);
}

CASE(close_range_and_closefrom_close_queues) {
    mqd_t first = create(O_RDWR, 8);
    mqd_t second = mq_open(name(), O_RDWR), third = mq_open(name(), O_RDWR);
    EXPECT_ERRNO(close_range(second, first, 0), EINVAL);
    EXPECT(close_range(second, second, 0) == 0);
    EXPECT(is_queue(first) && !is_queue(second) && is_queue(third));
    EXPECT(close_range(first, ~0U, CLOSE_RANGE_CLOEXEC) == 0);
    EXPECT(is_queue(first) && is_queue(third));
    closefrom(first);
    EXPECT(!is_queue(first) && !is_queue(third));
}

CASE(a_daemon_that_closes_everything_can_go_on) {
    mqd_t queue = create(O_RDWR, 8);
    EXPECT(mq_send(queue, "kept", 4, 0) == 0);
    for (int descriptor = 3; descriptor < 20000; descriptor++) close(descriptor);
    EXPECT(!is_queue(queue));
    queue = mq_open(name(), O_RDWR);
    char buffer[16];
    EXPECT(queue == 3 && mq_receive(queue, buffer, 16, NULL) == 4);
    EXPECT(mq_send(queue, "again", 5, 0) == 0);
}

CASE(a_queue_closed_by_a_bare_system_call_is_forgotten) {
    mqd_t queue = create(O_RDWR, 8);
    EXPECT(bare_call(SYS_close, queue, 0, 0, 0) == 0);
    EXPECT(!is_queue(queue));
    EXPECT_ERRNO(mq_send(queue, "x", 1, 0), EBADF);
    queue = mq_open(name(), O_RDWR);
    EXPECT(bare_call(SYS_close, queue, 0, 0, 0) == 0);
    int file = open("/dev/null", O_RDWR);
    EXPECT(file == queue);
    EXPECT(write(file, "x", 1) == 1);
    EXPECT(dup2(file, 50) == 50 && write(50, "x", 1) == 1);
    EXPECT_ERRNO(mq_send(file, "x", 1, 0), EBADF);
}

CASE(thousands_of_descriptors_are_kept_apart) {
    struct rlimit limit = {4000, 4000};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    mqd_t queue = create(O_RDWR, 8);
    for (int i = 0; i < 3000; i++) EXPECT(mq_open(name(), O_RDWR) >= 0);
    EXPECT(mq_send(3000, "x", 1, 0) == 0);
    for (int i = 4; i < 3000; i++) EXPECT(mq_close(i) == 0);
    EXPECT(count(queue) == 1 && !is_queue(1000) && is_queue(3001));
    while (mq_open(name(), O_RDWR) >= 0) continue;
    EXPECT_ERRNO(mq_open(name(), O_RDWR), EMFILE);
}
