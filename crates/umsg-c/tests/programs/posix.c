/* An ordinary program for POSIX message queues, without any use of umsg. Its argument is a queue's name. */
#define _GNU_SOURCE
#include <mqueue.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void expect(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static void produce(const char *name)
{
    mqd_t queue = mq_open(name, O_WRONLY);
    char text[32];
    int i;
    expect(queue != (mqd_t)-1, "mq_open of the producer");
    for (i = 0; i < 100; i++) {
        snprintf(text, sizeof text, "message %d", i);
        expect(mq_send(queue, text, strlen(text) + 1, (unsigned)(i % 3)) == 0, "mq_send");
    }
    expect(mq_close(queue) == 0, "mq_close of the producer");
    _exit(0);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "/posix";
    struct mq_attr attr, found;
    struct timespec past = {1, 0};
    mqd_t queue;
    char buffer[64];
    unsigned priority;
    int i, status;

    memset(&attr, 0, sizeof attr);
    attr.mq_maxmsg = 10;
    attr.mq_msgsize = sizeof buffer;
    queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR, &attr);
    expect(queue != (mqd_t)-1, "mq_open");
    expect(mq_getattr(queue, &found) == 0 && found.mq_maxmsg == 10, "mq_getattr");
    if (fork() == 0)
        produce(name);
    for (i = 0; i < 100; i++)
        expect(mq_receive(queue, buffer, sizeof buffer, &priority) > 0 && priority < 3, "mq_receive");
    expect(wait(&status) > 0 && status == 0, "the producer");
    expect(mq_timedreceive(queue, buffer, sizeof buffer, NULL, &past) == -1 && errno == ETIMEDOUT,
           "mq_timedreceive");
    expect(mq_timedsend(queue, "x", 1, 0, &past) == 0, "mq_timedsend");
    attr.mq_flags = O_NONBLOCK;
    expect(mq_setattr(queue, &attr, &found) == 0 && found.mq_flags == 0, "mq_setattr");
    expect(mq_receive(queue, buffer, sizeof buffer, NULL) == 1, "the last message");
    expect(mq_receive(queue, buffer, sizeof buffer, NULL) == -1 && errno == EAGAIN, "an empty queue");
    expect(mq_close(queue) == 0 && mq_unlink(name) == 0, "the end");
    puts("100 messages");
    return 0;
}
