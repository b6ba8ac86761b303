/* Sends and receives messages until the process is killed. */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    struct mq_attr limits = {.mq_maxmsg = 10, .mq_msgsize = 64};
    mqd_t queue = mq_open("/loop", O_CREAT | O_RDWR, 0600, &limits);
    char buffer[64];
    puts("ready");
    fflush(stdout);
    for (;;) {
        mq_send(queue, "x", 1, 0);
        mq_receive(queue, buffer, sizeof buffer, NULL);
        usleep(50);
    }
}
