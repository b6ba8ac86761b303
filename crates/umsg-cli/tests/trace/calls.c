/* Makes calls of each kind, including calls that fail. */
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <string.h>
#include <sys/msg.h>

int main(void) {
    struct mq_attr limits = {.mq_maxmsg = 10, .mq_msgsize = 64};
    mqd_t queue = mq_open("/jobs", O_CREAT | O_EXCL | O_RDWR, 0600, &limits);
    mq_open("/jobs", O_CREAT | O_EXCL | O_RDWR, 0600, NULL);
    mq_send(queue, "hello", 5, 3);
    char buffer[64];
    unsigned priority;
    mq_receive(queue, buffer, sizeof buffer, &priority);
    struct timespec past = {1, 5};
    mq_timedreceive(queue, buffer, sizeof buffer, NULL, &past);
    char large[65] = {0};
    mq_send(queue, large, sizeof large, 0);
    struct mq_attr nonblocking = {.mq_flags = O_NONBLOCK};
    mq_setattr(queue, &nonblocking, NULL);
    mq_receive(queue, buffer, sizeof buffer, &priority);
    mq_getattr(queue, &limits);
    struct sigevent none;
    memset(&none, 0, sizeof none);
    none.sigev_notify = SIGEV_NONE;
    mq_notify(queue, &none);
    mq_notify(queue, NULL);
    mq_send(queue, "0123456789012345678901234567890\xff" "cut here", 40, 0);
    mq_close(queue);
    mq_unlink("/jobs");
    mq_unlink("/jobs");
    int id = msgget(77, 0600 | IPC_CREAT);
    struct {
        long type;
        char text[10];
    } message = {4, "abc"};
    struct msqid_ds state;
    msgsnd(id, &message, 3, 0);
    msgrcv(id, &message, sizeof message.text, -5, MSG_NOERROR);
    msgrcv(id, &message, sizeof message.text, 0, IPC_NOWAIT);
    msgctl(id, IPC_STAT, &state);
    msgctl(id, IPC_RMID, NULL);
    return 7;
}
