/* The structures that a program shares with libc: every field in its place, and nothing written beyond the end. */
#include "check.h"
#include <sched.h>
#include <sys/ipc.h>
#include <sys/msg.h>

#define UNTOUCHED 0xa5

/* A structure between bytes that no call may change. */
#define GUARDED(type)                                                                                                  \
    struct {                                                                                                           \
        unsigned char before[64];                                                                                      \
        type is;                                                                                                       \
        unsigned char behind[64];                                                                                      \
    }

#define ONLY_INSIDE_IS_WRITTEN(guarded)                                                                                \
    for (size_t i = 0; i < 64; i++) EXPECT((guarded).before[i] == UNTOUCHED && (guarded).behind[i] == UNTOUCHED)

_Static_assert(sizeof(time_t) == 8, "times of 64 bits");

struct text {
    long type;
    char bytes[8];
};

CASE(msgctl_fills_every_field) {
    unshare(CLONE_NEWIPC);
    key_t key = 0x51a70000 + getpid();
    time_t begin = time(NULL);
    int id = msgget(key, IPC_CREAT | IPC_EXCL | 0640);
    EXPECT(id >= 0);
    struct text text = {.type = 7, .bytes = "text"};
    EXPECT(msgsnd(id, &text, 5, 0) == 0 && msgsnd(id, &text, 3, 0) == 0);
    EXPECT(msgrcv(id, &text, 8, 0, 0) == 5);

    GUARDED(struct msqid_ds) status;
    memset(&status, UNTOUCHED, sizeof status);
    EXPECT(msgctl(id, IPC_STAT, &status.is) == 0);
    ONLY_INSIDE_IS_WRITTEN(status);
    struct msqid_ds *is = &status.is;
    EXPECT(is->msg_perm.__key == key);
    EXPECT(is->msg_perm.uid == geteuid() && is->msg_perm.gid == getegid());
    EXPECT(is->msg_perm.cuid == geteuid() && is->msg_perm.cgid == getegid());
    EXPECT(is->msg_perm.mode == 0640);
    EXPECT((int)is->msg_perm.__seq == id / 32768);
    time_t end = time(NULL);
    /* The kernel's clock of whole seconds may be behind by one tick. */
    EXPECT(is->msg_stime >= begin - 1 && is->msg_stime <= end);
    EXPECT(is->msg_rtime >= is->msg_stime && is->msg_rtime <= end);
    EXPECT(is->msg_ctime >= begin - 1 && is->msg_ctime <= end);
    EXPECT(is->msg_cbytes == 3 && is->msg_qnum == 1);
    EXPECT(is->msg_qbytes >= 3);
    EXPECT(is->msg_lspid == getpid() && is->msg_lrpid == getpid());

    is->msg_qbytes = 100;
    is->msg_perm.mode = 0600;
    EXPECT(msgctl(id, IPC_SET, is) == 0);
    memset(&status, UNTOUCHED, sizeof status);
    EXPECT(msgctl(id, IPC_STAT, is) == 0);
    EXPECT(is->msg_qbytes == 100 && is->msg_perm.mode == 0600 && is->msg_qnum == 1);
    EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
}

CASE(msg_info_fills_every_field) {
    GUARDED(struct msginfo) info;
    memset(&info, UNTOUCHED, sizeof info);
    EXPECT(msgctl(0, IPC_INFO, (struct msqid_ds *)&info.is) >= 0);
    ONLY_INSIDE_IS_WRITTEN(info);
    EXPECT(info.is.msgmax > 0 && info.is.msgmnb > 0 && info.is.msgmni > 0);
}

CASE(mq_getattr_fills_every_field) {
    mqd_t queue = create(O_RDWR | O_NONBLOCK, 4);
    EXPECT(mq_send(queue, "x", 1, 0) == 0);
    GUARDED(struct mq_attr) seen;
    memset(&seen, UNTOUCHED, sizeof seen);
    EXPECT(mq_getattr(queue, &seen.is) == 0);
    ONLY_INSIDE_IS_WRITTEN(seen);
    EXPECT(seen.is.mq_flags == O_NONBLOCK && seen.is.mq_maxmsg == 4);
    EXPECT(seen.is.mq_msgsize == 16 && seen.is.mq_curmsgs == 1);

    struct mq_attr none = {.mq_flags = 0};
    memset(&seen, UNTOUCHED, sizeof seen);
    EXPECT(mq_setattr(queue, &none, &seen.is) == 0);
    ONLY_INSIDE_IS_WRITTEN(seen);
    EXPECT(seen.is.mq_flags == O_NONBLOCK && seen.is.mq_curmsgs == 1);
}

CASE(a_deadline_beyond_2106_is_a_deadline) {
    mqd_t queue = create(O_RDWR, 4);
    struct timespec far = {.tv_sec = (time_t)1 << 33};
    pid_t child = fork();
    if (child == 0) {
        struct timespec moment = {.tv_nsec = 20000000};
        nanosleep(&moment, NULL);
        _exit(mq_send(queue, "late", 5, 3) != 0);
    }
    char buffer[16];
    unsigned priority;
    EXPECT(mq_timedreceive(queue, buffer, 16, &priority, &far) == 5 && priority == 3);
    expect_success(child);
}
