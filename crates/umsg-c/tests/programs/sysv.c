/* An ordinary program for System V queues. It runs on the kernel's queues and, recompiled, on umsg's queues. */
#include "claims.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct message {
    long type;
    char text[100];
};

static int queue = -1;

static pid_t maker;

static void remove_queue(void)
{
    if (queue >= 0 && getpid() == maker)
        msgctl(queue, IPC_RMID, NULL);
}

static void make(void)
{
    queue = msgget(IPC_PRIVATE, 0600);
    CHECK(queue >= 0);
}

static void done(void)
{
    CHECK(msgctl(queue, IPC_RMID, NULL) == 0);
    queue = -1;
}

static void put(long type, const char *text)
{
    struct message message;
    message.type = type;
    strcpy(message.text, text);
    CHECK(msgsnd(queue, &message, strlen(text), IPC_NOWAIT) == 0);
}

/* Receives a message of the wanted type, and checks its type and text. */
static void get(long wanted, int flags, long type, const char *text)
{
    struct message message;
    ssize_t length = msgrcv(queue, &message, sizeof message.text, wanted, flags | IPC_NOWAIT);
    CHECK(length == (ssize_t)strlen(text) && memcmp(message.text, text, strlen(text)) == 0);
    CHECK(message.type == type);
}

static struct msqid_ds stat_of(int id)
{
    struct msqid_ds stat;
    memset(&stat, 0xff, sizeof stat);
    CHECK(msgctl(id, IPC_STAT, &stat) == 0);
    return stat;
}

static void messages_are_picked_by_type(void)
{
    make();
    put(5, "a"), put(3, "b"), put(9, "c"), put(3, "d"), put(5, "e"), put(LONG_MAX, "f");
    get(9, 0, 9, "c");
    get(5, MSG_EXCEPT, 3, "b");
    get(-4, 0, 3, "d");
    get(0, 0, 5, "a");
    get(LONG_MIN, 0, 5, "e");
    get(LONG_MIN, 0, LONG_MAX, "f");
    done();
}

static void errors_are_those_of_the_manual(void)
{
    struct message message = {1, "text"};
    char *huge = calloc(1, 8192 + 1 + sizeof(long));
    CHECK(huge != NULL);
    *(long *)(void *)huge = 1;
    make();
    FAILS(msgsnd(queue, huge, 8193, 0), EINVAL);
    FAILS(msgsnd(queue, huge, (size_t)-1, 0), EINVAL);
    FAILS(msgsnd(-1, &message, 4, 0), EINVAL);
    FAILS(msgsnd(queue, NULL, 4, 0), EFAULT);
    message.type = 0;
    FAILS(msgsnd(queue, &message, 4, 0), EINVAL);
    FAILS(msgrcv(queue, &message, sizeof message.text, 0, IPC_NOWAIT), ENOMSG);
    FAILS(msgrcv(queue, &message, (size_t)-1, 0, IPC_NOWAIT), EINVAL);
    FAILS(msgrcv(-1, &message, 4, 0, IPC_NOWAIT), EINVAL);
    put(7, "123456");
    FAILS(msgrcv(queue, &message, 5, 7, IPC_NOWAIT), E2BIG);
    FAILS(msgrcv(queue, &message, 100, 8, IPC_NOWAIT), ENOMSG);
    CHECK(msgrcv(queue, &message, 5, 7, MSG_NOERROR) == 5 && memcmp(message.text, "12345", 5) == 0);
    FAILS(msgrcv(queue, &message, 5, 7, IPC_NOWAIT), ENOMSG);
    put(1, "gone");
    FAILS(msgrcv(queue, NULL, 100, 0, IPC_NOWAIT), EFAULT);
    FAILS(msgrcv(queue, &message, 100, 0, IPC_NOWAIT), ENOMSG);
    FAILS(msgctl(queue, 4711, NULL), EINVAL);
    FAILS(msgctl(queue, IPC_STAT, NULL), EFAULT);
    FAILS(msgctl(queue, IPC_SET, NULL), EFAULT);
    FAILS(msgctl(-1, IPC_RMID, NULL), EINVAL);
    free(huge);
    done();
}

static void a_copy_leaves_the_message(void)
{
    struct message message;
    make();
    put(3, "first"), put(2, "second");
    if (msgrcv(queue, &message, 100, 1, MSG_COPY | IPC_NOWAIT) == -1 && errno == ENOSYS) {
        done();
        return;
    }
    CHECK(msgrcv(queue, &message, 100, 1, MSG_COPY | IPC_NOWAIT) == 6 && message.type == 2);
    CHECK(memcmp(message.text, "second", 6) == 0);
    FAILS(msgrcv(queue, &message, 100, 2, MSG_COPY | IPC_NOWAIT), ENOMSG);
    FAILS(msgrcv(queue, &message, 100, 0, MSG_COPY), EINVAL);
    FAILS(msgrcv(queue, &message, 100, 0, MSG_COPY | IPC_NOWAIT | MSG_EXCEPT), EINVAL);
    FAILS(msgrcv(queue, &message, 4, 0, MSG_COPY | IPC_NOWAIT), E2BIG);
    FAILS(msgrcv(queue, &message, 4, 0, MSG_COPY | IPC_NOWAIT | MSG_NOERROR), EINVAL);
    get(0, 0, 3, "first");
    get(0, 0, 2, "second");
    done();
}

static void a_key_leads_to_a_queue_whose_number_is_used_once(void)
{
    key_t key = (key_t)(0x75000000 | (getpid() & 0xffffff));
    int old;
    struct message message = {1, ""};
    FAILS(msgget(key, 0), ENOENT);
    queue = msgget(key, IPC_CREAT | IPC_EXCL | 0600);
    CHECK(queue >= 0);
    CHECK(msgget(key, 0) == queue && msgget(key, IPC_CREAT | 0600) == queue);
    FAILS(msgget(key, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
    CHECK(stat_of(queue).msg_perm.__key == key);
    old = queue;
    done();
    FAILS(msgsnd(old, &message, 0, 0), EINVAL);
    FAILS(msgctl(old, IPC_RMID, NULL), EINVAL);
    FAILS(msgget(key, 0), ENOENT);
    make();
    CHECK(queue != old);
    CHECK(stat_of(queue).msg_perm.__key == IPC_PRIVATE);
    done();
}

static void a_queue_tells_of_itself(void)
{
    struct msqid_ds stat;
    time_t now = time(NULL);
    make();
    stat = stat_of(queue);
    CHECK(stat.msg_qnum == 0 && stat.__msg_cbytes == 0 && stat.msg_qbytes == 16384);
    CHECK(stat.msg_stime == 0 && stat.msg_rtime == 0 && stat.msg_lspid == 0 && stat.msg_lrpid == 0);
    CHECK(stat.msg_ctime >= now - 1 && stat.msg_ctime <= now + 60);
    CHECK(stat.msg_perm.uid == geteuid() && stat.msg_perm.cgid == getegid());
    CHECK(stat.msg_perm.mode == 0600);
    put(1, "12345"), put(2, "678");
    get(2, 0, 2, "678");
    stat = stat_of(queue);
    CHECK(stat.msg_qnum == 1 && stat.__msg_cbytes == 5);
    CHECK(stat.msg_lspid == getpid() && stat.msg_lrpid == getpid());
    CHECK(stat.msg_stime >= now - 1 && stat.msg_rtime >= now - 1);
    done();
}

static void a_smaller_queue_is_full_earlier(void)
{
    struct msqid_ds stat;
    struct message message = {1, "x"};
    make();
    stat = stat_of(queue);
    stat.msg_qbytes = 3;
    stat.msg_perm.mode = 0640;
    CHECK(msgctl(queue, IPC_SET, &stat) == 0);
    stat = stat_of(queue);
    CHECK(stat.msg_qbytes == 3 && stat.msg_perm.mode == 0640);
    put(1, "123");
    FAILS(msgsnd(queue, &message, 1, IPC_NOWAIT), EAGAIN);
    get(0, 0, 1, "123");
    put(1, ""), put(1, ""), put(1, "");
    FAILS(msgsnd(queue, &message, 0, IPC_NOWAIT), EAGAIN);
    done();
}

static void all_queues_can_be_listed(void)
{
    struct msqid_ds stat;
    struct msginfo info;
    int highest, index, seen = 0;
    make();
    put(1, "12345");
    highest = msgctl(0, MSG_INFO, (struct msqid_ds *)(void *)&info);
    CHECK(highest >= 0 && info.msgpool >= 1 && info.msgmap >= 1 && info.msgtql >= 5);
    for (index = 0; index <= highest; index++)
        seen += msgctl(index, MSG_STAT, &stat) == queue && stat.msg_qnum == 1;
    CHECK(seen == 1);
    CHECK(msgctl(0, IPC_INFO, (struct msqid_ds *)(void *)&info) == highest);
    CHECK(info.msgmax >= 8192 && info.msgmnb >= 16384 && info.msgmni >= 1);
    done();
}

static void *receive(void *outcome)
{
    struct message message;
    ssize_t length = msgrcv(queue, &message, sizeof message.text, 7, 0);
    *(int *)outcome = length < 0 ? errno : (int)message.type;
    return NULL;
}

static void short_sleep(void)
{
    const struct timespec time = {0, 50000000};
    nanosleep(&time, NULL);
}

static void who_waits_gets_what_he_wants_or_is_told_of_the_end(void)
{
    pthread_t thread;
    int outcome = 0;
    make();
    CHECK(pthread_create(&thread, NULL, receive, &outcome) == 0);
    short_sleep();
    put(6, "not this"), put(7, "this");
    CHECK(pthread_join(thread, NULL) == 0 && outcome == 7);
    CHECK(pthread_create(&thread, NULL, receive, &outcome) == 0);
    short_sleep();
    done();
    CHECK(pthread_join(thread, NULL) == 0);
    /* If the thread calls after the removal, it finds no queue: EINVAL. */
    CHECK(outcome == EIDRM || outcome == EINVAL);
}

static void ignore(int signal)
{
    (void)signal;
}

static void a_handler_ends_a_wait_even_if_calls_are_restarted(void)
{
    struct sigaction action;
    struct message message;
    pid_t child, me = getpid();
    int status;
    memset(&action, 0, sizeof action);
    action.sa_handler = ignore;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    make();
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* The child repeats the signal, because the first one may arrive before the parent waits. */
        while (getppid() == me) {
            short_sleep();
            kill(me, SIGUSR1);
        }
        _exit(0);
    }
    FAILS(msgrcv(queue, &message, sizeof message.text, 0, 0), EINTR);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    done();
}

int main(void)
{
    maker = getpid();
    CHECK(atexit(remove_queue) == 0);
    messages_are_picked_by_type();
    errors_are_those_of_the_manual();
    a_copy_leaves_the_message();
    a_key_leads_to_a_queue_whose_number_is_used_once();
    a_queue_tells_of_itself();
    a_smaller_queue_is_full_earlier();
    all_queues_can_be_listed();
    who_waits_gets_what_he_wants_or_is_told_of_the_end();
    a_handler_ends_a_wait_even_if_calls_are_restarted();
    puts("all of it");
    return 0;
}
