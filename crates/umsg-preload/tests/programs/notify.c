/* mq_notify. */
#include "check.h"
#include "handled.h"
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define SIGNAL (SIGRTMIN + 3)

static struct sigevent by_signal(int signal, int value) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    event.sigev_value.sival_int = value;
    return event;
}

static int notify_by(mqd_t queue, int signal, int value) {
    struct sigevent event = by_signal(signal, value);
    return mq_notify(queue, &event);
}

static int notify_by_nothing(mqd_t queue) {
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    return mq_notify(queue, &event);
}

static void block(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    EXPECT(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
}

/* Waits up to this number of milliseconds for a blocked signal. Returns the signal, or 0 if none came. */
static int pending(int signal, siginfo_t *info, int ms) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    int got = sigtimedwait(&set, info, &time);
    return got < 0 ? 0 : got;
}

static void send_one(mqd_t queue) { EXPECT(mq_send(queue, "x", 1, 0) == 0); }

static void receive_one(mqd_t queue) {
    char buffer[16];
    struct timespec later = in_ms(20000);
    EXPECT(mq_timedreceive(queue, buffer, 16, NULL, &later) >= 0);
}

static void drain(mqd_t queue) {
    while (count(queue)) receive_one(queue);
}

/* Checks the registration that read() reports. */
static void expect_registered(mqd_t queue, int how, int signal, int pid) {
    char text[100] = "", expected[100];
    lseek(queue, 0, SEEK_SET);
    EXPECT(read(queue, text, 99) > 0);
    snprintf(expected, 100, "NOTIFY:%-5d SIGNO:%-5d NOTIFY_PID:%-6d\n", how, signal, pid);
    if (!strstr(text, expected)) {
        fprintf(stderr, "%s instead of %s", text, expected);
        exit(1);
    }
}

/* Runs statements in a child, which must succeed. */
#define IN_CHILD(...)                                                                                                  \
    do {                                                                                                               \
        pid_t child_ = fork();                                                                                         \
        if (child_ == 0) {                                                                                             \
            __VA_ARGS__;                                                                                               \
            _exit(0);                                                                                                  \
        }                                                                                                              \
        expect_success(child_);                                                                                        \
    } while (0)

CASE(a_handler_has_run_when_the_send_returns) {
    mqd_t queue = create(O_RDWR, 4);
    struct sigaction action = {.sa_handler = on_signal};
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int round = 1; round <= 100; round++) {
        EXPECT(notify_by(queue, SIGUSR1, 0) == 0);
        send_one(queue);
        EXPECT(signals == round);
        receive_one(queue);
    }
}

CASE(the_signal_says_who_sent) {
    mqd_t queue = create(O_RDWR, 4);
    block(SIGNAL);
    siginfo_t info;
    EXPECT(notify_by(queue, SIGNAL, 77) == 0);
    send_one(queue);
    EXPECT(pending(SIGNAL, &info, 0) == SIGNAL);
    EXPECT(info.si_code == SI_MESGQ && info.si_value.sival_int == 77 && info.si_errno == 0);
    EXPECT(info.si_pid == getpid() && info.si_uid == getuid());
    EXPECT(pending(SIGNAL, &info, 0) == 0);
}

CASE(the_signal_of_another_processs_message_is_pending_when_that_has_sent) {
    mqd_t queue = create(O_RDWR, 4);
    block(SIGNAL);
    for (int round = 0; round < 200; round++) {
        EXPECT(notify_by(queue, SIGNAL, round) == 0);
        pid_t child = fork();
        if (child == 0) {
            send_one(queue);
            _exit(0);
        }
        expect_success(child);
        siginfo_t info;
        EXPECT(pending(SIGNAL, &info, 0) == SIGNAL);
        EXPECT(info.si_code == SI_MESGQ && info.si_value.sival_int == round);
        EXPECT(info.si_pid == child && info.si_uid == getuid());
        receive_one(queue);
    }
}

CASE(a_signal_is_the_processs_and_not_a_threads) {
    mqd_t queue = create(O_RDWR, 4);
    block(SIGNAL);
    EXPECT(notify_by(queue, SIGNAL, 0) == 0);
    send_one(queue);
    sigset_t mine;
    EXPECT(sigpending(&mine) == 0 && sigismember(&mine, SIGNAL));
    char line[200];
    unsigned long long own = 0, shared = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) {
        sscanf(line, "SigPnd: %llx", &own);
        sscanf(line, "ShdPnd: %llx", &shared);
    }
    EXPECT(!(own >> (SIGNAL - 1) & 1) && shared >> (SIGNAL - 1) & 1);
}

CASE(it_fires_once) {
    mqd_t queue = create(O_RDWR, 4);
    block(SIGNAL);
    EXPECT(notify_by(queue, SIGNAL, 0) == 0);
    expect_registered(queue, SIGEV_SIGNAL, SIGNAL, getpid());
    send_one(queue);
    expect_registered(queue, 0, 0, 0);
    EXPECT(pending(SIGNAL, NULL, 0) == SIGNAL);
    drain(queue);
    send_one(queue);
    EXPECT(pending(SIGNAL, NULL, 20) == 0);
    IN_CHILD(EXPECT(notify_by_nothing(queue) == 0));
}

CASE(it_fires_only_when_the_queue_was_empty) {
    mqd_t queue = create(O_RDWR, 4);
    block(SIGNAL);
    send_one(queue);
    EXPECT(notify_by(queue, SIGNAL, 0) == 0);
    send_one(queue);
    receive_one(queue);
    send_one(queue);
    EXPECT(pending(SIGNAL, NULL, 20) == 0);
    drain(queue);
    EXPECT(pending(SIGNAL, NULL, 0) == 0);
    send_one(queue);
    EXPECT(pending(SIGNAL, NULL, 0) == SIGNAL);
}

static void *receive_in_thread(void *queue) {
    receive_one((mqd_t)(intptr_t)queue);
    return NULL;
}

/* Returns whether a thread of this process sleeps. Source: proc_pid_stat(5). */
static int sleeps(const char *thread) {
    char path[300], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread);
    FILE *file = fopen(path, "r");
    if (!file) return 1;
    EXPECT(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
    fclose(file);
    return state == 'S';
}

/* Waits until all other threads of this process sleep, so that one of them is blocked in a receive. */
static void let_it_block(void) {
    int awake = 1;
    while (awake) {
        struct timespec time = {0, 100000000};
        nanosleep(&time, NULL);
        awake = 0;
        DIR *threads = opendir("/proc/self/task");
        EXPECT(threads);
        for (struct dirent *thread; (thread = readdir(threads));)
            if (atoi(thread->d_name) > 0 && atoi(thread->d_name) != gettid())
                awake += !sleeps(thread->d_name);
        closedir(threads);
    }
}

CASE(a_blocked_receiver_takes_precedence) {
    mqd_t queue = create(O_RDWR, 4);
    block(SIGNAL);
    EXPECT(notify_by(queue, SIGNAL, 0) == 0);
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, receive_in_thread, (void *)(intptr_t)queue) == 0);
        let_it_block();
        send_one(queue);
        EXPECT(pthread_join(thread, NULL) == 0);
        EXPECT(pending(SIGNAL, NULL, 0) == 0);
    }
    expect_registered(queue, SIGEV_SIGNAL, SIGNAL, getpid());
    send_one(queue);
    EXPECT(pending(SIGNAL, NULL, 0) == SIGNAL);
}

CASE(a_blocked_senders_message_does_not_fire_it) {
    mqd_t queue = create(O_RDWR, 1);
    block(SIGNAL);
    send_one(queue);
    pid_t child = fork();
    if (child == 0) {
        send_one(queue);
        _exit(0);
    }
    await_sleep(child);
    EXPECT(notify_by(queue, SIGNAL, 0) == 0);
    receive_one(queue);
    expect_success(child);
    EXPECT(count(queue) == 1 && pending(SIGNAL, NULL, 20) == 0);
    receive_one(queue);
    send_one(queue);
    EXPECT(pending(SIGNAL, NULL, 0) == SIGNAL);
}

CASE(one_may_be_registered) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(notify_by_nothing(queue) == 0);
    EXPECT_ERRNO(notify_by_nothing(queue), EBUSY);
    EXPECT_ERRNO(notify_by(queue, SIGNAL, 0), EBUSY);
    IN_CHILD({
        EXPECT_ERRNO(notify_by_nothing(queue), EBUSY);
        EXPECT(mq_notify(queue, NULL) == 0);
        EXPECT_ERRNO(notify_by_nothing(queue), EBUSY);
    });
    expect_registered(queue, SIGEV_NONE, 0, getpid());
    EXPECT(mq_notify(queue, NULL) == 0);
    EXPECT(mq_notify(queue, NULL) == 0);
    expect_registered(queue, 0, 0, 0);
    IN_CHILD({
        EXPECT(notify_by_nothing(queue) == 0);
        expect_registered(queue, SIGEV_NONE, 0, getpid());
    });
}

CASE(errors_come_in_the_kernels_order) {
    mqd_t queue = create(O_RDWR, 4);
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    EXPECT(mq_notify(queue, &event) == 0);
    int kinds[] = {3, 4, 5, -1, 77};
    for (int i = 0; i < 5; i++) {
        event.sigev_notify = kinds[i];
        EXPECT_ERRNO(mq_notify(queue, &event), EINVAL);
        EXPECT_ERRNO(mq_notify(-1, &event), EINVAL);
    }
    event.sigev_notify = SIGEV_SIGNAL;
    int numbers[] = {-1, 65, 1000};
    for (int i = 0; i < 3; i++) {
        event.sigev_signo = numbers[i];
        EXPECT_ERRNO(mq_notify(queue, &event), EINVAL);
        EXPECT_ERRNO(mq_notify(-1, &event), EINVAL);
    }
    event.sigev_signo = 64;
    EXPECT_ERRNO(mq_notify(queue, &event), EBUSY);
    EXPECT_ERRNO(mq_notify(-1, &event), EBADF);
    EXPECT_ERRNO(mq_notify(0, &event), EBADF);
    EXPECT_ERRNO(mq_notify(-1, NULL), EBADF);
}

CASE(signal_0_is_none) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(notify_by(queue, 0, 0) == 0);
    expect_registered(queue, SIGEV_SIGNAL, 0, getpid());
    send_one(queue);
    expect_registered(queue, 0, 0, 0);
}

CASE(a_registration_without_a_signal_lasts_until_a_message_comes) {
    mqd_t queue = create(O_RDWR, 4);
    for (int round = 0; round < 100; round++) {
        EXPECT(notify_by_nothing(queue) == 0);
        expect_registered(queue, SIGEV_NONE, 0, getpid());
        IN_CHILD(send_one(queue));
        expect_registered(queue, 0, 0, 0);
        receive_one(queue);
    }
}

CASE(a_queue_open_for_writing_only_notifies) {
    mqd_t reader = create(O_RDWR, 4);
    mqd_t queue = mq_open(name(), O_WRONLY);
    block(SIGNAL);
    EXPECT(notify_by(queue, SIGNAL, 0) == 0);
    send_one(reader);
    EXPECT(pending(SIGNAL, NULL, 0) == SIGNAL);
}

CASE(an_unlinked_queue_notifies) {
    mqd_t queue = create(O_RDWR, 4);
    block(SIGNAL);
    EXPECT(mq_unlink(name()) == 0);
    EXPECT(notify_by(queue, SIGNAL, 0) == 0);
    IN_CHILD(send_one(queue));
    EXPECT(pending(SIGNAL, NULL, 0) == SIGNAL);
}

static mqd_t another(void) {
    mqd_t queue = mq_open(name(), O_RDWR);
    EXPECT(queue >= 0);
    return queue;
}

CASE(closing_any_descriptor_of_the_queue_ends_it) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(notify_by_nothing(queue) == 0);
    EXPECT(mq_close(another()) == 0);
    expect_registered(queue, 0, 0, 0);
    EXPECT(notify_by_nothing(queue) == 0);
    EXPECT(close(dup(queue)) == 0);
    expect_registered(queue, 0, 0, 0);
    int low = another(), high = fcntl(low, F_DUPFD, 700);
    EXPECT(notify_by_nothing(queue) == 0);
    EXPECT(close_range(700, 800, 0) == 0);
    expect_registered(queue, 0, 0, 0);
    EXPECT(notify_by_nothing(queue) == 0);
    EXPECT(dup2(0, low) == low);
    expect_registered(queue, 0, 0, 0);
    EXPECT(notify_by_nothing(queue) == 0);
    EXPECT(dup2(queue, queue) == queue);
    expect_registered(queue, SIGEV_NONE, 0, getpid());
    EXPECT(dup2(high, low) == -1 && dup(queue) >= 0);
    expect_registered(queue, SIGEV_NONE, 0, getpid());
    mqd_t second = another();
    EXPECT(mq_close(queue) == 0);
    expect_registered(second, 0, 0, 0);
}

CASE(another_queues_descriptor_or_a_childs_does_not_end_it) {
    mqd_t queue = create(O_RDWR, 4);
    char other_name[80];
    snprintf(other_name, sizeof other_name, "%s-other", name());
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 16};
    mqd_t other = mq_open(other_name, O_RDWR | O_CREAT, 0600, &attributes);
    EXPECT(other >= 0 && mq_unlink(other_name) == 0);
    EXPECT(notify_by_nothing(queue) == 0);
    EXPECT(notify_by_nothing(other) == 0);
    EXPECT(mq_close(other) == 0);
    IN_CHILD(EXPECT(mq_close(queue) == 0));
    IN_CHILD({
        EXPECT(dup2(0, queue) == queue);
        EXPECT(close_range(3, ~0u, 0) == 0);
    });
    pid_t child = vfork();
    if (child == 0) {
        close(queue);
        _exit(0);
    }
    expect_success(child);
    expect_registered(queue, SIGEV_NONE, 0, getpid());
}

/* Runs statements in a child, which then waits until it is killed or told to continue. */
#define CHILD_THAT(...)                                                                                                \
    ({                                                                                                                 \
        int ready_[2];                                                                                                 \
        EXPECT(pipe(ready_) == 0);                                                                                     \
        pid_t child_ = fork();                                                                                         \
        if (child_ == 0) {                                                                                             \
            __VA_ARGS__;                                                                                               \
            EXPECT(write(ready_[1], "x", 1) == 1);                                                                     \
            for (;;) pause();                                                                                          \
        }                                                                                                              \
        char byte_;                                                                                                    \
        EXPECT(read(ready_[0], &byte_, 1) == 1);                                                                       \
        child_;                                                                                                        \
    })

static void do_nothing(union sigval value) { (void)value; }

CASE(who_is_killed_is_registered_no_more) {
    mqd_t queue = create(O_RDWR, 4);
    for (int kind = 0; kind < 3; kind++) {
        pid_t child = CHILD_THAT({
            struct sigevent event = {.sigev_notify = kind, .sigev_signo = SIGNAL};
            if (kind == SIGEV_THREAD) event.sigev_notify_function = do_nothing;
            EXPECT(mq_notify(queue, &event) == 0);
        });
        expect_registered(queue, kind, kind == SIGEV_SIGNAL ? SIGNAL : 0, child);
        EXPECT_ERRNO(notify_by_nothing(queue), EBUSY);
        EXPECT(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
        expect_registered(queue, 0, 0, 0);
        EXPECT(notify_by_nothing(queue) == 0);
        EXPECT(mq_notify(queue, NULL) == 0);
    }
    IN_CHILD(EXPECT(notify_by(queue, SIGNAL, 0) == 0));
    send_one(queue);
    expect_registered(queue, 0, 0, 0);
}

CASE(who_runs_another_program_is_registered_no_more) {
    mqd_t queue = create(O_RDWR, 4);
    int ready[2], stay[2];
    EXPECT(pipe(ready) == 0 && pipe(stay) == 0);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(notify_by(queue, SIGKILL, 0) == 0);
        EXPECT(dup2(ready[1], 1) == 1 && dup2(stay[0], 0) == 0);
        execl("/bin/sh", "sh", "-c", "echo; read x", NULL);
        _exit(1);
    }
    char byte;
    EXPECT(read(ready[0], &byte, 1) == 1);
    expect_registered(queue, 0, 0, 0);
    send_one(queue);
    EXPECT(notify_by_nothing(queue) == 0);
    EXPECT(waitpid(child, NULL, WNOHANG) == 0);
    EXPECT(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

CASE(who_ends_is_registered_no_more_as_soon_as_it_has_begun_to) {
    mqd_t queue = create(O_RDWR, 4);
    for (int i = 0; i < 20; i++) {
        int gone[2];
        EXPECT(pipe2(gone, O_CLOEXEC) == 0);
        pid_t child = fork();
        if (child == 0) {
            EXPECT(notify_by(queue, 0, 0) == 0);
            /* The process's memory is freed before its descriptors are closed. A closed descriptor shows the parent that the process ends. */
            _exit(0);
        }
        close(gone[1]);
        char byte;
        EXPECT(read(gone[0], &byte, 1) == 0);
        expect_registered(queue, 0, 0, 0);
        EXPECT(waitpid(child, NULL, 0) == child);
        close(gone[0]);
    }
}

CASE(a_stopped_process_finds_the_signal_when_it_goes_on) {
    mqd_t queue = create(O_RDWR, 4);
    pid_t child = CHILD_THAT({
        signal(SIGUSR1, SIG_DFL);
        EXPECT(notify_by(queue, SIGUSR1, 0) == 0);
    });
    EXPECT(kill(child, SIGSTOP) == 0 && waitpid(child, NULL, WUNTRACED) == child);
    send_one(queue);
    expect_registered(queue, 0, 0, 0);
    EXPECT(notify_by_nothing(queue) == 0);
    EXPECT(kill(child, SIGCONT) == 0);
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
}

/* The observations of a thread of SIGEV_THREAD. */
static atomic_int called, in_thread;
static pthread_t main_thread;
static size_t stack_size;
static void *thread_value;
static int detached, masked;

static void inquire(union sigval value) {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &stack_size);
    pthread_attr_getdetachstate(&attributes, &detached);
    pthread_attr_destroy(&attributes);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    masked = 0;
    for (int signal = 1; signal < 65; signal++) masked += sigismember(&mask, signal) == 1;
    thread_value = value.sival_ptr;
    in_thread = gettid();
    called++;
}

static struct sigevent by_thread(void (*function)(union sigval), void *value, pthread_attr_t *attributes) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD};
    event.sigev_notify_function = function;
    event.sigev_notify_attributes = attributes;
    event.sigev_value.sival_ptr = value;
    return event;
}

static void wait_for_calls(int calls) {
    struct timespec time = {0, 1000000};
    for (int i = 0; called < calls && i < 250000; i++) nanosleep(&time, NULL);
    EXPECT(called == calls);
}

CASE(a_thread_is_started_for_each_message) {
    mqd_t queue = create(O_RDWR, 4);
    main_thread = pthread_self();
    block(SIGUSR1);
    for (int round = 0; round < 50; round++) {
        struct sigevent event = by_thread(inquire, &event, NULL);
        EXPECT(mq_notify(queue, &event) == 0);
        expect_registered(queue, SIGEV_THREAD, 0, getpid());
        EXPECT_ERRNO(notify_by_nothing(queue), EBUSY);
        if (round % 2)
            send_one(queue);
        else
            IN_CHILD(send_one(queue));
        wait_for_calls(round + 1);
        EXPECT(in_thread != gettid() && thread_value == &event);
        EXPECT(detached == PTHREAD_CREATE_DETACHED);
#ifdef __GLIBC__ /* musl's own threads begin with all signals blocked */
        EXPECT(masked == 0);
#endif
        receive_one(queue);
    }
}

CASE(a_thread_has_the_attributes_asked_for) {
    mqd_t queue = create(O_RDWR, 4);
    pthread_attr_t attributes;
    EXPECT(pthread_attr_init(&attributes) == 0);
    EXPECT(pthread_attr_setstacksize(&attributes, 3 << 20) == 0);
    struct sigevent event = by_thread(inquire, NULL, &attributes);
    EXPECT(mq_notify(queue, &event) == 0);
    EXPECT(pthread_attr_destroy(&attributes) == 0);
    memset(&attributes, 0xff, sizeof attributes);
    send_one(queue);
    wait_for_calls(1);
    /* In musl, the stack also contains the thread's descriptor. */
    EXPECT(stack_size >= 3 << 20 && stack_size < (3 << 20) + (64 << 10) && detached == PTHREAD_CREATE_DETACHED);
}

static mqd_t again_queue;
static atomic_int received;

/* Handles a notification as programs do: registers again, then receives all messages. */
static void receive_all(union sigval value) {
    struct sigevent event = by_thread(receive_all, value.sival_ptr, NULL);
    mq_notify(again_queue, &event);
    char buffer[16];
    while (mq_receive(again_queue, buffer, 16, NULL) >= 0) received++;
    called++;
}

CASE(a_thread_may_register_again) {
    again_queue = create(O_RDWR | O_NONBLOCK, 4);
    struct sigevent event = by_thread(receive_all, NULL, NULL);
    EXPECT(mq_notify(again_queue, &event) == 0);
    IN_CHILD({
        EXPECT(fcntl(again_queue, F_SETFL, 0) == 0);
        mqd_t queue = another();
        for (int i = 0; i < 2000; i++) send_one(queue);
    });
    struct timespec time = {0, 1000000};
    for (int i = 0; received < 2000 && i < 250000; i++) nanosleep(&time, NULL);
    EXPECT(received == 2000);
}

static void handle_all(int signal) {
    int error = errno;
    notify_by(again_queue, signal, 0);
    char buffer[16];
    while (mq_receive(again_queue, buffer, 16, NULL) >= 0) received++;
    errno = error;
}

CASE(a_handler_may_register_again) {
    again_queue = create(O_RDWR | O_NONBLOCK, 4);
    struct sigaction action = {.sa_handler = handle_all, .sa_flags = SA_RESTART};
    EXPECT(sigaction(SIGNAL, &action, NULL) == 0);
    EXPECT(notify_by(again_queue, SIGNAL, 0) == 0);
    pid_t child = fork();
    if (child == 0) {
        mqd_t queue = another();
        for (int i = 0; i < 2000; i++) send_one(queue);
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    struct timespec time = {0, 1000000};
    for (int i = 0; received < 2000 && i < 250000; i++) nanosleep(&time, NULL);
    EXPECT(received == 2000);
}

static void end_thread(union sigval value) {
    (void)value;
    called++;
    pthread_exit(NULL);
}

CASE(a_thread_may_end_itself) {
    mqd_t queue = create(O_RDWR, 4);
    for (int round = 1; round <= 3; round++) {
        struct sigevent event = by_thread(end_thread, NULL, NULL);
        EXPECT(mq_notify(queue, &event) == 0);
        send_one(queue);
        wait_for_calls(round);
        receive_one(queue);
    }
}

CASE(threads_are_started_in_a_forked_child) {
    mqd_t queue = create(O_RDWR, 4);
    struct sigevent event = by_thread(inquire, &event, NULL);
    IN_CHILD({
        EXPECT(mq_notify(queue, &event) == 0);
        expect_registered(queue, SIGEV_THREAD, 0, getpid());
        send_one(queue);
        wait_for_calls(1);
        receive_one(queue);
    });
    EXPECT(mq_notify(queue, &event) == 0);
    IN_CHILD({
        send_one(queue);
        let_it_block();
        EXPECT(called == 0);
    });
    wait_for_calls(1);
}

/* Only on umsg: on the kernel's queues, the thread that glibc has started in the parent gets the child's notification. */
CASE(threads_are_started_in_a_child_of_a_process_that_had_some) {
    mqd_t queue = create(O_RDWR, 4);
    struct sigevent event = by_thread(inquire, &event, NULL);
    EXPECT(mq_notify(queue, &event) == 0);
    send_one(queue);
    wait_for_calls(1);
    receive_one(queue);
    IN_CHILD({
        called = 0;
        EXPECT(mq_notify(queue, &event) == 0);
        send_one(queue);
        wait_for_calls(1);
        receive_one(queue);
    });
}

CASE(registering_and_taking_it_back_again_and_again_is_safe) {
    mqd_t queue = create(O_RDWR, 4);
    struct sigevent event = by_thread(inquire, NULL, NULL);
    for (int round = 0; round < 1000; round++) {
        EXPECT(mq_notify(queue, &event) == 0);
        EXPECT(mq_notify(queue, NULL) == 0);
    }
    send_one(queue);
    let_it_block();
    EXPECT(called == 0);
    receive_one(queue);
    for (int round = 0; round < 200; round++) {
        EXPECT(mq_notify(queue, &event) == 0);
        pid_t child = fork();
        if (child == 0) {
            send_one(queue);
            _exit(0);
        }
        EXPECT(mq_notify(queue, NULL) == 0);
        expect_success(child);
        receive_one(queue);
    }
}

CASE(many_queues_notify_one_process) {
    mqd_t queues[6];
    char one_name[80];
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 16};
    block(SIGNAL);
    for (int i = 0; i < 6; i++) {
        snprintf(one_name, sizeof one_name, "%s-%d", name(), i);
        queues[i] = mq_open(one_name, O_RDWR | O_CREAT, 0600, &attributes);
        EXPECT(queues[i] >= 0 && mq_unlink(one_name) == 0);
        EXPECT(notify_by(queues[i], SIGNAL, i) == 0);
    }
    IN_CHILD(for (int i = 0; i < 6; i++) send_one(queues[i]));
    for (int i = 0; i < 6; i++) {
        siginfo_t info;
        EXPECT(pending(SIGNAL, &info, 0) == SIGNAL && info.si_value.sival_int == i);
    }
}

CASE(another_users_message_notifies) {
    if (geteuid()) return;
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(fchmod(queue, 0666) == 0);
    block(SIGNAL);
    EXPECT(notify_by(queue, SIGNAL, 5) == 0);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(setresuid(12345, 12345, 12345) == 0);
        EXPECT(kill(getppid(), 0) == -1 && errno == EPERM);
        send_one(queue);
        _exit(0);
    }
    expect_success(child);
    siginfo_t info;
    EXPECT(pending(SIGNAL, &info, 0) == SIGNAL);
    EXPECT(info.si_pid == child && info.si_uid == 12345 && info.si_value.sival_int == 5);
    receive_one(queue);
    EXPECT(notify_by(queue, SIGNAL, 6) == 0);
    EXPECT(mq_unlink(queue_name) == 0 && setuid(12345) == 0);
    IN_CHILD(send_one(queue));
    EXPECT(pending(SIGNAL, &info, 0) == SIGNAL && info.si_uid == 12345);
}

static void count_notification(int number) { (void)number; }

/* A signal that arrives after the receive of its message would interrupt the next receive. */
CASE(a_notification_comes_before_its_message_is_received) {
    enum { MESSAGES = 200000, OFTEN = 16, SECONDS = 20 };
    mqd_t queue = create(O_RDWR, 10);
    struct sigaction action = {.sa_handler = count_notification};
    EXPECT(sigaction(SIGNAL, &action, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (mq_send(queue, "x", 1, 0) == 0)
            continue;
        _exit(1);
    }
    char buffer[16];
    // On a busy machine, the time ends before all messages are received.
    time_t end = time(NULL) + SECONDS;
    for (int i = 0; i < MESSAGES && time(NULL) < end; i++) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGNAL};
        if (i % OFTEN == 0) EXPECT(mq_notify(queue, &event) == 0 || errno == EBUSY);
        EXPECT(mq_receive(queue, buffer, 16, NULL) == 1);
    }
    int status;
    EXPECT(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFSIGNALED(status));
}

static void count_call(union sigval value) {
    (void)value;
    called++;
}

CASE(a_process_that_is_told_faster_than_threads_begin_is_never_refused) {
    enum { ROUNDS = 2000 };
    mqd_t queue = create(O_RDWR | O_NONBLOCK, 4);
    struct sigevent event = by_thread(count_call, NULL, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        EXPECT(mq_notify(queue, &event) == 0);
        send_one(queue);
        receive_one(queue);
    }
    wait_for_calls(ROUNDS);
    for (int round = 0; round < 100; round++) {
        EXPECT(mq_notify(queue, &event) == 0);
        IN_CHILD(send_one(queue));
        receive_one(queue);
    }
    wait_for_calls(ROUNDS + 100);
}

CASE(stopped_processes_that_were_told_keep_nobody_from_registering) {
    enum { STOPPED = 80 };
    pid_t children[STOPPED];
    mqd_t queue = create(O_RDWR, 4);
    for (int i = 0; i < STOPPED; i++) {
        children[i] = CHILD_THAT({
            EXPECT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
            signal(SIGUSR1, SIG_DFL);
            EXPECT(notify_by(queue, SIGUSR1, 0) == 0);
        });
        EXPECT(kill(children[i], SIGSTOP) == 0 && waitpid(children[i], NULL, WUNTRACED) == children[i]);
        send_one(queue);
        receive_one(queue);
        expect_registered(queue, 0, 0, 0);
    }
    block(SIGNAL);
    EXPECT(notify_by(queue, SIGNAL, 0) == 0);
    expect_registered(queue, SIGEV_SIGNAL, SIGNAL, getpid());
    send_one(queue);
    EXPECT(pending(SIGNAL, NULL, 0) == SIGNAL);
    for (int i = 0; i < STOPPED; i++) {
        int status;
        EXPECT(kill(children[i], SIGCONT) == 0);
        EXPECT(waitpid(children[i], &status, 0) == children[i]);
        EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
    }
}

static void take_one(int number) {
    (void)number;
    char buffer[16];
    int error = errno;
    if (mq_receive(again_queue, buffer, 16, NULL) == 1) received++;
    errno = error;
}

/* The handler runs before the send returns, and must not wait for the end of the send. */
CASE(a_handler_receives_the_message_that_it_was_told_of) {
    enum { ROUNDS = 200 };
    again_queue = create(O_RDWR | O_NONBLOCK, 4);
    struct sigaction action = {.sa_handler = take_one};
    EXPECT(sigaction(SIGNAL, &action, NULL) == 0);
    for (int round = 1; round <= ROUNDS; round++) {
        EXPECT(notify_by(again_queue, SIGNAL, 0) == 0);
        send_one(again_queue);
        EXPECT(received == round && count(again_queue) == 0);
    }
}
