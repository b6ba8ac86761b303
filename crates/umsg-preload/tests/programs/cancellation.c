/* Cancelled threads: on entry to a call, in a blocked call, and at any other instruction. */
#include "check.h"
#include "cancelled.h"
#include <sys/msg.h>
#include <ucontext.h>

/* Reports a use of a wrong address: prints the registers of the thread and the mappings of the process. Then ends the process. */
static void show_place(int number, siginfo_t *info, void *context) {
    const mcontext_t *machine = &((ucontext_t *)context)->uc_mcontext;
#ifdef __x86_64__
    unsigned long long place = (unsigned long long)machine->gregs[REG_RIP], caller = 0;
    unsigned long long stack = (unsigned long long)machine->gregs[REG_RSP];
#else
    unsigned long long place = machine->pc, caller = machine->regs[30], stack = machine->sp;
#endif
    fprintf(stderr, "signal %d at instruction %#llx, stack %#llx, return address %#llx, for address %p\n", number, place,
            stack, caller, info->si_addr);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps && fgets(line, sizeof line, maps)) fputs(line, stderr);
    _exit(98);
}

static void show_wrong_addresses(void) {
    struct sigaction action = {.sa_sigaction = show_place, .sa_flags = SA_SIGINFO};
    EXPECT(sigaction(SIGSEGV, &action, NULL) == 0);
}

static mqd_t queue;
static int queue_id = -1;

static void remove_id(void) {
    if (queue_id >= 0 && getpid() == queue_maker) msgctl(queue_id, IPC_RMID, NULL);
}

/* Creates a POSIX queue for one message, and a System V queue for 16 bytes. */
static void create_both(void) {
    queue = create(O_RDWR, 1);
    queue_id = msgget(IPC_PRIVATE, 0600);
    atexit(remove_id);
    struct msqid_ds status;
    EXPECT(queue_id >= 0 && msgctl(queue_id, IPC_STAT, &status) == 0);
    status.msg_qbytes = 16;
    EXPECT(msgctl(queue_id, IPC_SET, &status) == 0);
}

struct message {
    long type;
    char text[16];
};

static struct message message = {1, "0123456789abcde"};

/* Makes the call that the letter selects. A call succeeds only if the queue has room or a message. */
static long call(int which) {
    struct timespec later = in_ms(60000);
    struct message found;
    switch (which) {
    case 's': return mq_send(queue, message.text, 16, 0);
    case 'S': return mq_timedsend(queue, message.text, 16, 0, &later);
    case 'r': return mq_receive(queue, found.text, 16, NULL);
    case 'R': return mq_timedreceive(queue, found.text, 16, NULL, &later);
    case 'm': return msgsnd(queue_id, &message, 16, 0);
    case 'M': return msgrcv(queue_id, &found, 16, 0, 0);
    default: abort();
    }
}

static int sends(int which) { return strchr("sSm", which) != NULL; }

static long messages(int which) {
    if (strchr("sSrR", which)) return count(queue);
    struct msqid_ds status;
    EXPECT(msgctl(queue_id, IPC_STAT, &status) == 0);
    return (long)status.msg_qnum;
}

/* Returns the letter of the call that makes this call possible. */
static int opposite(int which) { return "rRsSMm"[strchr("sSrRmM", which) - "sSrRmM"]; }

static void *call_when_cancelled(void *which) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    pthread_cleanup_push(clean_up, NULL);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    call(*(char *)which);
    pthread_cleanup_pop(0);
    return NULL;
}

CASE(a_cancelled_thread_ends_on_entry) {
    create_both();
    pthread_barrier_init(&barrier, NULL, 2);
    int round = 0;
    for (const char *which = "sSrRmM"; *which; which++) {
        if (!sends(*which)) call(opposite(*which));
        long before = messages(*which);
        for (int i = 0; i < 3; i++) {
            pthread_t thread;
            void *result;
            EXPECT(pthread_create(&thread, NULL, call_when_cancelled, (void *)which) == 0);
            pthread_barrier_wait(&barrier);
            EXPECT(pthread_cancel(thread) == 0);
            pthread_barrier_wait(&barrier);
            EXPECT(pthread_join(thread, &result) == 0);
            EXPECT(result == PTHREAD_CANCELED && cleaned_up == ++round && messages(*which) == before);
        }
        if (before) call(*which);
    }
}

static int type_of_threads = PTHREAD_CANCEL_DEFERRED;

static void *block_in_call(void *which) {
    pthread_setcanceltype(type_of_threads, NULL);
    pthread_cleanup_push(clean_up, NULL);
    pthread_barrier_wait(&barrier);
    call(*(char *)which);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Cancels threads that are blocked, are about to block, or spin. The cancelled threads take no message, and later calls work. */
static void cancel_blocked(char which) {
    if (sends(which)) EXPECT(call(which) >= 0);
    cleaned_up = 0;
    int all = rounds(3000);
    for (int round = 1; round <= all; round++) {
        pthread_t thread = started(block_in_call, &which);
        if (round % (all / 3) == 0) usleep(150000);
        for (volatile int i = 0; i < round % 100 * 1000; i++) {}
        expect_cancelled(thread);
        EXPECT(type_of_threads || cleaned_up == round);
    }
    EXPECT(messages(which) == sends(which));
    if (!sends(which)) EXPECT(call(opposite(which)) >= 0 && messages(which) == 1);
    EXPECT(call(sends(which) ? opposite(which) : which) == 16 && messages(which) == 0);
}

static void cancel_blocked_in(char which) {
    create_both();
    pthread_barrier_init(&barrier, NULL, 2);
    cancel_blocked(which);
}

CASE(cancelled_threads_end_in_a_blocked_receive) { cancel_blocked_in('r'); }

CASE(cancelled_threads_end_in_a_blocked_timed_receive) { cancel_blocked_in('R'); }

CASE(cancelled_threads_end_in_a_blocked_send) { cancel_blocked_in('s'); }

CASE(cancelled_threads_end_in_a_blocked_msgrcv) { cancel_blocked_in('M'); }

CASE(cancelled_threads_end_in_a_blocked_msgsnd) { cancel_blocked_in('m'); }

CASE(threads_that_may_be_ended_anywhere_end_in_a_blocked_call) {
    show_wrong_addresses();
    create_both();
    pthread_barrier_init(&barrier, NULL, 2);
    type_of_threads = PTHREAD_CANCEL_ASYNCHRONOUS;
    for (const char *which = "rsMm"; *which; which++) cancel_blocked(*which);
}

/* Uses queues that no other thread uses, so that no call blocks. */
static void *use_without_end(void *unused) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_barrier_wait(&barrier);
    for (;;)
        for (const char *which = "srmM"; *which; which++) call(*which);
    return unused;
}

static void drain(void) {
    while (count(queue) > 0) EXPECT(call('r') == 16);
    while (messages('M') > 0) EXPECT(call('M') == 16);
}

CASE(threads_ended_anywhere_leave_queues_that_can_be_used) {
    show_wrong_addresses();
    create_both();
    pthread_barrier_init(&barrier, NULL, 2);
    int all = rounds(3000);
    for (int round = 1; round <= all; round++) {
        pthread_t thread = started(use_without_end, NULL);
        for (volatile int i = 0; i < round % 100 * 500; i++) {}
        expect_cancelled(thread);
        drain();
        EXPECT(call('s') == 0 && call('r') == 16 && call('m') == 0 && call('M') == 16);
    }
}

static void *receive_uncancelled(void *unused) {
    char buffer[16];
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_setcanceltype(type_of_threads, NULL);
    pthread_cleanup_push(clean_up, NULL);
    pthread_barrier_wait(&barrier);
    EXPECT(mq_receive(queue, buffer, 16, NULL) == 4);
    EXPECT(cleaned_up == 0);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    mq_receive(queue, buffer, 16, NULL);
    pthread_cleanup_pop(0);
    return unused;
}

CASE(where_cancellation_is_disabled_a_blocked_receive_goes_on) {
    queue = create(O_RDWR, 1);
    pthread_barrier_init(&barrier, NULL, 2);
    for (type_of_threads = 0; type_of_threads < 2; type_of_threads++) {
        pthread_t thread;
        void *result;
        cleaned_up = 0;
        EXPECT(pthread_create(&thread, NULL, receive_uncancelled, NULL) == 0);
        pthread_barrier_wait(&barrier);
        usleep(50000);
        EXPECT(pthread_cancel(thread) == 0);
        usleep(50000);
        EXPECT(pthread_tryjoin_np(thread, NULL) == EBUSY);
        EXPECT(mq_send(queue, "late", 4, 0) == 0);
        EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && cleaned_up == 1);
    }
}

CASE(the_type_of_cancellation_is_the_programs) {
    create_both();
    int before;
    EXPECT(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before) == 0 && before == PTHREAD_CANCEL_DEFERRED);
    for (const char *which = "srmM"; *which; which++) EXPECT(call(*which) >= 0);
    EXPECT(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before) == 0 && before == PTHREAD_CANCEL_ASYNCHRONOUS);
    for (const char *which = "srmM"; *which; which++) EXPECT(call(*which) >= 0);
    EXPECT(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before) == 0 && before == PTHREAD_CANCEL_DEFERRED);
    EXPECT(pthread_setcanceltype(99, NULL) == EINVAL);
}

static int ends[2];

static void *read_pipe(void *unused) {
    char buffer[16];
    pthread_cleanup_push(clean_up, NULL);
    pthread_barrier_wait(&barrier);
    EXPECT(read(ends[0], buffer, 16) == 0);
    pthread_cleanup_pop(0);
    return unused;
}

CASE(a_thread_that_reads_another_file_can_be_cancelled) {
    queue = create(O_RDWR, 1);
    pthread_barrier_init(&barrier, NULL, 2);
    EXPECT(pipe(ends) == 0);
    for (int round = 1; round <= 100; round++) {
        pthread_t thread = started(read_pipe, NULL);
        if (round % 2) usleep(1000);
        expect_cancelled(thread);
        EXPECT(cleaned_up == round);
    }
}

static int opened;

/* Opens and closes queues while a cancellation is pending. With the kernel's queues, none of these calls is a cancellation point. */
static void *open_when_cancelled(void *unused) {
    pthread_cancel(pthread_self());
    for (int round = 0; round < 2; round++) {
        mqd_t same = mq_open(name(), O_RDWR), reader = mq_open(name(), O_RDONLY);
        if (same >= 0 && reader >= 0 && mq_close(same) == 0 && mq_close(reader) == 0) opened++;
        if (mq_open("/umsg-preload-no-such-queue", O_RDWR) == -1) opened++;
    }
    pthread_testcancel();
    return unused;
}

CASE(opening_and_closing_a_queue_are_no_cancellation_points) {
    create(O_RDWR, 1);
    pthread_t thread;
    void *result;
    EXPECT(pthread_create(&thread, NULL, open_when_cancelled, NULL) == 0);
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && opened == 4);
}
