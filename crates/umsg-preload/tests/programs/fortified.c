/* Compiled with _FORTIFY_SOURCE, calls the functions that the compiler then takes for mq_open, read, pread, readlink, poll and ppoll. */
#include "check.h"
#include <poll.h>

CASE(checked_names_know_queues_too) {
    volatile size_t length = 60;
    volatile int flags = O_RDWR;
    create(O_RDWR, 4);
    mqd_t queue = mq_open(name(), flags);
    EXPECT(queue >= 0);
    char text[100] = {0}, path[64];
    EXPECT(read(queue, text, length) == 60 && !memcmp(text, "QSIZE:0 ", 8));
    EXPECT(pread(queue, text, length, 0) == 60);
    EXPECT(pread64(queue, text, length, 59) == 1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", queue);
    EXPECT(readlink(path, text, length) == (ssize_t)strlen(name()));
    EXPECT(readlinkat(AT_FDCWD, path, text, length) == (ssize_t)strlen(name()));
    volatile nfds_t entries = 2;
    struct pollfd both[2] = {{queue, POLLIN, 0}, {queue, POLLOUT, 0}};
    EXPECT(poll(both, entries, -1) == 1 && both[0].revents == 0 && both[1].revents == POLLOUT);
    EXPECT(ppoll(both, entries, NULL, NULL) == 1 && both[0].revents == 0 && both[1].revents == POLLOUT);
}

CASE(polling_more_than_there_is_ends_the_program) {
    volatile nfds_t entries = 3;
    struct pollfd both[2] = {{create(O_RDWR, 4), POLLIN, 0}, {-1, 0, 0}};
    poll(both, entries, -1);
}

CASE(creating_without_a_mode_ends_the_program) {
    volatile int flags = O_RDWR | O_CREAT;
    mq_open(name(), flags);
}
