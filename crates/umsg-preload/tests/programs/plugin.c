/* A library that a program loads at run time. */
#include <fcntl.h>
#include <mqueue.h>

int use_queue(const char *name);

int use_queue(const char *name) {
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, &attributes);
    return queue < 0 ? -1 : mq_send(queue, "plugin", 6, 0);
}
