/* A thread calls functions for the first time while dlopen waits for it. The argument is the library to be loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

volatile int started, finished;

static void *call(void *unused) {
    char byte;
    while (!started) usleep(1000);
    int zero = open("/dev/zero", O_RDONLY);
    int is_read = pread(zero, &byte, 1, 0) == 1 && readlink("/proc/self/exe", &byte, 1) == 1;
    finished = is_read && close(zero) == 0;
    return unused;
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (count != 2 || pthread_create(&thread, NULL, call, NULL) != 0) return 2;
    if (!dlopen(arguments[1], RTLD_NOW)) return 3;
    /* `finished` is 0 if the constructor has ended its wait after ten seconds. */
    return !finished;
}
