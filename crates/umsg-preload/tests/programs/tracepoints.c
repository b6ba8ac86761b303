/* Passes each static tracepoint of the library. The test has created the queues: /traced for one message, /short with messages that expire after a
 * millisecond. */
#include "check.h"
#include <sys/ipc.h>
#include <sys/msg.h>

/* Starts a child that calls `act` on the queue when this process sleeps in a call. The test does not count the child's tracepoints. */
static pid_t meanwhile(void (*act)(mqd_t), mqd_t queue) {
    pid_t waiter = getpid(), child = fork();
    if (child != 0) return child;
    await_sleep(waiter);
    act(queue);
    _exit(0);
}

static void send_one(mqd_t queue) { EXPECT(mq_send(queue, "awaited", 7, 3) == 0); }

static void receive_one(mqd_t queue) { EXPECT(mq_receive(queue, (char[64]){0}, 64, NULL) == 4); }

CASE(all) {
    char buffer[64];
    unsigned priority;
    struct timespec moment = {0, 20000000};
    mqd_t traced = mq_open("/traced", O_RDWR), brief = mq_open("/short", O_RDWR | O_NONBLOCK);
    EXPECT(traced != (mqd_t)-1 && brief != (mqd_t)-1);
    EXPECT(mq_send(traced, "hello", 5, 7) == 0);
    EXPECT(mq_receive(traced, buffer, sizeof buffer, &priority) == 5);
    pid_t child = meanwhile(send_one, traced);
    EXPECT(mq_receive(traced, buffer, sizeof buffer, &priority) == 7);
    expect_success(child);
    EXPECT(mq_send(traced, "full", 4, 1) == 0);
    child = meanwhile(receive_one, traced);
    EXPECT(mq_send(traced, "late", 4, 0) == 0);
    expect_success(child);
    EXPECT(mq_receive(traced, buffer, sizeof buffer, &priority) == 4);
    EXPECT(mq_send(brief, "old", 3, 2) == 0);
    nanosleep(&moment, NULL);
    EXPECT(mq_receive(brief, buffer, sizeof buffer, NULL) == -1);
    struct {
        long type;
        char text[16];
    } message = {42, "typed"};
    int id = msgget(IPC_PRIVATE, 0600);
    EXPECT(id >= 0);
    EXPECT(msgsnd(id, &message, 6, 0) == 0);
    EXPECT(msgrcv(id, &message, sizeof message.text, 0, 0) == 6);
    EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
}
