/* Passes each static tracepoint of the library. The test has created the queues: /traced for one message, /short with messages that expire after a
 * millisecond. */
#include "check.h"
#include <sys/ipc.h>
#include <sys/msg.h>

CASE(all) {
    char buffer[64];
    unsigned priority;
    struct timespec limit, moment = {0, 20000000};
    mqd_t traced = mq_open("/traced", O_RDWR), brief = mq_open("/short", O_RDWR | O_NONBLOCK);
    EXPECT(traced != (mqd_t)-1 && brief != (mqd_t)-1);
    EXPECT(mq_send(traced, "hello", 5, 7) == 0);
    EXPECT(mq_receive(traced, buffer, sizeof buffer, &priority) == 5);
    limit = in_ms(20);
    EXPECT(mq_timedreceive(traced, buffer, sizeof buffer, &priority, &limit) == -1);
    EXPECT(mq_send(traced, "full", 4, 1) == 0);
    limit = in_ms(20);
    EXPECT(mq_timedsend(traced, "", 0, 0, &limit) == -1);
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
