/* A library whose constructor waits for a thread of the program. During this wait, dlopen holds the lock of the dynamic linker. */
#include <unistd.h>

extern volatile int started, finished;

__attribute__((constructor)) static void wait_for_the_thread(void) {
    started = 1;
    for (int i = 0; i < 1000 && !finished; i++) usleep(10000);
}
