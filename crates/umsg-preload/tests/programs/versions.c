/* Opens a queue and receives by the symbols that librt exported before glibc 2.34. Sends by the symbol that libc exports now. */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>

__asm__(".symver old_mq_open, mq_open@GLIBC_2.3.4");
__asm__(".symver old_mq_receive, mq_receive@GLIBC_2.3.4");
mqd_t old_mq_open(const char *, int, ...);
ssize_t old_mq_receive(mqd_t, char *, size_t, unsigned *);

int main(int argc, char **argv) {
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    mqd_t queue = old_mq_open(argv[argc - 1], O_RDWR | O_CREAT, 0600, &attributes);
    char buffer[16];
    if (queue < 0 || mq_send(queue, "one", 3, 0) || mq_send(queue, "two", 3, 0)) return 1;
    return old_mq_receive(queue, buffer, 16, NULL) != 3;
}
