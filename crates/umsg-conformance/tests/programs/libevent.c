/* An event loop of libevent with a queue, by each of libevent's ways to wait. The loop receives each arriving message, and answers when the queue of
   answers has room. */
#include <event2/event.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MESSAGES = 2000 };

struct loop {
    struct event_base *base;
    struct event *answering;
    mqd_t questions, answers;
    long received, sum, waiting, answered;
};

static char names[2][64];

static mqd_t open_queue(int which, int flags) {
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = sizeof(long)};
    mqd_t queue = mq_open(names[which], flags | O_CREAT, 0600, &attributes);
    if (queue < 0) perror("mq_open"), exit(1);
    return queue;
}

static void on_question(evutil_socket_t queue, short what, void *context) {
    struct loop *loop = context;
    long number;
    if (what != EV_READ && what != (EV_READ | EV_ET)) abort();
    while (mq_receive((mqd_t)queue, (char *)&number, sizeof number, NULL) == sizeof number) {
        loop->received++;
        loop->sum += number;
        loop->waiting++;
    }
    event_add(loop->answering, NULL);
}

static void on_room(evutil_socket_t queue, short what, void *context) {
    struct loop *loop = context;
    if (what != EV_WRITE) abort();
    while (loop->waiting > 0 && mq_send((mqd_t)queue, (char *)&loop->sum, sizeof loop->sum, 0) == 0) {
        loop->waiting--;
        loop->answered++;
    }
    if (loop->answered == MESSAGES)
        event_base_loopbreak(loop->base);
    else if (loop->waiting > 0)
        event_add(loop->answering, NULL);
}

static void on_time_out(evutil_socket_t nothing, short what, void *context) {
    (void)nothing, (void)what, (void)context;
    printf("nothing came\n");
    exit(1);
}

/* Starts a child, which sends all questions without waiting for answers (`asks`), or receives all answers. */
static pid_t start(int asks) {
    pid_t child = fork();
    if (child != 0) return child;
    mqd_t queue = open_queue(asks ? 0 : 1, asks ? O_WRONLY : O_RDONLY);
    for (long number = 0; number < MESSAGES; number++) {
        long answer = number;
        if (asks ? mq_send(queue, (char *)&number, sizeof number, 0) != 0
                 : mq_receive(queue, (char *)&answer, sizeof answer, NULL) != sizeof answer)
            perror("a child"), _exit(1);
    }
    _exit(0);
}

static void run(const char *method, short edges) {
    const char *all[] = {"epoll", "poll", "select"};
    struct event_config *config = event_config_new();
    for (int i = 0; i < 3; i++)
        if (strcmp(all[i], method)) event_config_avoid_method(config, all[i]);
    struct loop loop = {.base = event_base_new_with_config(config)};
    loop.questions = open_queue(0, O_RDONLY | O_NONBLOCK);
    loop.answers = open_queue(1, O_WRONLY | O_NONBLOCK);
    loop.answering = event_new(loop.base, loop.answers, EV_WRITE, on_room, &loop);
    struct event *asked = event_new(loop.base, loop.questions, EV_READ | EV_PERSIST | edges, on_question, &loop);
    struct event *patience = evtimer_new(loop.base, on_time_out, NULL);
    event_add(asked, NULL);
    event_add(patience, &(struct timeval){60, 0});
    pid_t children[] = {start(1), start(0)};
    event_base_dispatch(loop.base);
    int status, failed = 0;
    for (int i = 0; i < 2; i++) failed |= waitpid(children[i], &status, 0) != children[i] || status != 0;
    printf("%s%s: %ld questions, sum %ld, %ld answers, children %s\n", event_base_get_method(loop.base), edges ? ", edges" : "",
           loop.received, loop.sum, loop.answered, failed ? "failed" : "content");
    event_free(asked), event_free(loop.answering), event_free(patience);
    event_base_free(loop.base), event_config_free(config);
    mq_close(loop.questions), mq_close(loop.answers);
}

int main(void) {
    for (int i = 0; i < 2; i++) snprintf(names[i], sizeof names[i], "/umsg-libevent-%d-%d", (int)getpid(), i);
    setvbuf(stdout, NULL, _IONBF, 0);
    run("epoll", 0);
    run("epoll", EV_ET);
    run("poll", 0);
    run("select", 0);
    for (int i = 0; i < 2; i++) mq_unlink(names[i]);
    return 0;
}
