/* Signal handlers of a program that uses queues, and handlers that interrupt calls on queues. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/syscall.h>
#include <sys/time.h>

static mqd_t queue;
static volatile sig_atomic_t runs, failures, value;

static void count_run(int number) {
    (void)number;
    runs++;
}

static void note_value(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    value = info->si_value.sival_int;
    runs++;
}

CASE(a_program_is_told_its_own_handlers) {
    struct sigaction told, plain = {.sa_handler = count_run, .sa_flags = SA_RESTART};
    sigaddset(&plain.sa_mask, SIGUSR2);
    EXPECT(sigaction(SIGUSR1, &plain, NULL) == 0);
    queue = create(O_RDWR, 4);
    EXPECT(sigaction(SIGUSR1, NULL, &told) == 0);
    EXPECT(told.sa_handler == count_run && (told.sa_flags & ~0x04000000) == SA_RESTART);
    EXPECT(sigismember(&told.sa_mask, SIGUSR2) == 1 && sigismember(&told.sa_mask, SIGHUP) == 0);
    struct sigaction with_info = {.sa_sigaction = note_value, .sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER};
    EXPECT(sigaction(SIGUSR1, &with_info, &told) == 0 && told.sa_handler == count_run);
    EXPECT(sigaction(SIGUSR1, NULL, &told) == 0 && told.sa_sigaction == note_value);
    EXPECT((told.sa_flags & ~0x04000000) == with_info.sa_flags);
    EXPECT((void *)signal(SIGUSR1, count_run) == (void *)note_value);
    EXPECT(signal(SIGUSR1, SIG_IGN) == count_run);
    EXPECT(signal(SIGUSR1, SIG_DFL) == SIG_IGN && signal(SIGUSR1, count_run) == SIG_DFL);
    EXPECT_ERRNO(sigaction(SIGKILL, &plain, NULL), EINVAL);
    EXPECT_ERRNO(sigaction(99, &plain, NULL), EINVAL);
}

static sigset_t mask_in_handler;

static void note_mask(int number) {
    (void)number;
    sigprocmask(SIG_BLOCK, NULL, &mask_in_handler);
    runs++;
}

static int is_masked(int number) { return sigismember(&mask_in_handler, number); }

CASE(a_handler_runs_with_the_mask_that_was_asked_for) {
    queue = create(O_RDWR, 4);
    sigset_t outside;
    sigemptyset(&outside);
    sigaddset(&outside, SIGHUP);
    sigprocmask(SIG_BLOCK, &outside, NULL);
    struct sigaction action = {.sa_handler = note_mask};
    sigaddset(&action.sa_mask, SIGUSR2);
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0);
    EXPECT(is_masked(SIGUSR1) && is_masked(SIGUSR2) && is_masked(SIGHUP) && !is_masked(SIGTERM));
    action.sa_flags = SA_NODEFER;
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0);
    EXPECT(!is_masked(SIGUSR1) && is_masked(SIGUSR2) && runs == 2);
    sigprocmask(SIG_BLOCK, NULL, &mask_in_handler);
    EXPECT(!is_masked(SIGUSR1) && !is_masked(SIGUSR2) && is_masked(SIGHUP));
}

CASE(handlers_installed_before_and_after_the_first_queue_run) {
    signal(SIGUSR1, count_run);
    queue = create(O_RDWR, 4);
    signal(SIGUSR2, count_run);
    EXPECT(raise(SIGUSR1) == 0 && raise(SIGUSR2) == 0 && raise(SIGUSR1) == 0);
    EXPECT(runs == 3);
    EXPECT(signal(SIGUSR1, SIG_IGN) == count_run && raise(SIGUSR1) == 0 && runs == 3);
}

/* The kernel's record of a handler. */
struct kernels {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

static void (*in_kernel(int number))(int) {
    struct kernels found;
    EXPECT(syscall(SYS_rt_sigaction, number, NULL, &found, 8) == 0);
    return found.handler;
}

/* Installs a handler by the system call, as a runtime without libc does. The handler never runs. */
static void install_without_libc(int number) {
    struct kernels bare = {.handler = count_run};
    EXPECT(syscall(SYS_rt_sigaction, number, &bare, NULL, 8) == 0);
}

/* Programs still use the deprecated functions, such as sigset. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

CASE(handlers_of_each_function_of_libc_are_entered_through_the_drop_ins) {
    struct sigaction plain = {.sa_handler = count_run};
    EXPECT(sigaction(SIGUSR1, &plain, NULL) == 0);
    EXPECT(signal(SIGUSR2, count_run) == SIG_DFL && sigset(SIGALRM, count_run) == SIG_DFL);
    EXPECT(signal(SIGRTMAX, count_run) == SIG_DFL);
    queue = create(O_RDWR, 4);
    const int signals[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGRTMAX};
    for (int i = 0; i < 4; i++) {
        EXPECT(in_kernel(signals[i]) != count_run && raise(signals[i]) == 0 && runs == i + 1);
        EXPECT(sigaction(signals[i], NULL, &plain) == 0 && plain.sa_handler == count_run);
    }
}

CASE(handlers_of_a_runtime_without_libc_are_entered_through_the_drop_ins) {
    install_without_libc(SIGBUS);
    install_without_libc(SIGUSR1);
    queue = create(O_RDWR, 4);
    EXPECT(in_kernel(SIGUSR1) != count_run);
    struct sigaction told;
    EXPECT(sigaction(SIGUSR1, NULL, &told) == 0 && told.sa_handler == count_run);
}

CASE(a_handler_gets_what_was_sent_with_the_signal) {
    queue = create(O_RDWR, 4);
    struct sigaction action = {.sa_sigaction = note_value, .sa_flags = SA_SIGINFO};
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    EXPECT(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 4711}) == 0);
    EXPECT(runs == 1 && value == 4711);
}

CASE(a_handler_that_resets_itself_runs_once) {
    queue = create(O_RDWR, 4);
    struct sigaction action = {.sa_handler = count_run, .sa_flags = SA_RESETHAND}, told;
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0 && runs == 1);
    EXPECT(sigaction(SIGUSR1, NULL, &told) == 0 && told.sa_handler == SIG_DFL);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGUSR1);
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
}

CASE(a_vfork_child_changes_only_its_own_handlers) {
    queue = create(O_RDWR, 4);
    signal(SIGUSR1, count_run);
    pid_t child = vfork();
    if (child == 0) {
        signal(SIGUSR1, SIG_DFL);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    expect_success(child);
    EXPECT(raise(SIGUSR1) == 0 && runs == 1);
    EXPECT(signal(SIGUSR1, SIG_DFL) == count_run);
}

static pthread_barrier_t barrier;

enum { EXCHANGES = 20000 };

/* Installs many handlers, which never run. Returns the sum of the previous handlers that sigaction reported. */
static void *exchange(void *first) {
    unsigned long told = 0;
    pthread_barrier_wait(&barrier);
    for (unsigned long i = 0; i < EXCHANGES; i++) {
        struct sigaction old, action = {.sa_handler = (void (*)(int))((unsigned long)first + i * 16)};
        EXPECT(sigaction(SIGUSR1, &action, &old) == 0);
        told += (unsigned long)old.sa_handler;
    }
    return (void *)told;
}

CASE(each_of_two_threads_handlers_is_told_once) {
    queue = create(O_RDWR, 4);
    pthread_barrier_init(&barrier, NULL, 2);
    const unsigned long first = 0x100000, second = 0x900000;
    unsigned long installed = 0;
    for (unsigned long i = 0; i < EXCHANGES; i++) installed += first + second + 2 * i * 16;
    pthread_t other;
    EXPECT(pthread_create(&other, NULL, exchange, (void *)first) == 0);
    unsigned long told = (unsigned long)exchange((void *)second);
    void *others;
    EXPECT(pthread_join(other, &others) == 0);
    struct sigaction last;
    EXPECT(sigaction(SIGUSR1, NULL, &last) == 0);
    EXPECT(told + (unsigned long)others + (unsigned long)last.sa_handler == installed);
}

static volatile sig_atomic_t done;

/* Installs handlers, each of which must stay until the next one is installed. */
static void *install_and_look(void *unused) {
    pthread_barrier_wait(&barrier);
    for (unsigned long i = 1; !done || i < 10; i++) {
        struct sigaction told, action = {.sa_handler = (void (*)(int))(0x100000 + i * 16)};
        EXPECT(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR1, NULL, &told) == 0);
        EXPECT(told.sa_handler == action.sa_handler);
    }
    return unused;
}

CASE(a_handler_installed_beside_the_first_queue_stays) {
    for (int round = 0; round < 100; round++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t other;
            pthread_barrier_init(&barrier, NULL, 2);
            EXPECT(pthread_create(&other, NULL, install_and_look, NULL) == 0);
            pthread_barrier_wait(&barrier);
            queue = create(O_RDWR, 4);
            done = 1;
            EXPECT(pthread_join(other, NULL) == 0);
            exit(0);
        }
        expect_success(child);
    }
}

static void send_and_receive(int number) {
    (void)number;
    char buffer[16];
    if (mq_send(queue, "handler", 7, 9) != 0 && errno != EAGAIN) failures++;
    if (mq_receive(queue, buffer, 16, NULL) < 0 && errno != EAGAIN) failures++;
    runs++;
}

CASE(a_handler_uses_the_queue_that_its_thread_is_using) {
    queue = create(O_RDWR | O_NONBLOCK, 10);
    struct sigaction action = {.sa_handler = send_and_receive, .sa_flags = SA_RESTART};
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 70}, {0, 70}};
    EXPECT(setitimer(ITIMER_REAL, &often, NULL) == 0);
    char buffer[16];
    for (long round = 0; round < 100000000 && runs < 5000; round++) {
        if (mq_send(queue, "main", 4, 1) != 0 && errno != EAGAIN) failures++;
        if (mq_receive(queue, buffer, 16, NULL) < 0 && errno != EAGAIN) failures++;
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0);
    EXPECT(runs >= 5000 && failures == 0);
}

static volatile sig_atomic_t first_signals, second_signals;

static void count_two(int number) {
    if (number == SIGRTMIN)
        first_signals++;
    else
        second_signals++;
}

/* Calls sigqueue, and repeats the call while too many signals are queued. */
static void queue_signal(pid_t process, int number) {
    while (sigqueue(process, number, (union sigval){0}) != 0) usleep(100);
}

CASE(of_several_signals_that_come_at_once_none_is_lost) {
    enum { EACH = 5000 };
    queue = create(O_RDWR | O_NONBLOCK, 10);
    signal(SIGRTMIN, count_two);
    signal(SIGRTMIN + 1, count_two);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        for (int i = 0; i < EACH; i++) {
            queue_signal(parent, SIGRTMIN);
            queue_signal(parent, SIGRTMIN + 1);
        }
        _exit(0);
    }
    char buffer[16];
    for (int ended = 0; !ended;) {
        ended = waitpid(child, NULL, WNOHANG) == child;
        for (int i = 0; i < 10000; i++)
            if (mq_send(queue, "main", 4, 1) != 0 || mq_receive(queue, buffer, 16, NULL) != 4) failures++;
    }
    EXPECT(failures == 0 && first_signals == EACH && second_signals == EACH);
}

static void open_and_close(int number) {
    (void)number;
    mqd_t other = mq_open(queue_name, O_RDWR);
    if (other < 0 || mq_close(other) != 0) failures++;
    runs++;
}

CASE(a_handler_that_interrupted_malloc_opens_and_closes_queues) {
    queue = create(O_RDWR, 4);
    signal(SIGALRM, open_and_close);
    struct itimerval often = {{0, 200}, {0, 200}};
    EXPECT(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (runs < 1000) free(malloc(100));
    struct itimerval never = {{0, 0}, {0, 0}};
    EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0);
    EXPECT(failures == 0);
}

CASE(a_call_ends_or_goes_on_as_siginterrupt_says) {
    queue = create(O_RDWR, 4);
    struct sigaction action = {.sa_handler = count_run, .sa_flags = SA_RESTART};
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    char buffer[16];
    for (int interrupts = 1; interrupts >= 0; interrupts--) {
        EXPECT(siginterrupt(SIGALRM, interrupts) == 0);
        int before = runs;
        /* The signal that interrupts is repeated, because the first one may arrive before the call. */
        struct itimerval soon = {{0, interrupts ? 20000 : 0}, {0, 20000}}, never = {{0, 0}, {0, 0}};
        EXPECT(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        struct timespec later = in_ms(interrupts ? 20000 : 200);
        EXPECT_ERRNO(mq_timedreceive(queue, buffer, 16, NULL, &later), interrupts ? EINTR : ETIMEDOUT);
        EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0);
        EXPECT(interrupts ? runs > before : runs == before + 1);
    }
}

CASE(a_program_is_told_what_it_has_installed_for_bus_errors) {
    struct sigaction told, mine = {.sa_handler = count_run, .sa_flags = SA_RESTART};
    queue = create(O_RDWR, 4);
    EXPECT(sigaction(SIGBUS, NULL, &told) == 0 && told.sa_handler == SIG_DFL && (told.sa_flags & ~0x04000000) == 0);
    EXPECT(signal(SIGBUS, SIG_IGN) == SIG_DFL && raise(SIGBUS) == 0);
    EXPECT(sigaction(SIGBUS, &mine, &told) == 0 && told.sa_handler == SIG_IGN);
    EXPECT(raise(SIGBUS) == 0 && runs == 1);
    EXPECT(signal(SIGBUS, SIG_DFL) == count_run && signal(SIGBUS, count_run) == SIG_DFL);
    EXPECT(raise(SIGBUS) == 0 && runs == 2);
}

/* Returns a mapped page beyond the end of its file: the file was cut short after the mapping. */
static volatile char *page_cut_off(void) {
    char path[] = "/tmp/umsg-preload-test-XXXXXX";
    int file = mkstemp(path);
    EXPECT(file >= 0 && unlink(path) == 0 && ftruncate(file, 4096) == 0);
    volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT(page != MAP_FAILED && ftruncate(file, 0) == 0 && close(file) == 0);
    return page;
}

static volatile char *cut_off;

static void end_well(int number, siginfo_t *info, void *context) {
    (void)context;
    _exit(number == SIGBUS && info->si_addr == cut_off ? 0 : 2);
}

CASE(a_bus_error_that_is_the_programs_own_reaches_its_handler) {
    struct sigaction action = {.sa_sigaction = end_well, .sa_flags = SA_SIGINFO};
    EXPECT(sigaction(SIGBUS, &action, NULL) == 0);
    queue = create(O_RDWR, 4);
    cut_off = page_cut_off();
    EXPECT(mq_unlink(queue_name) == 0);
    *cut_off = 1;
    EXPECT(!"beyond the end of a file");
}

/* Runs `work` in a child. Returns the signal that killed the child, or -1. */
static int ending(void (*work)(void)) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        work();
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

static void touch(void) { *page_cut_off() = 1; }

static void send_one(void) { raise(SIGBUS); }

CASE(a_bus_error_without_a_handler_ends_the_program) {
    queue = create(O_RDWR, 4);
    EXPECT(ending(touch) == SIGBUS);
    EXPECT(ending(send_one) == SIGBUS);
}

CASE(a_queue_whose_file_is_cut_short_is_an_error) {
    char path[300], buffer[16];
    queue = create(O_RDWR, 4);
    EXPECT(mq_send(queue, "x", 1, 0) == 0);
    EXPECT(snprintf(path, sizeof path, "%s/mq%s", getenv("UMSG_DIR"), queue_name) > 0);
    EXPECT(truncate(path, 0) == 0);
    EXPECT_ERRNO(mq_receive(queue, buffer, 16, NULL), EBADMSG);
    EXPECT_ERRNO(mq_send(queue, "x", 1, 0), EBADMSG);
    EXPECT(mq_close(queue) == 0);
    signal(SIGBUS, count_run);
    EXPECT(mq_unlink(queue_name) == 0);
    queue = create(O_RDWR, 4);
    EXPECT(mq_send(queue, "x", 1, 0) == 0 && truncate(path, 4096) == 0);
    EXPECT_ERRNO(mq_receive(queue, buffer, 16, NULL), EBADMSG);
    EXPECT(runs == 0);
}

/* The calls of a program that has not used a queue before. */
CASE(the_first_open_of_a_program) {
    mqd_t first = mq_open(getenv("QUEUE"), O_RDWR | O_NONBLOCK);
    struct mq_attr attributes;
    if (first >= 0) mq_getattr(first, &attributes);
}

/* Offsets of the two lock words, and the word of an orphaned lock: docs/format.md. */
enum { SENDER_LOCK = 512, RECEIVER_LOCK = 768, LEFT_BY_THE_DEAD = 0x40000000 };

/* Leaves orphaned locks, so that the next open repairs the queue. Cuts the file to two pages, and restores its size. Repeats both steps until the
 * process ends. */
static void cut_for_ever(const char *path) {
    int file = open(path, O_RDWR);
    struct stat status;
    EXPECT(file >= 0 && fstat(file, &status) == 0);
    volatile unsigned *words = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT(words != MAP_FAILED);
    for (;;) {
        words[SENDER_LOCK / 4] = words[RECEIVER_LOCK / 4] = LEFT_BY_THE_DEAD;
        EXPECT(ftruncate(file, 8192) == 0 && ftruncate(file, status.st_size) == 0);
        usleep(20);
    }
}

CASE(a_queue_that_is_cut_short_during_the_first_open_kills_no_program) {
    char path[300];
    queue = create(O_RDWR, 1000);
    for (int sent = 0; sent < 100; sent++) EXPECT(mq_send(queue, "x", 1, sent % 3) == 0);
    EXPECT(snprintf(path, sizeof path, "%s/mq%s", getenv("UMSG_DIR"), queue_name) > 0);
    EXPECT(setenv("QUEUE", queue_name, 1) == 0);
    pid_t cutter = fork();
    if (cutter == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(280);
        cut_for_ever(path);
    }
    int dead = 0;
    for (int start = 0; start < 200; start++) {
        pid_t opener = vfork();
        if (opener == 0) {
            execl("/proc/self/exe", "opener", "the_first_open_of_a_program", NULL);
            _exit(2);
        }
        int status;
        EXPECT(waitpid(opener, &status, 0) == opener);
        dead += WIFSIGNALED(status);
    }
    EXPECT(kill(cutter, SIGKILL) == 0 && waitpid(cutter, NULL, 0) == cutter);
    EXPECT(dead == 0);
}

CASE(a_vfork_child_that_opens_a_queue_leaves_its_parent_guarded) {
    char path[300], buffer[16];
    EXPECT(snprintf(path, sizeof path, "%s/mq%s", getenv("UMSG_DIR"), name()) > 0);
    pid_t maker = fork();
    if (maker == 0) {
        create(O_RDWR, 4);
        _exit(0);
    }
    expect_success(maker);
    pid_t child = vfork();
    if (child == 0) _exit(mq_open(queue_name, O_RDWR) < 0);
    expect_success(child);
    struct sigaction told;
    EXPECT(sigaction(SIGBUS, NULL, &told) == 0 && told.sa_handler == SIG_DFL);
    queue = mq_open(queue_name, O_RDWR);
    EXPECT(queue >= 0 && mq_send(queue, "x", 1, 0) == 0 && truncate(path, 0) == 0);
    EXPECT_ERRNO(mq_receive(queue, buffer, 16, NULL), EBADMSG);
}

/* The lock for which a call waits: a word of a queue, or a lock of a file. The handler of SIGALRM frees the lock 0.1 s later. */
static volatile unsigned *held_word;
static int held_file = -1;

static void let_go(int number) {
    (void)number;
    if (held_word) *held_word = 0;
    if (held_file >= 0) flock(held_file, LOCK_UN);
    runs++;
}

static void alarm_soon(void) {
    struct itimerval soon = {.it_value.tv_usec = 100000};
    EXPECT(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static void let_go_soon(void) {
    runs = 0;
    EXPECT(signal(SIGALRM, let_go) != SIG_ERR);
    alarm_soon();
}

/* Writes an owner into a lock of a queue's file: a thread of the parent process, which never releases the lock. */
static void hold_lock_in(const char *path, size_t offset) {
    int file = open(path, O_RDWR);
    EXPECT(file >= 0);
    char *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT(words != MAP_FAILED && close(file) == 0);
    held_word = (volatile unsigned *)(words + offset);
    *held_word = (unsigned)getppid();
    let_go_soon();
}

/* Without the handler, each of these calls gives up after one or two seconds. */
CASE(a_handler_runs_while_a_call_waits_for_a_posix_queue) {
    char path[300];
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    struct epoll_event readable = {.events = EPOLLIN};
    queue = create(O_RDWR, 4);
    EXPECT(snprintf(path, sizeof path, "%s/mq%s", getenv("UMSG_DIR"), queue_name) > 0);
    hold_lock_in(path, RECEIVER_LOCK);
    EXPECT(mq_notify(queue, &none) == 0 && runs == 1);
    int set = epoll_create1(0);
    hold_lock_in(path, RECEIVER_LOCK);
    EXPECT(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, queue, &readable) == 0 && runs == 1);
    EXPECT(mq_send(queue, "x", 1, 0) == 0 && epoll_wait(set, &readable, 1, -1) == 1);
}

CASE(a_handler_runs_while_a_call_waits_for_a_system_v_queue) {
    enum { HUB_LOCK = 256 };
    char path[300];
    struct msqid_ds about;
    int id = msgget(IPC_PRIVATE, 0600);
    EXPECT(id >= 0 && msgctl(id, IPC_STAT, &about) == 0);
    EXPECT(snprintf(path, sizeof path, "%s/msg/%d", getenv("UMSG_DIR"), id % 32768) > 0);
    hold_lock_in(path, HUB_LOCK);
    EXPECT(msgctl(id, IPC_SET, &about) == 0 && runs == 1);
    held_word = NULL;
    EXPECT(snprintf(path, sizeof path, "%s/own/%u/lock", getenv("UMSG_DIR"), (unsigned)geteuid()) > 0);
    held_file = open(path, O_RDONLY | O_DIRECTORY);
    EXPECT(held_file >= 0 && flock(held_file, LOCK_EX) == 0);
    let_go_soon();
    int other = msgget(IPC_PRIVATE, 0600);
    EXPECT(other >= 0 && runs == 1);
    EXPECT(msgctl(other, IPC_RMID, NULL) == 0 && msgctl(id, IPC_RMID, NULL) == 0);
}

static sigjmp_buf before_the_call;

static void jump(int number) {
    (void)number;
    siglongjmp(before_the_call, 1);
}

/* After siglongjmp, calls run on the thread's own stack, with the signal mask that siglongjmp restores. */
CASE(a_handler_may_leave_a_call_that_waits_for_the_lock_of_its_user) {
    char path[300], buffer[16];
    int id = msgget(IPC_PRIVATE, 0600);
    EXPECT(id >= 0 && msgctl(id, IPC_RMID, NULL) == 0);
    EXPECT(snprintf(path, sizeof path, "%s/own/%u/lock", getenv("UMSG_DIR"), (unsigned)geteuid()) > 0);
    held_file = open(path, O_RDONLY | O_DIRECTORY);
    EXPECT(held_file >= 0 && flock(held_file, LOCK_EX) == 0);
    EXPECT(signal(SIGALRM, jump) == SIG_DFL);
    if (sigsetjmp(before_the_call, 1) == 0) {
        /* The signal may come as soon as the timer runs, so the handler and its destination are set before. */
        alarm_soon();
        msgget(IPC_PRIVATE, 0600);
        EXPECT(!"a call that returned");
    }
    EXPECT(flock(held_file, LOCK_UN) == 0);
    queue = create(O_RDWR, 4);
    EXPECT(mq_send(queue, "x", 1, 0) == 0 && mq_receive(queue, buffer, 16, NULL) == 1);
    id = msgget(IPC_PRIVATE, 0600);
    EXPECT(id >= 0 && msgctl(id, IPC_RMID, NULL) == 0);
}
