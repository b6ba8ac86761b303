/* `stream send N`: sends the numbers from 0 to N - 1, and prints each sent number. `stream receive`: prints each received number. Both commands end
 * at the first error, and print the error's name. `stream trap`: tests the program's own handler of SIGSYS and its own filter. `stream storm N`,
 * `stream storm-sysv N`: a child sends N messages to its parent, while signals interrupt both processes. `stream list`, `stream remove`: do the same
 * as ipcs(1) and ipcrm(1). `stream thread`: tests notifications by a thread. `stream stuck`: makes a call whose message can't be read at first, and
 * other calls meanwhile. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static mqd_t open_queue(void) {
    struct mq_attr attributes = {.mq_maxmsg = 10, .mq_msgsize = 16};
    mqd_t queue = mq_open("/stream", O_RDWR | O_CREAT, 0600, &attributes);
    if (queue == -1) {
        perror("mq_open");
        exit(1);
    }
    return queue;
}

static void end(void) {
    printf("error %s\n", errno == ENOSYS ? "ENOSYS" : strerror(errno));
    exit(0);
}

static volatile sig_atomic_t trapped;

static void on_sigsys(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    trapped = info->si_code == 1 ? info->si_syscall : -1;
}

/* Tests a program with its own seccomp filter, which traps getpriority. */
static int trap(void) {
    struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;
    syscall(SYS_getpriority, 0, 0);
    if (trapped != SYS_getpriority) return 2;
    mqd_t queue = open_queue();
    char text[16];
    if (mq_send(queue, "own", 3, 0) || mq_receive(queue, text, 16, NULL) != 3) return 3;
    if (kill(getpid(), SIGSYS) || trapped != -1) return 4;
    if (mq_unlink("/stream")) return 5;
    puts("trapped");
    return 0;
}

static void ignore(int signal) { (void)signal; }

/* Raises a signal every 100 microseconds from now on. Calls on POSIX queues continue after the signal, calls on System V queues fail with EINTR. */
static void storm(void) {
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval each = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &each, NULL);
}

static int weather(long most) {
    mqd_t queue = open_queue();
    if (fork() == 0) {
        storm();
        for (long i = 0; i < most; i++)
            if (mq_send(queue, (char *)&i, sizeof i, 0)) _exit(1);
        _exit(0);
    }
    storm();
    char text[16];
    for (long i = 0; i < most; i++) {
        long found = -1;
        if (mq_receive(queue, text, sizeof text, NULL) != sizeof found) end();
        memcpy(&found, text, sizeof found);
        if (found != i) return printf("%ld in place of %ld\n", found, i), 1;
    }
    mq_unlink("/stream");
    puts("complete");
    return 0;
}

struct numbered {
    long type, number;
    char rest[2000];
};

static int weather_sysv(long most) {
    int id = msgget(IPC_PRIVATE, 0600);
    struct numbered message = {.type = 1};
    if (fork() == 0) {
        storm();
        for (; message.number < most; message.number++)
            while (msgsnd(id, &message, sizeof message - sizeof(long), 0))
                if (errno != EINTR) _exit(1);
        _exit(0);
    }
    storm();
    for (long i = 0; i < most; i++) {
        while (msgrcv(id, &message, sizeof message - sizeof(long), 0, 0) < 0)
            if (errno != EINTR) end();
        if (message.number != i) return printf("%ld in place of %ld\n", message.number, i), 1;
    }
    msgctl(id, IPC_RMID, NULL);
    puts("complete");
    return 0;
}

/* Shows all System V queues, or removes them. */
static int for_all(int removes) {
    struct msginfo all;
    int highest = msgctl(0, MSG_INFO, (struct msqid_ds *)&all);
    for (int index = 0; index <= highest; index++) {
        struct msqid_ds queue;
        int id = msgctl(index, MSG_STAT, &queue);
        if (id < 0) continue;
        if (removes && msgctl(id, IPC_RMID, NULL)) return 1;
        if (!removes)
            printf("%#x: %lu message, %lu bytes\n", queue.msg_perm.__key, (unsigned long)queue.msg_qnum,
                   (unsigned long)queue.__msg_cbytes);
    }
    return highest < 0;
}

static sem_t told;
static int tellings;

static void tell(union sigval value) {
    tellings = tellings * 10 + value.sival_int;
    sem_post(&told);
}

/* Registers three times, with two queues; the second registration is withdrawn. */
static int notified(void) {
    char text[16];
    mqd_t queue = open_queue();
    struct mq_attr attributes = {.mq_maxmsg = 10, .mq_msgsize = 16};
    mqd_t other = mq_open("/other", O_RDWR | O_CREAT, 0600, &attributes);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD};
    event.sigev_notify_function = tell;
    event.sigev_value.sival_int = 1;
    if (mq_notify(queue, &event)) return perror("mq_notify"), 1;
    if (mq_notify(queue, &event) != -1 || errno != EBUSY) return 2;
    if (mq_send(queue, "", 0, 0) || sem_wait(&told) || mq_receive(queue, text, 16, NULL) != 0) return 3;
    event.sigev_value.sival_int = 2;
    if (mq_notify(queue, &event) || mq_notify(queue, NULL) || mq_send(queue, "", 0, 0)) return 4;
    event.sigev_value.sival_int = 3;
    if (mq_notify(other, &event)) return 5;
    pid_t child = fork();
    if (child == 0) _exit(mq_send(other, "", 0, 0) != 0);
    if (sem_wait(&told)) return 6;
    printf("told %d\n", tellings);
    mq_unlink("/other");
    return mq_unlink("/stream");
}

static mqd_t stuck_queue;

static void *send_unreadable(void *page) { return (void *)(long)mq_send(stuck_queue, page, 3, 0); }

/* One thread sends from a page that is filled later. The other calls of the program must continue. */
static int stuck(void) {
    long size = sysconf(_SC_PAGESIZE);
    char *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register all = {.range = {(unsigned long)page, size}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &all)) return puts("unavailable"), 0;
    mqd_t queue = stuck_queue = open_queue();
    pthread_t thread;
    pthread_create(&thread, NULL, send_unreadable, page);
    struct uffd_msg fault;
    if (read(faults, &fault, sizeof fault) != sizeof fault) return 1;
    /* If a call gets no answer, the alarm ends the program. */
    alarm(60);
    char text[16];
    for (int i = 0; i < 3; i++)
        if (mq_send(queue, "on", 2, 0) || mq_receive(queue, text, 16, NULL) != 2) return 2;
    static char filled[65536] = "yes";
    struct uffdio_copy copy = {.dst = (unsigned long)page, .src = (unsigned long)filled, .len = size};
    void *result;
    if (ioctl(faults, UFFDIO_COPY, &copy) || pthread_join(thread, &result) || result) return 3;
    if (mq_receive(queue, text, 16, NULL) != 3 || memcmp(text, "yes", 3)) return 4;
    puts("went on");
    return mq_unlink("/stream");
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "trap")) return trap();
    if (!strcmp(what, "thread")) return notified();
    if (!strcmp(what, "stuck")) return stuck();
    if (!strcmp(what, "list") || !strcmp(what, "remove")) return for_all(!strcmp(what, "remove"));
    if (!strcmp(what, "storm")) return weather(atol(words[2]));
    if (!strcmp(what, "storm-sysv")) return weather_sysv(atol(words[2]));
    mqd_t queue = open_queue();
    char text[16];
    if (!strcmp(what, "send")) {
        for (long i = 0, most = atol(words[2]); i < most; i++) {
            int length = snprintf(text, sizeof text, "%ld", i);
            if (mq_send(queue, text, length, 0)) end();
            puts(text);
        }
        return 0;
    }
    for (;;) {
        ssize_t length = mq_receive(queue, text, sizeof text, NULL);
        if (length < 0) end();
        printf("%.*s\n", (int)length, text);
    }
}
