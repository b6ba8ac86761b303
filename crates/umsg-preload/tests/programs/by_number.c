/* Calls that a program makes by their numbers, with syscall(2): names without a slash, and the kernel's structures. */
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* The name of this program's queue, as the kernel takes it. */
static const char *bare(void) { return name() + 1; }

static int open_bare(int flags) { return (int)syscall(SYS_mq_open, bare(), flags, 0600, NULL); }

static int create_bare(long depth) {
    struct mq_attr attributes = {.mq_maxmsg = depth, .mq_msgsize = 16};
    int queue = (int)syscall(SYS_mq_open, bare(), O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    EXPECT(queue >= 0);
    return queue;
}

CASE(names_have_no_slash_and_errors_are_the_kernels) {
    EXPECT_ERRNO(syscall(SYS_mq_open, name(), O_RDWR, 0, NULL), EACCES);
    EXPECT_ERRNO(syscall(SYS_mq_open, "", O_RDWR, 0, NULL), ENOENT);
    EXPECT_ERRNO(syscall(SYS_mq_open, ".", O_RDWR, 0, NULL), EACCES);
    EXPECT_ERRNO(syscall(SYS_mq_open, bare(), O_RDWR, 0, NULL), ENOENT);
    EXPECT_ERRNO(syscall(SYS_mq_open, bare(), O_RDWR, 0, 8), EFAULT);
    EXPECT_ERRNO(syscall(SYS_mq_open, NULL, O_RDWR, 0, NULL), EFAULT);
    EXPECT_ERRNO(syscall(SYS_mq_unlink, NULL), EFAULT);
    EXPECT_ERRNO(syscall(SYS_mq_unlink, name()), EACCES);
    EXPECT_ERRNO(syscall(SYS_mq_unlink, ""), ENOENT);
    EXPECT_ERRNO(syscall(SYS_mq_unlink, bare()), ENOENT);
    char longest[257];
    memset(longest, 'u', 256);
    longest[256] = 0;
    EXPECT_ERRNO(syscall(SYS_mq_open, longest, O_RDWR | O_CREAT, 0600, NULL), ENAMETOOLONG);
    longest[255] = 0;
    int queue = (int)syscall(SYS_mq_open, longest, O_RDWR | O_CREAT, 0600, NULL);
    EXPECT(queue >= 0 && syscall(SYS_mq_unlink, longest) == 0);
    struct mq_attr attributes = {.mq_maxmsg = 0, .mq_msgsize = 16};
    EXPECT_ERRNO(syscall(SYS_mq_open, bare(), O_RDWR | O_CREAT, 0600, &attributes), EINVAL);
    EXPECT_ERRNO(syscall(SYS_mq_timedsend, -1, "x", 1, 0, NULL), EBADF);
    EXPECT_ERRNO(syscall(SYS_mq_timedreceive, 0, longest, 16, NULL, NULL), EBADF);
    EXPECT_ERRNO(syscall(SYS_mq_getsetattr, -1, NULL, NULL), EBADF);
    EXPECT_ERRNO(syscall(SYS_mq_notify, -1, NULL), EBADF);
}

CASE(both_ways_lead_to_one_queue) {
    int queue = create_bare(4);
    mqd_t other = mq_open(name(), O_RDWR);
    EXPECT(other >= 0);
    EXPECT(syscall(SYS_mq_timedsend, queue, "low", 3, 1, NULL) == 0);
    EXPECT(mq_send(other, "high", 4, 9) == 0);
    char text[16];
    unsigned priority = 0;
    EXPECT(syscall(SYS_mq_timedreceive, other, text, 16, &priority, NULL) == 4 && priority == 9);
    EXPECT(mq_receive(queue, text, 16, &priority) == 3 && priority == 1 && !memcmp(text, "low", 3));
    struct timespec past = {.tv_sec = 1};
    EXPECT_ERRNO(syscall(SYS_mq_timedreceive, queue, text, 16, NULL, &past), ETIMEDOUT);
    EXPECT_ERRNO(syscall(SYS_mq_timedsend, queue, "x", 17, 0, NULL), EMSGSIZE);
    EXPECT_ERRNO(syscall(SYS_mq_timedsend, queue, "x", 1, 32768, NULL), EINVAL);
    struct mq_attr now, set = {.mq_flags = O_NONBLOCK};
    EXPECT(syscall(SYS_mq_getsetattr, queue, &set, &now) == 0);
    EXPECT(now.mq_flags == 0 && now.mq_maxmsg == 4 && now.mq_msgsize == 16 && now.mq_curmsgs == 0);
    EXPECT(syscall(SYS_mq_getsetattr, queue, NULL, &now) == 0 && now.mq_flags == O_NONBLOCK);
    EXPECT_ERRNO(syscall(SYS_mq_timedreceive, queue, text, 16, NULL, NULL), EAGAIN);
    EXPECT(syscall(SYS_mq_unlink, bare()) == 0);
    EXPECT_ERRNO(mq_open(name(), O_RDWR), ENOENT);
    EXPECT_ERRNO(open_bare(O_RDWR), ENOENT);
    EXPECT(mq_send(other, "still", 5, 0) == 0 && mq_receive(queue, text, 16, NULL) == 5);
}

static volatile sig_atomic_t told;

static void tell(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    told = info->si_code == SI_MESGQ ? info->si_value.sival_int : -1;
}

CASE(a_registration_by_number_is_notified) {
    int queue = create_bare(4);
    struct sigaction action = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 41};
    EXPECT_ERRNO(syscall(SYS_mq_notify, queue, 8), EFAULT);
    EXPECT(syscall(SYS_mq_notify, queue, &event) == 0);
    EXPECT_ERRNO(mq_notify(queue, &event), EBUSY);
    EXPECT(syscall(SYS_mq_timedsend, queue, "x", 1, 0, NULL) == 0);
    for (int i = 0; i < 2000 && !told; i++) usleep(1000);
    EXPECT(told == 41);
    EXPECT(syscall(SYS_mq_notify, queue, &event) == 0 && syscall(SYS_mq_notify, queue, NULL) == 0);
    EXPECT(mq_notify(queue, &event) == 0);
    /* The close of a descriptor ends the registration. */
    int other = open_bare(O_RDWR);
    EXPECT(syscall(SYS_close, queue) == 0 && mq_notify(other, &event) == 0);
    event.sigev_notify = 77;
    EXPECT_ERRNO(syscall(SYS_mq_notify, other, &event), EINVAL);
}

struct message {
    long type;
    char text[16];
};

static int id;

static void remove_id(void) { msgctl(id, IPC_RMID, NULL); }

CASE(system_v_queues_are_used_by_number) {
    key_t key = 0x51a80000 + getpid();
    EXPECT_ERRNO(syscall(SYS_msgget, key, 0), ENOENT);
    id = (int)syscall(SYS_msgget, key, IPC_CREAT | IPC_EXCL | 0600);
    EXPECT(id >= 0 && atexit(remove_id) == 0);
    EXPECT(msgget(key, 0) == id && syscall(SYS_msgget, key, 0) == id);
    struct message message = {.type = 7, .text = "text"};
    EXPECT(syscall(SYS_msgsnd, id, &message, 5, 0) == 0);
    EXPECT_ERRNO(syscall(SYS_msgsnd, id, NULL, 5, 0), EFAULT);
    EXPECT_ERRNO(syscall(SYS_msgsnd, id, &(struct message){0}, 5, 0), EINVAL);
    EXPECT_ERRNO(syscall(SYS_msgrcv, id, &message, 16, 8, IPC_NOWAIT), ENOMSG);
    EXPECT_ERRNO(syscall(SYS_msgrcv, id, &message, 2, 0, IPC_NOWAIT), E2BIG);
    struct msqid_ds state;
    EXPECT(syscall(SYS_msgctl, id, IPC_STAT, &state) == 0);
    EXPECT(state.msg_perm.__key == key && state.msg_perm.mode == 0600 && state.msg_qnum == 1 && state.msg_cbytes == 5);
    EXPECT(state.msg_lspid == getpid() && state.msg_perm.uid == geteuid());
    message.type = 0;
    EXPECT(syscall(SYS_msgrcv, id, &message, 16L, -9L, 0) == 5 && message.type == 7 && !strcmp(message.text, "text"));
    state.msg_qbytes = 100;
    EXPECT(syscall(SYS_msgctl, id, IPC_SET, &state) == 0);
    struct msginfo info;
    EXPECT(syscall(SYS_msgctl, 0, IPC_INFO, &info) >= 0 && info.msgmax > 0);
    EXPECT(msgctl(id, IPC_STAT, &state) == 0 && state.msg_qbytes == 100);
    EXPECT_ERRNO(syscall(SYS_msgctl, id, IPC_STAT, NULL), EFAULT);
    EXPECT_ERRNO(syscall(SYS_msgctl, -1, IPC_STAT, &state), EINVAL);
    /* 0x100 is IPC_64, the flag with which a 32-bit program asks for the newer structure. */
    EXPECT_ERRNO(syscall(SYS_msgctl, id, IPC_STAT | 0x100, &state), EINVAL);
    EXPECT(syscall(SYS_msgctl, id, IPC_RMID, NULL) == 0);
    EXPECT_ERRNO(msgctl(id, IPC_STAT, &state), EINVAL);
}

CASE(a_descriptor_is_duplicated_and_closed_by_number) {
    int queue = create_bare(4), copy = (int)syscall(SYS_dup, queue);
    EXPECT(copy >= 0 && mq_send(copy, "x", 1, 0) == 0);
    EXPECT(syscall(SYS_close, queue) == 0);
    EXPECT_ERRNO(mq_send(queue, "x", 1, 0), EBADF);
    EXPECT_ERRNO(syscall(SYS_close, queue), EBADF);
    int file = open("/dev/null", O_RDWR);
    EXPECT(syscall(SYS_dup3, copy, file, O_CLOEXEC) == file && count(file) == 1);
    int third = (int)syscall(SYS_fcntl, copy, F_DUPFD, 100);
    EXPECT(third >= 100 && count(third) == 1);
    EXPECT(syscall(SYS_fcntl, copy, F_GETFL) == O_RDWR && syscall(SYS_fcntl, copy, F_SETFL, O_NONBLOCK) == 0);
    char text[16];
    EXPECT(mq_receive(third, text, 16, NULL) == 1);
    EXPECT_ERRNO(mq_receive(third, text, 16, NULL), EAGAIN);
    EXPECT(syscall(SYS_close_range, (unsigned)third, (unsigned)third, 0) == 0);
    EXPECT_ERRNO(mq_getattr(third, &(struct mq_attr){0}), EBADF);
    /* dup3 replaces the queue by another file. */
    int null = open("/dev/null", O_RDWR);
    EXPECT(syscall(SYS_dup3, null, copy, 0) == copy);
    EXPECT_ERRNO(mq_send(copy, "x", 1, 0), EBADF);
    EXPECT(write(copy, "x", 1) == 1);
}

CASE(a_descriptor_is_read_and_polled_by_number) {
    int queue = create_bare(4);
    char text[100] = {0};
    EXPECT(syscall(SYS_read, queue, text, sizeof text) == 60 && !strncmp(text, "QSIZE:0 ", 8));
    EXPECT(syscall(SYS_lseek, queue, 0, SEEK_CUR) == 60 && syscall(SYS_lseek, queue, 0, SEEK_END) == 80);
    EXPECT(syscall(SYS_pread64, queue, text, 5, 6) == 5 && text[0] == '0');
    struct iovec part = {text, 2};
    EXPECT(syscall(SYS_preadv, queue, &part, 1, 0L, 0L) == 2 && text[0] == 'Q');
    EXPECT_ERRNO(syscall(SYS_write, queue, "x", 1), EINVAL);
    EXPECT_ERRNO(syscall(SYS_fsync, queue), EINVAL);
    struct stat status;
    EXPECT(syscall(SYS_fstat, queue, &status) == 0 && status.st_size == 80 && status.st_mode == (S_IFREG | 0600));
    EXPECT(syscall(SYS_newfstatat, queue, "", &status, AT_EMPTY_PATH) == 0 && status.st_size == 80);
    EXPECT(syscall(SYS_fchmod, queue, 0640) == 0 && fstat(queue, &status) == 0 && status.st_mode == (S_IFREG | 0640));

    struct pollfd one = {.fd = queue, .events = POLLIN};
    struct timespec moment = {.tv_nsec = 1000000}, long_time = {.tv_sec = 600};
    EXPECT(syscall(SYS_ppoll, &one, 1, &moment, NULL, 8) == 0 && moment.tv_sec == 0 && moment.tv_nsec == 0);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 5};
    EXPECT(syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, queue, &event) == 0);
    EXPECT(epoll_wait(set, &event, 1, 0) == 0);
    EXPECT(mq_send(queue, "x", 1, 0) == 0);
    EXPECT(epoll_wait(set, &event, 1, 1000) == 1 && event.data.u32 == 5);
    EXPECT(syscall(SYS_ppoll, &one, 1, &long_time, NULL, 8) == 1 && one.revents == POLLIN);
    EXPECT(long_time.tv_sec >= 300);
    EXPECT_ERRNO(syscall(SYS_ppoll, &one, 1, NULL, &set, 5), EINVAL);
#ifdef SYS_poll
    EXPECT(syscall(SYS_poll, &one, 1, -1) == 1 && one.revents == POLLIN);
#endif
}

CASE(other_calls_have_all_their_arguments) {
    char path[] = "/tmp/umsg-preload-test-XXXXXX", text[8];
    int file = mkstemp(path);
    EXPECT(file >= 0 && unlink(path) == 0 && syscall(SYS_ftruncate, file, 3L << 12) == 0);
    EXPECT(syscall(SYS_pwrite64, file, "third", 5L, 2L << 12) == 5);
    char *page = (char *)syscall(SYS_mmap, NULL, 4096L, (long)PROT_READ, (long)MAP_PRIVATE, (long)file, 2L << 12);
    EXPECT(page != MAP_FAILED && !memcmp(page, "third", 5));
    struct iovec parts[] = {{text, 2}, {text + 2, 3}};
    EXPECT(syscall(SYS_preadv, file, parts, 2L, 2L << 12, 0L) == 5 && !memcmp(text, "third", 5));
    EXPECT_ERRNO(syscall(SYS_copy_file_range, file, NULL, file, NULL, 1L, 1L), EINVAL);
    EXPECT_ERRNO(syscall(-1), ENOSYS);
    EXPECT_ERRNO(syscall(511), ENOSYS);
    EXPECT_ERRNO(syscall(100000), ENOSYS);
    EXPECT(syscall(SYS_getpid) == getpid() && syscall(SYS_close, file) == 0);
    EXPECT_ERRNO(syscall(SYS_close, file), EBADF);
    pid_t child = (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
    if (child == 0) _exit(0);
    expect_success(child);
}

static int shared;
static volatile pid_t receiver;
static volatile long received;

static void *receive_by_number(void *type) {
    char text[16];
    pthread_setcanceltype(type ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, NULL);
    receiver = (pid_t)syscall(SYS_gettid);
    do
        received = syscall(SYS_mq_timedreceive, shared, text, 16L, NULL, NULL);
    while (received < 0 && errno == EINTR);
    pthread_testcancel();
    return NULL;
}

static pthread_t start_receiver(void *type) {
    pthread_t thread;
    shared = create_bare(4);
    EXPECT(pthread_create(&thread, NULL, receive_by_number, type) == 0);
    while (!receiver) usleep(1000);
    await_sleep(receiver);
    return thread;
}

CASE(a_blocked_call_is_no_cancellation_point) {
    pthread_t thread = start_receiver(NULL);
    EXPECT(pthread_cancel(thread) == 0);
    await_sleep(receiver);
    EXPECT(mq_send(shared, "x", 1, 0) == 0);
    void *result;
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && received == 1);
    EXPECT(count(shared) == 0);
}

CASE(a_blocked_thread_that_may_be_ended_at_any_instruction_is_ended) {
    pthread_t thread = start_receiver("");
    EXPECT(pthread_cancel(thread) == 0);
    void *result;
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && received == 0);
    EXPECT(mq_send(shared, "x", 1, 0) == 0 && count(shared) == 1);
}

static int sent_to;

static void send_by_number(int signal) {
    (void)signal;
    int before = errno;
    syscall(SYS_mq_timedsend, sent_to, "handler", 7L, 3L, NULL);
    errno = before;
}

CASE(a_signal_handler_may_call_by_number) {
    sent_to = create_bare(4);
    struct sigaction action = {.sa_handler = send_by_number};
    sigaction(SIGALRM, &action, NULL);
    alarm(1);
    char text[16];
    long length;
    do
        length = syscall(SYS_mq_timedreceive, sent_to, text, 16L, NULL, NULL);
    while (length < 0 && errno == EINTR);
    EXPECT(length == 7 && !memcmp(text, "handler", 7));
}

CASE(who_gives_up_his_user_by_number_gives_up_its_rights) {
    if (geteuid() != 0) return;
    id = msgget(IPC_PRIVATE, 0600);
    struct message message = {.type = 1};
    EXPECT(id >= 0 && atexit(remove_id) == 0 && msgsnd(id, &message, 1, 0) == 0);
    EXPECT(syscall(SYS_setresuid, -1L, 65534L, -1L) == 0);
    EXPECT_ERRNO(msgsnd(id, &message, 1, 0), EACCES);
    EXPECT(syscall(SYS_setresuid, -1L, 0L, -1L) == 0);
    EXPECT(msgsnd(id, &message, 1, 0) == 0);
}
