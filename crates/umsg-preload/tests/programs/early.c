/* A library whose constructor runs before the constructor of the drop-in, and makes calls that programs usually make later. */
#include <dlfcn.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((constructor)) static void use_everything(void) {
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    struct stat status;
    char buffer[100];
    int file = open("/proc/self/exe", O_RDONLY);
    int copy = dup(file);
    if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED) _exit(10);
    if (read(file, buffer, 4) != 4 || lseek(copy, 0, SEEK_CUR) != 4 || fstat(copy, &status)) _exit(11);
    if (fcntl(copy, F_GETFD) || close(copy) || close(file)) _exit(12);
    if (readlink("/proc/self/exe", buffer, sizeof buffer) <= 0) _exit(13);
    if (!dlopen("libc.so.6", RTLD_NOW | RTLD_DEEPBIND)) _exit(14);
    mqd_t queue = mq_open("/early", O_RDWR | O_CREAT, 0600, &attributes);
    if (queue < 0 || mq_send(queue, "early", 5, 0) || mq_getattr(queue, &attributes)) _exit(15);
    if (mq_receive(queue, buffer, sizeof buffer, NULL) != 5 || fstat(queue, &status) || status.st_size != 80) _exit(16);
    if (mq_close(queue) || mq_close(queue) != -1) _exit(17);
}
