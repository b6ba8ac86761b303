/* Checks of calls, on the kernel's queues or on umsg's queues. */
#ifndef CLAIMS_H
#define CLAIMS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of an error, if the program knows more than errno. */
#ifndef MORE
#define MORE "-"
#endif

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n  errno: %s\n  more: %s\n", __FILE__, __LINE__,    \
                    #condition, strerror(errno), MORE);                                           \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

/* Checks that the call returns -1 and sets errno to this error. */
#define FAILS(call, error)                                                                        \
    do {                                                                                          \
        errno = 0;                                                                                \
        CHECK((call) == -1 && errno == (error));                                                  \
    } while (0)

#endif
