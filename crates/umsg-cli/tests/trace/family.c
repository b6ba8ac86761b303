/* Sends messages from the first thread, another thread, a child, and a program that the child executes. */
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *work(void *queue) {
    mq_send(*(mqd_t *)queue, "thread", 6, 0);
    return NULL;
}

int main(int count, char **arguments) {
    struct mq_attr limits = {.mq_maxmsg = 10, .mq_msgsize = 64};
    mqd_t queue = mq_open("/family", O_CREAT | O_RDWR, 0600, &limits);
    if (count > 1) {
        return mq_send(queue, "program", 7, 0);
    }
    mq_send(queue, "first", 5, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, work, &queue);
    pthread_join(thread, NULL);
    char buffer[64];
    mq_receive(queue, buffer, sizeof buffer, NULL);
    mq_receive(queue, buffer, sizeof buffer, NULL);
    if (fork() == 0) {
        usleep(50000);
        mq_send(queue, "child", 5, 0);
        execl(arguments[0], arguments[0], "again", NULL);
    }
    mq_receive(queue, buffer, sizeof buffer, NULL);
    mq_receive(queue, buffer, sizeof buffer, NULL);
    wait(NULL);
    mq_unlink("/family");
    return strncmp(buffer, "program", 7) != 0;
}
