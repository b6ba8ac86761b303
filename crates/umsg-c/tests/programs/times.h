/* Times of CLOCK_REALTIME. */
#include <time.h>

/* A time in the past, and an invalid time. */
static const struct timespec past = {1, 0}, wrong = {0, 1000000000};

static struct timespec in_milliseconds(long milliseconds)
{
    struct timespec time;
    CHECK(clock_gettime(CLOCK_REALTIME, &time) == 0);
    time.tv_nsec += milliseconds % 1000 * 1000000;
    time.tv_sec += milliseconds / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}
