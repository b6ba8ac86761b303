/* A thread with the smallest possible stack uses queues of both kinds. */
#define main main_of_cases
#include "check.h"
#undef main
#include <limits.h>
#include <pthread.h>
#include <sys/msg.h>

static void *use_queues(void *nothing) {
    char buffer[16];
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    struct {
        long type;
        char byte;
    } message = {1, 'x'};
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(mq_notify(queue, &none) == 0 && mq_notify(queue, NULL) == 0);
    EXPECT(mq_send(queue, "x", 1, 0) == 0 && mq_receive(queue, buffer, 16, NULL) == 1);
    EXPECT(mq_close(queue) == 0 && mq_unlink(queue_name) == 0);
    int id = msgget(IPC_PRIVATE, 0600);
    EXPECT(id >= 0 && msgsnd(id, &message, 1, 0) == 0 && msgrcv(id, &message, 1, 0, 0) == 1);
    EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
    return nothing;
}

int main(void) {
    pthread_attr_t small;
    pthread_t thread;
    EXPECT(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN) == 0);
    EXPECT(pthread_create(&thread, &small, use_queues, NULL) == 0 && pthread_join(thread, NULL) == 0);
    return 0;
}
