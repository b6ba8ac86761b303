/* Sends messages from the first thread, another thread, a child, and a program that the child executes. */
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *work(void *queue) {
    mq_send(*(mqd_t *)queue, "thread", 6, 0);
    return NULL;
}

/* Returns how often a process has gone to sleep; 0 if it is awake. */
static unsigned long sleeps(pid_t process) {
    char path[40], line[200], state = 0;
    unsigned long count = 0;
    snprintf(path, sizeof path, "/proc/%d/status", process);
    FILE *status = fopen(path, "r");
    while (status && fgets(line, sizeof line, status)) {
        sscanf(line, "State: %c", &state);
        sscanf(line, "voluntary_ctxt_switches: %lu", &count);
    }
    if (status) fclose(status);
    return state == 'S' ? count : 0;
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
        /* The parent sleeps so long only while it waits for this message. */
        for (unsigned long before = 0, now = 0; now == 0 || now != before;) {
            before = now;
            usleep(50000);
            now = sleeps(getppid());
        }
        mq_send(queue, "child", 5, 0);
        execl(arguments[0], arguments[0], "again", NULL);
    }
    mq_receive(queue, buffer, sizeof buffer, NULL);
    mq_receive(queue, buffer, sizeof buffer, NULL);
    wait(NULL);
    mq_unlink("/family");
    return strncmp(buffer, "program", 7) != 0;
}
