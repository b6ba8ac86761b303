/* msgget, msgsnd, msgrcv: in an IPC namespace of the program's own, where that is allowed. */
#include "check.h"
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/syscall.h>

struct message {
    long type;
    char text[64];
};

static int queue_id = -1;
static pid_t id_maker;

static void remove_queue(void) {
    if (getpid() == id_maker) msgctl(queue_id, IPC_RMID, NULL);
}

/* Creates a queue without a key, which is removed when the program ends. Under the drop-in, the kernel has no such queue. */
static int create_id(void) {
    unshare(CLONE_NEWIPC);
    queue_id = msgget(IPC_PRIVATE, 0600);
    EXPECT(queue_id >= 0);
    id_maker = getpid();
    atexit(remove_queue);
    struct msqid_ds kernels;
    if (getenv("UMSG_DIR")) EXPECT_ERRNO(bare_call(SYS_msgctl, queue_id, IPC_STAT, (long)&kernels, 0), EINVAL);
    return queue_id;
}

/* Lets other users into the directory of umsg's queues. Must be called before the first queue is created. */
static void let_others_in(void) {
    if (getenv("UMSG_DIR")) EXPECT(chmod(getenv("UMSG_DIR"), 01777) == 0);
}

static void put(int id, long type, const char *text) {
    struct message message = {.type = type};
    strcpy(message.text, text);
    EXPECT(msgsnd(id, &message, strlen(text), IPC_NOWAIT) == 0);
}

static void expect_text(int id, long wanted, int flags, long type, const char *text) {
    struct message message;
    ssize_t length = msgrcv(id, &message, sizeof message.text, wanted, flags);
    EXPECT(length == (ssize_t)strlen(text) && message.type == type && !memcmp(message.text, text, length));
}

static void fill(int id) {
    char message[sizeof(long) + 4096];
    *(long *)message = 1;
    for (int i = 0; i < 4; i++) EXPECT(msgsnd(id, message, 4096, IPC_NOWAIT) == 0);
    EXPECT_ERRNO(msgsnd(id, message, 1, IPC_NOWAIT), EAGAIN);
}

CASE(messages_are_picked_by_type) {
    int id = create_id();
    const char *sent[] = {"1a", "5b", "3c", "5d", "2e", "9f"};
    for (int i = 0; i < 6; i++) put(id, sent[i][0] - '0', sent[i]);
    expect_text(id, 5, 0, 5, "5b");
    expect_text(id, 0, 0, 1, "1a");
    expect_text(id, -4, 0, 2, "2e");
    expect_text(id, 3, MSG_EXCEPT, 5, "5d");
    expect_text(id, 1, MSG_COPY | IPC_NOWAIT, 9, "9f");
    expect_text(id, LONG_MIN, 0, 3, "3c");
    expect_text(id, LONG_MAX, MSG_EXCEPT, 9, "9f");
    EXPECT_ERRNO(msgrcv(id, sent, 0, 0, IPC_NOWAIT), ENOMSG);
}

CASE(errors_come_in_the_kernels_order) {
    int id = create_id();
    struct message message = {.type = 1};
    EXPECT_ERRNO(msgsnd(-1, nowhere, SIZE_MAX, 0), EFAULT);
    message.type = 0;
    EXPECT_ERRNO(msgsnd(id, &message, 1, 0), EINVAL);
    message.type = 1;
    EXPECT_ERRNO(msgsnd(-1, &message, 1, 0), EINVAL);
    EXPECT_ERRNO(msgsnd(id + 1, &message, 1, 0), EINVAL);
    EXPECT_ERRNO(msgsnd(id + 32768, &message, 1, 0), EINVAL);
    EXPECT_ERRNO(msgsnd(id, &message, 8193, 0), EINVAL);
    EXPECT_ERRNO(msgsnd(id, &message, SIZE_MAX, 0), EINVAL);
    EXPECT_ERRNO(msgrcv(-1, nowhere, SIZE_MAX, 0, 0), EINVAL);
    EXPECT_ERRNO(msgrcv(id, &message, SIZE_MAX, 0, IPC_NOWAIT), EINVAL);
    EXPECT_ERRNO(msgrcv(id, &message, 1, 0, MSG_COPY), EINVAL);
    EXPECT_ERRNO(msgrcv(id, &message, 1, 0, MSG_COPY | IPC_NOWAIT | MSG_EXCEPT), EINVAL);
    EXPECT_ERRNO(msgrcv(id, &message, 1, 0, MSG_COPY | IPC_NOWAIT), ENOMSG);
    EXPECT_ERRNO(msgrcv(id, &message, 1, -1, MSG_COPY | IPC_NOWAIT), ENOMSG);
    put(id, 7, "seven");
    EXPECT_ERRNO(msgrcv(id, &message, 4, 0, 0), E2BIG);
    EXPECT_ERRNO(msgrcv(id, &message, 4, 0, MSG_COPY | IPC_NOWAIT), E2BIG);
    EXPECT_ERRNO(msgrcv(id, &message, 4, 0, MSG_COPY | IPC_NOWAIT | MSG_NOERROR), EINVAL);
    EXPECT(msgrcv(id, &message, 4, 0, MSG_NOERROR) == 4 && !memcmp(message.text, "seve", 4));
}

CASE(bad_addresses_are_efault_and_a_receive_consumes_the_message) {
    int id = create_id();
    EXPECT_ERRNO(msgsnd(id, (void *)8, 1, 0), EFAULT);
    EXPECT_ERRNO(msgrcv(id, nowhere, 16, 0, IPC_NOWAIT), ENOMSG);
    put(id, 1, "x");
    EXPECT_ERRNO(msgrcv(id, nowhere, 16, 0, MSG_COPY | IPC_NOWAIT), EFAULT);
    EXPECT_ERRNO(msgrcv(id, nowhere, 0, 0, IPC_NOWAIT), E2BIG);
    EXPECT_ERRNO(msgrcv(id, nowhere, 16, 0, IPC_NOWAIT), EFAULT);
    EXPECT_ERRNO(msgrcv(id, nowhere, 16, 0, IPC_NOWAIT), ENOMSG);
}

/* The type is at the end of a page, and the text is on the next page. */
CASE(a_text_on_another_page_than_its_type_is_copied_or_efault) {
    int id = create_id();
    long page = sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(pages != MAP_FAILED);
    char *type = pages + page - sizeof(long), *text = pages + page;
    put(id, 1, "x");
    EXPECT(msgrcv(id, type, 16, 0, IPC_NOWAIT) == 1 && *(long *)type == 1 && *text == 'x');
    *text = 'y';
    EXPECT(msgsnd(id, type, 1, 0) == 0);
    EXPECT(mprotect(text, page, PROT_READ) == 0);
    EXPECT_ERRNO(msgrcv(id, type, 16, 0, IPC_NOWAIT), EFAULT);
    EXPECT(*text == 'y');
    EXPECT_ERRNO(msgrcv(id, type, 16, 0, IPC_NOWAIT), ENOMSG);
    EXPECT(mprotect(text, page, PROT_NONE) == 0);
    EXPECT_ERRNO(msgsnd(id, type, 1, 0), EFAULT);
    EXPECT_ERRNO(msgrcv(id, nowhere, 16, 0, IPC_NOWAIT), ENOMSG);
    EXPECT(munmap(pages, 2 * page) == 0);
}

CASE(a_buffer_said_to_be_huge_is_fine) {
    int id = create_id();
    struct message message;
    put(id, 1, "as long as it is");
    EXPECT(msgrcv(id, &message, (size_t)1 << 62, 0, 0) == 16);
    put(id, 1, "");
    EXPECT(msgrcv(id, &message, 0, 0, 0) == 0 && message.type == 1);
}

CASE(keys_lead_to_queues) {
    int first = create_id();
    key_t key = (key_t)getpid() << 8;
    EXPECT_ERRNO(msgget(key, 0), ENOENT);
    int id = msgget(key, IPC_CREAT | 0620);
    EXPECT(id >= 0 && id != first);
    EXPECT(msgget(key, 0) == id && msgget(key, IPC_CREAT | 0777) == id && msgget(key, 0200) == id);
    EXPECT_ERRNO(msgget(key, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
    EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
    EXPECT_ERRNO(msgget(key, 0), ENOENT);
    EXPECT_ERRNO(msgrcv(id, &first, 0, 0, 0), EINVAL);
    EXPECT_ERRNO(msgctl(id, IPC_RMID, NULL), EINVAL);
}

CASE(a_key_leads_to_the_queue_that_took_the_place_of_an_attached_one) {
    create_id();
    key_t key = (key_t)getpid() << 8 | 1;
    for (int round = 0; round < 3; round++) {
        int id = msgget(key, IPC_CREAT | 0600);
        EXPECT(id >= 0);
        put(id, 1, "old");
        EXPECT(msgget(key, 0) == id && msgget(key, IPC_CREAT | 0600) == id);
        pid_t child = fork();
        if (child == 0) {
            EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
            int other = msgget(key, IPC_CREAT | IPC_EXCL | 0600);
            EXPECT(other >= 0 && other != id);
            put(other, 1, "new");
            _exit(0);
        }
        expect_success(child);
        int other = msgget(key, 0);
        EXPECT(other >= 0 && other != id);
        expect_text(other, 0, IPC_NOWAIT, 1, "new");
        EXPECT(msgget(key, 0) == other && msgctl(other, IPC_RMID, NULL) == 0);
        EXPECT_ERRNO(msgget(key, 0), ENOENT);
    }
}

CASE(a_blocked_receiver_gets_what_another_process_sends) {
    int id = create_id();
    pid_t child = fork();
    if (child == 0) {
        expect_text(id, 4, 0, 4, "for you");
        put(id, 5, "thanks");
        _exit(0);
    }
    await_sleep(child);
    put(id, 3, "for nobody");
    put(id, 4, "for you");
    expect_text(id, 5, 0, 5, "thanks");
    expect_success(child);
}

CASE(a_blocked_sender_goes_on_when_there_is_room) {
    int id = create_id();
    fill(id);
    pid_t child = fork();
    if (child == 0) {
        struct message message = {.type = 2, .text = "late"};
        EXPECT(msgsnd(id, &message, 4, 0) == 0);
        _exit(0);
    }
    await_sleep(child);
    char message[sizeof(long) + 4096];
    EXPECT(msgrcv(id, message, 4096, 1, 0) == 4096);
    expect_success(child);
    expect_text(id, 2, IPC_NOWAIT, 2, "late");
}

CASE(who_waits_in_a_removed_queue_is_told_so) {
    int id = create_id();
    fill(id);
    pid_t children[2] = {fork(), 0};
    if (children[0] == 0) {
        struct message message = {.type = 1};
        EXPECT_ERRNO(msgsnd(id, &message, 4, 0), EIDRM);
        EXPECT_ERRNO(msgsnd(id, &message, 4, 0), EINVAL);
        _exit(0);
    }
    children[1] = fork();
    if (children[1] == 0) {
        struct message message;
        EXPECT_ERRNO(msgrcv(id, &message, 4, 99, 0), EIDRM);
        EXPECT_ERRNO(msgrcv(id, &message, 4, 99, 0), EINVAL);
        _exit(0);
    }
    await_sleep(children[0]);
    await_sleep(children[1]);
    EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
    expect_success(children[0]);
    expect_success(children[1]);
    int again = msgget(IPC_PRIVATE, 0600);
    EXPECT(again >= 0 && again != id);
    EXPECT(msgctl(again, IPC_RMID, NULL) == 0);
}

static volatile sig_atomic_t handled;
static void count_signal(int signal) {
    (void)signal;
    handled++;
}

static void handle(int flags) {
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = flags};
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
}

/* Starts a child that sends signals to this process, with a pause in microseconds between them, until the child is killed or its parent has ended. */
static pid_t signal_me(unsigned pause) {
    pid_t me = getpid(), child = fork();
    if (child == 0)
        for (; getppid() == me; usleep(pause)) kill(me, SIGUSR1);
    if (child == 0) _exit(0);
    return child;
}

static void any_handler_ends(int flags) {
    int id = create_id();
    struct message message = {.type = 1};
    handle(flags);
    pid_t child = signal_me(20000);
    for (int i = 0; i < 10; i++) {
        handled = 0;
        EXPECT_ERRNO(msgrcv(id, &message, 4, 0, 0), EINTR);
        EXPECT(handled > 0);
    }
    /* A signal before the supervisor gets a call may interrupt the call, even if the call does not block. So the signal is blocked during fill(). */
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    EXPECT(sigprocmask(SIG_BLOCK, &signals, &before) == 0);
    fill(id);
    EXPECT(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    for (int i = 0; i < 10; i++) {
        handled = 0;
        EXPECT_ERRNO(msgsnd(id, &message, 4, 0), EINTR);
        EXPECT(handled > 0);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

CASE(a_handler_ends_a_blocked_call) { any_handler_ends(0); }

CASE(a_handler_with_sa_restart_ends_a_blocked_call) { any_handler_ends(SA_RESTART); }

CASE(a_handler_that_runs_as_the_call_begins_ends_it) {
    int id = create_id();
    struct message message;
    handle(SA_RESTART);
    pid_t child = signal_me(1);
    for (int i = 0; i < 1000; i++) EXPECT_ERRNO(msgrcv(id, &message, 4, 0, 0), EINTR);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static int handlers_id;
static void send_from_handler(int signal) {
    struct message message = {.type = signal, .text = "from a handler"};
    if (msgsnd(handlers_id, &message, 14, IPC_NOWAIT) == 0) handled++;
}

CASE(a_signal_handler_may_send_and_receive) {
    int id = handlers_id = create_id();
    struct sigaction action = {.sa_handler = send_from_handler, .sa_flags = SA_RESTART};
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    pid_t child = signal_me(20000);
    struct message message;
    while (handled < 20) {
        put(id, 1, "from outside");
        expect_text(id, 1, 0, 1, "from outside");
        while (msgrcv(id, &message, 64, SIGUSR1, IPC_NOWAIT) == 14) {}
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void *receive_for_ever(void *tid) {
    struct message message;
    *(pid_t *)tid = gettid();
    msgrcv(queue_id, &message, 4, 99, 0);
    return NULL;
}

static void *send_for_ever(void *tid) {
    struct message message = {.type = 1};
    *(pid_t *)tid = gettid();
    msgsnd(queue_id, &message, 4, 0);
    return NULL;
}

static void expect_cancelled(void *(*run)(void *)) {
    volatile pid_t tid = 0;
    pthread_t thread;
    void *outcome;
    EXPECT(pthread_create(&thread, NULL, run, (void *)&tid) == 0);
    while (!tid) usleep(1000);
    await_sleep(tid);
    EXPECT(pthread_cancel(thread) == 0);
    EXPECT(pthread_join(thread, &outcome) == 0 && outcome == PTHREAD_CANCELED);
}

static void *act_when_cancelled(void *unused) {
    (void)unused;
    pthread_cancel(pthread_self());
    struct message message;
    msgrcv(queue_id, &message, 4, 1, IPC_NOWAIT);
    return NULL;
}

CASE(blocked_threads_can_be_cancelled) {
    int id = create_id();
    expect_cancelled(receive_for_ever);
    fill(id);
    expect_cancelled(send_for_ever);
    char message[sizeof(long) + 4096];
    for (int i = 0; i < 4; i++) EXPECT(msgrcv(id, message, 4096, 0, IPC_NOWAIT) == 4096);
    EXPECT_ERRNO(msgrcv(id, message, 4096, 0, IPC_NOWAIT), ENOMSG);
}

CASE(a_cancelled_thread_ends_before_it_takes_a_message) {
    int id = create_id();
    put(id, 1, "kept");
    pthread_t thread;
    void *outcome;
    EXPECT(pthread_create(&thread, NULL, act_when_cancelled, NULL) == 0);
    EXPECT(pthread_join(thread, &outcome) == 0 && outcome == PTHREAD_CANCELED);
    expect_text(id, 1, IPC_NOWAIT, 1, "kept");
}

CASE(who_gives_up_his_user_gives_up_its_rights) {
    let_others_in();
    int id = create_id();
    if (geteuid() != 0) return;
    put(id, 1, "of root");
    struct message message = {.type = 1};
    EXPECT(seteuid(65534) == 0);
    EXPECT_ERRNO(msgsnd(id, &message, 1, IPC_NOWAIT), EACCES);
    EXPECT_ERRNO(msgrcv(id, &message, 64, 0, IPC_NOWAIT), EACCES);
    EXPECT_ERRNO(msgctl(id, IPC_RMID, NULL), EPERM);
    int own = msgget(IPC_PRIVATE, 0200);
    EXPECT(own >= 0 && msgsnd(own, &message, 1, IPC_NOWAIT) == 0);
    EXPECT_ERRNO(msgrcv(own, &message, 1, 0, IPC_NOWAIT), EACCES);
    EXPECT(seteuid(0) == 0);
    expect_text(id, 1, IPC_NOWAIT, 1, "of root");
    EXPECT(msgrcv(own, &message, 1, 0, IPC_NOWAIT) == 1);
    EXPECT(msgctl(own, IPC_RMID, NULL) == 0);
}

CASE(a_strangers_queue_can_be_named_but_not_used) {
    let_others_in();
    int id = create_id();
    if (geteuid() != 0) return;
    key_t key = (key_t)getpid() << 8;
    int keyed = msgget(key, IPC_CREAT | 0600);
    EXPECT(keyed >= 0);
    pid_t child = fork();
    if (child == 0) {
        static struct {
            long type;
            char text[8193];
        } message = {.type = 1};
        EXPECT(setgid(65534) == 0 && setuid(65534) == 0);
        EXPECT_ERRNO(msgsnd(id, &message, 1, IPC_NOWAIT), EACCES);
        EXPECT(msgget(key, 0) == keyed);
        EXPECT_ERRNO(msgget(key, 0400), EACCES);
        message.type = 0;
        EXPECT_ERRNO(msgsnd(keyed, &message, 1, IPC_NOWAIT), EINVAL);
        message.type = 1;
        EXPECT_ERRNO(msgsnd(keyed, &message, 8193, IPC_NOWAIT), EINVAL);
        EXPECT_ERRNO(msgsnd(keyed, &message, 8192, IPC_NOWAIT), EACCES);
        EXPECT_ERRNO(msgrcv(keyed, &message, 8192, 0, IPC_NOWAIT), EACCES);
        EXPECT_ERRNO(msgctl(keyed, IPC_RMID, NULL), EPERM);
        _exit(0);
    }
    expect_success(child);
    EXPECT(msgctl(keyed, IPC_RMID, NULL) == 0);
}

CASE(a_child_of_vfork_may_send) {
    int id = create_id();
    pid_t child = vfork();
    if (child == 0) {
        static struct message message = {.type = 6, .text = "vfork"};
        _exit(msgsnd(queue_id, &message, 5, IPC_NOWAIT));
    }
    expect_success(child);
    expect_text(id, 0, IPC_NOWAIT, 6, "vfork");
}

CASE(the_last_sender_and_receiver_are_named) {
    int id = create_id();
    put(id, 1, "first");
    pid_t child = fork();
    if (child == 0) {
        expect_text(id, 1, 0, 1, "first");
        /* In most runs, this receive waits. */
        expect_text(id, 2, 0, 2, "second");
        _exit(0);
    }
    put(id, 2, "second");
    expect_success(child);
    struct msqid_ds state;
    EXPECT(msgctl(id, IPC_STAT, &state) == 0);
    EXPECT(state.msg_lspid == getpid() && state.msg_lrpid == child);
}

/* Creates and removes five queues. The third and later queues use one segment. */
static void make_some(key_t key) {
    for (int i = 0; i < 5; i++) {
        int id = msgget(key, IPC_CREAT | 0600);
        EXPECT(id >= 0 && msgctl(id, IPC_RMID, NULL) == 0);
    }
}

CASE(each_queue_in_a_row_is_new_and_has_another_identifier) {
    int other = create_id(), before = -1;
    put(other, 3, "stays");
    for (int i = 0; i < 4000; i++) {
        key_t key = i < 2000 ? IPC_PRIVATE : 0x55;
        int id = msgget(key, IPC_CREAT | IPC_EXCL | 0600);
        EXPECT(id >= 0 && id != before && id != other);
        struct msqid_ds state;
        EXPECT(msgctl(id, IPC_STAT, &state) == 0);
        EXPECT(state.msg_qnum == 0 && state.msg_lspid == 0 && state.msg_stime == 0 && state.msg_perm.__key == key);
        if (key != IPC_PRIVATE) EXPECT(msgget(key, 0) == id);
        if (before >= 0) {
            EXPECT_ERRNO(msgctl(before, IPC_STAT, &state), EINVAL);
            EXPECT_ERRNO(msgsnd(before, &(struct message){.type = 1}, 1, IPC_NOWAIT), EINVAL);
            EXPECT_ERRNO(msgctl(before, IPC_RMID, NULL), EINVAL);
        }
        put(id, i + 1, "a short one");
        if (i % 3 == 0) put(id, 5, "one that is longer than what a cell of a queue takes");
        expect_text(id, i + 1, IPC_NOWAIT, i + 1, "a short one");
        EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
        if (key != IPC_PRIVATE) EXPECT_ERRNO(msgget(key, 0), ENOENT);
        before = id;
    }
    expect_text(other, 0, IPC_NOWAIT, 3, "stays");
}

static _Atomic pid_t receiver;

static void *receive_until_removed(void *id) {
    struct message message;
    receiver = (pid_t)syscall(SYS_gettid);
    EXPECT_ERRNO(msgrcv(*(int *)id, &message, sizeof message.text, 0, 0), EIDRM);
    return NULL;
}

CASE(who_waits_in_one_of_many_queues_in_a_row_is_told_of_its_removal) {
    create_id();
    make_some(IPC_PRIVATE);
    for (int i = 0; i < 20; i++) {
        int id = msgget(IPC_PRIVATE, 0600);
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, receive_until_removed, &id) == 0);
        struct msqid_ds state;
        while (receiver == 0) usleep(100);
        await_sleep(receiver);
        receiver = 0;
        EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
        int next = msgget(IPC_PRIVATE, 0600);
        put(next, 1, "for another");
        EXPECT(pthread_join(thread, NULL) == 0);
        EXPECT(msgctl(next, IPC_STAT, &state) == 0 && state.msg_qnum == 1);
        EXPECT(msgctl(next, IPC_RMID, NULL) == 0);
    }
}

CASE(a_child_keeps_away_from_the_queues_that_its_parent_makes_later) {
    create_id();
    make_some(IPC_PRIVATE);
    int id = msgget(IPC_PRIVATE, 0600), pipes[2];
    EXPECT(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        EXPECT(read(pipes[0], &byte, 1) == 1);
        struct message message = {.type = 1};
        EXPECT_ERRNO(msgrcv(id, &message, sizeof message.text, 0, IPC_NOWAIT), EINVAL);
        EXPECT_ERRNO(msgsnd(id, &message, 1, IPC_NOWAIT), EINVAL);
        make_some(IPC_PRIVATE);
        _exit(0);
    }
    EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
    make_some(IPC_PRIVATE);
    int next = msgget(IPC_PRIVATE, 0600);
    put(next, 2, "the parent's");
    EXPECT(write(pipes[1], "x", 1) == 1);
    expect_success(child);
    expect_text(next, 0, IPC_NOWAIT, 2, "the parent's");
    EXPECT(msgctl(next, IPC_RMID, NULL) == 0);
}

/* Writes the path of the directory of the queues' files. If this process has moved to another IPC namespace, that namespace has its own
 * directory. */
static void directory(char *path, size_t size) {
    glob_t found;
    snprintf(path, size, "%s/ipc-*/msg", getenv("UMSG_DIR"));
    if (glob(path, 0, NULL, &found) == 0)
        snprintf(path, size, "%s", found.gl_pathv[0]);
    else
        snprintf(path, size, "%s/msg", getenv("UMSG_DIR"));
    globfree(&found);
}

static int mappings(void) {
    char line[512], queues[256];
    int found = 0;
    directory(queues, sizeof queues);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) found += strstr(line, queues) != NULL;
    fclose(maps);
    return found;
}

CASE(removed_queues_are_unmapped) {
    int id = create_id(), before = mappings();
    EXPECT(before == 1);
    for (int i = 0; i < 3000; i++) {
        int other = msgget(IPC_PRIVATE, 0600);
        put(other, 1, "x");
        if (i % 2) {
            EXPECT(msgctl(other, IPC_RMID, NULL) == 0);
            continue;
        }
        /* Another process removes the queue, and this process does not notice the removal. */
        pid_t child = fork();
        if (child == 0) _exit(msgctl(other, IPC_RMID, NULL));
        expect_success(child);
    }
    EXPECT(mappings() < 1000);
    put(id, 1, "still there");
}

static ino_t file_of(int id) {
    char queues[256], path[300];
    struct stat state;
    directory(queues, sizeof queues);
    snprintf(path, sizeof path, "%s/%d", queues, id % 32768);
    EXPECT(stat(path, &state) == 0);
    return state.st_ino;
}

CASE(a_queue_in_a_row_takes_no_file) {
    create_id();
    make_some(IPC_PRIVATE);
    ino_t file = 0;
    int changes = 0;
    for (int i = 0; i < 900; i++) {
        int id = msgget(IPC_PRIVATE, 0600);
        put(id, 1, "a message");
        changes += file_of(id) != file;
        file = file_of(id);
        EXPECT(msgctl(id, IPC_RMID, NULL) == 0);
    }
    EXPECT(changes <= 2);
    make_some(0x66);
    EXPECT(mappings() < 10);
}
