/* Uses a file and a queue, and asks the other preloaded library for the calls that it saw. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mqueue.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    mqd_t queue = mq_open("/chained", O_RDWR | O_CREAT, 0600, &attributes);
    int file = open("/dev/null", O_RDONLY);
    void (*report)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "report");
    int (*close_in_front)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "close");
    struct stat of_file, of_queue;
    if (queue < 0 || fstat(file, &of_file) || fstat(queue, &of_queue)) return 1;
    if (of_file.st_uid != 4711 || of_queue.st_uid != 4711 || of_queue.st_size != 80) return 2;
    if (mq_send(queue, "x", 1, 0) || close_in_front(file) || close(queue) || mq_send(queue, "x", 1, 0) == 0) return 3;
    report();
    return 0;
}
