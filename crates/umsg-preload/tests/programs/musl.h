/* Functions that the programs use and musl 1.2.3 lacks. Descriptors are closed one by one, as a program for musl closes them. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define strerrorname_np strerror

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4

__attribute__((unused)) static int close_range(unsigned first, unsigned last, int flags)
{
    unsigned limit = (unsigned)sysconf(_SC_OPEN_MAX);
    if (first > last) {
        errno = EINVAL;
        return -1;
    }
    for (unsigned fd = first; fd < limit && fd <= last; fd++) {
        if (flags & CLOSE_RANGE_CLOEXEC)
            fcntl((int)fd, F_SETFD, FD_CLOEXEC);
        else
            close((int)fd);
    }
    return 0;
}
#endif

__attribute__((unused)) static void closefrom(int first)
{
    close_range((unsigned)first, ~0U, 0);
}
