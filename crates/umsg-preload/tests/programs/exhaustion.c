/* The limits of a process, and a large number of queues. */
#include "check.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>

/* Sets a limit of this process, and returns the previous one. */
static rlim_t limited(int resource, rlim_t soft) {
    struct rlimit limit;
    EXPECT(getrlimit(resource, &limit) == 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = soft;
    EXPECT(setrlimit(resource, &limit) == 0);
    return before;
}

/* Returns the number of lines of a file. */
static long lines(const char *path) {
    FILE *file = fopen(path, "r");
    char line[4096];
    long count = 0;
    EXPECT(file != NULL);
    while (fgets(line, sizeof line, file)) count++;
    fclose(file);
    return count;
}

static int next_descriptor(void) {
    int descriptor = dup(0);
    EXPECT(descriptor >= 0 && close(descriptor) == 0);
    return descriptor;
}

static void expect_a_message_through(mqd_t queue) {
    char buffer[16];
    struct timespec past = {1, 0};
    EXPECT(mq_send(queue, "through", 7, 0) == 0);
    EXPECT(mq_receive(queue, buffer, 16, NULL) == 7);
    EXPECT_ERRNO(mq_timedreceive(queue, buffer, 16, NULL, &past), ETIMEDOUT);
}

CASE(without_a_descriptor_no_queue_is_opened_and_open_ones_are_used) {
    mqd_t queue = create(O_RDWR, 4);
    rlim_t plenty = limited(RLIMIT_NOFILE, next_descriptor());
    EXPECT_ERRNO(mq_open(name(), O_RDWR), EMFILE);
    EXPECT_ERRNO(mq_open("/umsg-preload-test-new", O_RDWR | O_CREAT, 0600, NULL), EMFILE);
    expect_a_message_through(queue);
    limited(RLIMIT_NOFILE, plenty);
    mqd_t another = mq_open(name(), O_RDWR);
    EXPECT(another >= 0 && mq_close(another) == 0);
    EXPECT_ERRNO(mq_open("/umsg-preload-test-new", O_RDWR), ENOENT);
    EXPECT(mq_close(queue) == 0);
}

CASE(a_limit_on_the_size_of_files_is_an_error_and_no_signal) {
    mqd_t queue = create(O_RDWR, 4);
    limited(RLIMIT_FSIZE, 4096);
    EXPECT_ERRNO(mq_open("/umsg-preload-test-new", O_RDWR | O_CREAT, 0600, NULL), EFBIG);
    EXPECT_ERRNO(msgget(IPC_PRIVATE, 0600), EFBIG);
    expect_a_message_through(queue);
    EXPECT_ERRNO(mq_open("/umsg-preload-test-new", O_RDWR), ENOENT);
}

CASE(a_limit_on_address_space_is_an_error) {
    mqd_t queue = create(O_RDWR, 4);
    rlim_t plenty = limited(RLIMIT_AS, 0);
    EXPECT_ERRNO(mq_open("/umsg-preload-test-new", O_RDWR | O_CREAT, 0600, NULL), ENOMEM);
    EXPECT_ERRNO(msgget(IPC_PRIVATE, 0600), ENOMEM);
    expect_a_message_through(queue);
    limited(RLIMIT_AS, plenty);
    EXPECT_ERRNO(mq_open("/umsg-preload-test-new", O_RDWR), ENOENT);
    int id = msgget(IPC_PRIVATE, 0600);
    EXPECT(id >= 0 && msgctl(id, IPC_RMID, NULL) == 0);
}

static void one_queue(void) {
    mqd_t queue = create(O_RDWR, 4);
    expect_a_message_through(queue);
    EXPECT(mq_close(queue) == 0 && mq_unlink(name()) == 0);
}

static void expect_nothing_left(void (*by)(void)) {
    for (int round = 0; round < 100; round++) by();
    int descriptor = next_descriptor();
    long maps = lines("/proc/self/maps");
    for (int round = 0; round < 2000; round++) by();
    EXPECT(next_descriptor() == descriptor);
    EXPECT(lines("/proc/self/maps") <= maps + 2);
}

CASE(queues_without_number_leave_no_descriptor_and_no_mapping) { expect_nothing_left(one_queue); }

static void one_identifier(void) {
    struct {
        long type;
        char text[8];
    } message = {1, "through"};
    int id = msgget(IPC_PRIVATE, 0600);
    EXPECT(id >= 0 && msgsnd(id, &message, 7, IPC_NOWAIT) == 0);
    EXPECT(msgrcv(id, &message, 8, 0, IPC_NOWAIT) == 7);
    EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
    EXPECT_ERRNO(msgsnd(id, &message, 7, IPC_NOWAIT), EINVAL);
}

CASE(identifiers_without_number_leave_no_descriptor_and_no_mapping) { expect_nothing_left(one_identifier); }
