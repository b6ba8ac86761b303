/* Makes calls of each kind by their numbers, with syscall(2), including calls that fail. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    struct mq_attr limits = {.mq_maxmsg = 10, .mq_msgsize = 64};
    long queue = syscall(SYS_mq_open, "jobs", O_CREAT | O_EXCL | O_RDWR, 0600, &limits);
    syscall(SYS_mq_open, "jobs", O_CREAT | O_EXCL | O_RDWR, 0600, NULL);
    syscall(SYS_mq_open, "/jobs", O_RDWR, 0, NULL);
    syscall(SYS_mq_timedsend, queue, "hello", 5L, 3, NULL);
    char buffer[64];
    unsigned priority;
    syscall(SYS_mq_timedreceive, queue, buffer, sizeof buffer, &priority, NULL);
    struct timespec past = {1, 5};
    syscall(SYS_mq_timedreceive, queue, buffer, sizeof buffer, NULL, &past);
    syscall(SYS_mq_timedsend, queue, "", 0L, 0, &past);
    struct mq_attr nonblocking = {.mq_flags = O_NONBLOCK};
    syscall(SYS_mq_getsetattr, queue, &nonblocking, NULL);
    syscall(SYS_mq_getsetattr, queue, NULL, &limits);
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_NONE;
    syscall(SYS_mq_notify, queue, &event);
    event.sigev_notify = SIGEV_THREAD;
    syscall(SYS_mq_notify, queue, &event);
    /* Descriptor 0 is no queue. */
    syscall(SYS_mq_timedsend, 0, "x", 1L, 0, NULL);
    syscall(SYS_close, queue);
    syscall(SYS_mq_unlink, "jobs");
    syscall(SYS_mq_unlink, "jobs");
    long id = syscall(SYS_msgget, 77, 0600 | IPC_CREAT);
    struct {
        long type;
        char text[10];
    } message = {4, "abc"};
    syscall(SYS_msgsnd, id, &message, 3L, 0);
    syscall(SYS_msgrcv, id, &message, sizeof message.text, -5L, MSG_NOERROR);
    syscall(SYS_msgrcv, id, &message, sizeof message.text, 0L, IPC_NOWAIT);
    syscall(SYS_msgctl, id, IPC_RMID, NULL);
    return 7;
}
