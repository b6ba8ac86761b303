/* Sends and receives many messages. */
#include <fcntl.h>
#include <mqueue.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    struct mq_attr limits = {.mq_maxmsg = 10, .mq_msgsize = 64};
    mqd_t queue = mq_open("/many", O_CREAT | O_RDWR, 0600, &limits);
    char buffer[64];
    for (int left = count > 1 ? atoi(arguments[1]) : 1; left > 0; left--) {
        mq_send(queue, "x", 1, 0);
        mq_receive(queue, buffer, sizeof buffer, NULL);
    }
    return mq_unlink("/many");
}
