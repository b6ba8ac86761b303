/* The names of POSIX, with the system's own header included before and after umsg/mqueue.h. */
#include <fcntl.h>
#include <mqueue.h>
#include <umsg/mqueue.h>
#include <mqueue.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    struct mq_attr attr;
    mqd_t queue;
    memset(&attr, 0, sizeof attr);
    attr.mq_maxmsg = 2;
    attr.mq_msgsize = 8;
    queue = mq_open("/both", O_CREAT | O_RDWR, 0600, &attr);
    if (queue == (mqd_t)-1 || mq_send(queue, "x", 1, 0) != 0 || mq_unlink("/both") != 0) {
        perror(umsg_last_error());
        return 1;
    }
    return mq_close(queue);
}
