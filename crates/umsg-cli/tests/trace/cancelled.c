/* Cancels a thread that is blocked in mq_receive, and ends by SIGTERM. */
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void *block(void *queue) {
    char buffer[64];
    mq_receive(*(mqd_t *)queue, buffer, sizeof buffer, NULL);
    return NULL;
}

int main(void) {
    struct mq_attr limits = {.mq_maxmsg = 10, .mq_msgsize = 64};
    mqd_t queue = mq_open("/empty", O_CREAT | O_RDWR, 0600, &limits);
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, block, &queue);
    usleep(50000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    puts(result == PTHREAD_CANCELED ? "cancelled" : "returned");
    fflush(stdout);
    mq_unlink("/empty");
    raise(SIGTERM);
}
