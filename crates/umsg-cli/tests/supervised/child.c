/* A static program: sends its second argument to /child, and prints its own name and the last argument. */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **given) {
    struct mq_attr attributes = {.mq_maxmsg = 8, .mq_msgsize = 64};
    mqd_t queue = mq_open("/umsg-child", O_RDWR | O_CREAT, 0600, &attributes);
    if (queue == -1 || mq_send(queue, given[1], strlen(given[1]), 1)) return perror("mq"), 1;
    printf("%s %s\n", given[0], given[count - 1]);
    return 7;
}
