/* Threads that are cancelled. */
#include <pthread.h>

static pthread_barrier_t barrier;
static volatile int cleaned_up;

__attribute__((unused)) static void clean_up(void *unused) {
    (void)unused;
    cleaned_up++;
}

/* Starts a thread that meets this one at the barrier. */
static pthread_t started(void *(*work)(void *), void *argument) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, work, argument) == 0);
    pthread_barrier_wait(&barrier);
    return thread;
}

static void expect_cancelled(pthread_t thread) {
    void *result;
    EXPECT(pthread_cancel(thread) == 0);
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}
