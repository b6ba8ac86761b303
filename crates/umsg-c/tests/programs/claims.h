/* What a program claims of its calls, on the kernel's queues or on umsg's. */
#ifndef CLAIMS_H
#define CLAIMS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is known of an error beside errno. */
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

/* The call returns -1 and errno is this. */
#define FAILS(call, error)                                                                        \
    do {                                                                                          \
        errno = 0;                                                                                \
        CHECK((call) == -1 && errno == (error));                                                  \
    } while (0)

#endif
