/* Compiled with _FORTIFY_SOURCE, calls what that puts in place of mq_open, read, pread and readlink. */
#include "check.h"

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
}

CASE(creating_without_a_mode_ends_the_program) {
    volatile int flags = O_RDWR | O_CREAT;
    mq_open(name(), flags);
}
