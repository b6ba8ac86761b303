/* Uses the queues of POSIX and System V by the ordinary calls. */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>

static int fail(const char *call)
{
    perror(call);
    return 1;
}

static int post(mqd_t queue, const char *text)
{
    return mq_send(queue, text, strlen(text), 0) == 0 ? 0 : fail("mq_send");
}

static int polled(mqd_t queue)
{
    struct pollfd polled = {.fd = queue, .events = POLLIN};
    char buffer[8192];
    if (poll(&polled, 1, 60000) != 1)
        return fail("poll");
    ssize_t length = mq_receive(queue, buffer, sizeof buffer, NULL);
    if (length < 0)
        return fail("mq_receive");
    printf("%.*s\n", (int)length, buffer);
    return 0;
}

static int notified(mqd_t queue)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct timespec patience = {.tv_sec = 60};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (mq_notify(queue, &event) != 0)
        return fail("mq_notify");
    if (sigtimedwait(&signals, NULL, &patience) != SIGUSR1)
        return fail("sigtimedwait");
    puts("notified");
    return 0;
}

static int typed(void)
{
    struct { long type; char text[6]; } message = {.type = 3, .text = "typed"};
    int queue = msgget(IPC_PRIVATE, 0600);
    if (queue == -1 || msgsnd(queue, &message, sizeof message.text, 0) != 0)
        return fail("msgsnd");
    memset(&message, 0, sizeof message);
    if (msgrcv(queue, &message, sizeof message.text, 3, 0) < 0)
        return fail("msgrcv");
    puts(message.text);
    return msgctl(queue, IPC_RMID, NULL) == 0 ? 0 : fail("msgctl");
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return typed();
    mqd_t queue = mq_open(argv[2], O_CREAT | O_RDWR, 0600, NULL);
    if (queue == (mqd_t)-1)
        return fail("mq_open");
    if (strcmp(argv[1], "post") == 0)
        return post(queue, argv[3]);
    return strcmp(argv[1], "polled") == 0 ? polled(queue) : notified(queue);
}
