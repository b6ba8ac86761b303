/* The behaviour of a queue's descriptor in functions for files. */
#include "check.h"
#include <sys/mman.h>
#include <sys/uio.h>

CASE(the_descriptor_is_the_lowest_free_number_and_close_on_exec) {
    int lowest = dup(0);
    close(lowest);
    mqd_t queue = create(O_RDWR | O_NONBLOCK, 4);
    EXPECT(queue == lowest);
    EXPECT(fcntl(queue, F_GETFD) == FD_CLOEXEC);
    EXPECT(fcntl(queue, F_GETFL) == (O_RDWR | O_NONBLOCK));
    EXPECT(fcntl(mq_open(name(), O_WRONLY), F_GETFL) == O_WRONLY);
}

CASE(close_equals_mq_close_and_a_second_one_is_ebadf) {
    mqd_t queue = create(O_RDWR, 4);
    mqd_t other = mq_open(name(), O_RDWR);
    EXPECT(close(queue) == 0);
    EXPECT_ERRNO(close(queue), EBADF);
    EXPECT_ERRNO(mq_send(queue, "x", 1, 0), EBADF);
    EXPECT_ERRNO(mq_getattr(queue, &(struct mq_attr){0}), EBADF);
    EXPECT(mq_close(other) == 0);
    EXPECT_ERRNO(mq_close(other), EBADF);
    EXPECT_ERRNO(mq_close(-1), EBADF);
}

CASE(mq_functions_refuse_what_is_no_queue) {
    int files[] = {-1, 1000, open("/dev/null", O_RDWR), open("/proc/self/exe", O_RDONLY)};
    char buffer[16];
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        EXPECT_ERRNO(mq_send(files[i], "x", 1, 0), EBADF);
        EXPECT_ERRNO(mq_receive(files[i], buffer, 16, NULL), EBADF);
        EXPECT_ERRNO(mq_getattr(files[i], &(struct mq_attr){0}), EBADF);
        EXPECT_ERRNO(mq_setattr(files[i], &(struct mq_attr){0}, NULL), EBADF);
        EXPECT_ERRNO(mq_notify(files[i], NULL), EBADF);
    }
}

CASE(fstat_says_a_regular_file_of_80_bytes) {
    mqd_t queue = create(O_RDWR, 4);
    struct stat status;
    EXPECT(fstat(queue, &status) == 0);
    EXPECT(status.st_mode == (S_IFREG | 0600) && status.st_size == 80);
    EXPECT(status.st_blocks == 0 && status.st_nlink == 1);
    EXPECT(status.st_uid == geteuid() && status.st_gid == getegid());
    struct stat again;
    EXPECT(fstatat(queue, "", &again, AT_EMPTY_PATH) == 0);
    EXPECT(again.st_size == 80 && again.st_mode == status.st_mode && again.st_ino == status.st_ino);
#ifdef STATX_BASIC_STATS /* musl 1.2.3 has no statx */
    struct statx extended;
    EXPECT(statx(queue, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended) == 0);
    EXPECT(extended.stx_size == 80 && extended.stx_mode == status.st_mode && extended.stx_blocks == 0);
#endif
    EXPECT(mq_unlink(name()) == 0);
    EXPECT(fstat(queue, &status) == 0 && status.st_nlink == 0);
}

CASE(fchmod_is_seen_by_fstat) {
    mqd_t queue = create(O_RDWR, 4);
    struct stat status;
    EXPECT(fchmod(queue, 0640) == 0);
    EXPECT(fstat(queue, &status) == 0 && status.st_mode == (S_IFREG | 0640));
    EXPECT(mq_send(queue, "x", 1, 0) == 0);
}

CASE(read_tells_how_many_bytes_are_queued) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(mq_send(queue, "12345", 5, 0) == 0);
    EXPECT(mq_send(queue, "678", 3, 0) == 0);
    char text[100] = {0};
    const char *expected = "QSIZE:8          NOTIFY:0     SIGNO:0     NOTIFY_PID:0     \n";
    EXPECT(read(queue, text, sizeof text) == 60);
    EXPECT(!strcmp(text, expected));
    EXPECT(read(queue, text, sizeof text) == 0);
    EXPECT(lseek(queue, 0, SEEK_CUR) == 60);
    EXPECT(pread(queue, text, 2, 6) == 2 && text[0] == '8');
    EXPECT(pread(queue, text, 2, 60) == 0);
    EXPECT_ERRNO(pread(queue, text, 2, -1), EINVAL);
    EXPECT(lseek(queue, 6, SEEK_SET) == 6);
    struct iovec parts[2] = {{text, 1}, {text + 1, 2}};
    EXPECT(readv(queue, parts, 2) == 3 && lseek(queue, 0, SEEK_CUR) == 9);
    EXPECT(preadv(queue, parts, 2, 0) == 3 && !memcmp(text, "QSI", 3));
    EXPECT_ERRNO(read(queue, nowhere, 5), EFAULT);
    EXPECT(read(queue, nowhere, 0) == 0);
    EXPECT_ERRNO(read(mq_open(name(), O_WRONLY), text, 5), EBADF);
}

CASE(a_duplicate_shares_the_position) {
    mqd_t queue = create(O_RDWR, 4);
    char text[100];
    int copy = dup(queue);
    EXPECT(read(queue, text, 10) == 10);
    EXPECT(lseek(copy, 0, SEEK_CUR) == 10);
    EXPECT(read(copy, text, sizeof text) == 50);
}

CASE(lseek_moves_in_80_bytes) {
    mqd_t queue = create(O_RDWR, 4);
    EXPECT(lseek(queue, 0, SEEK_END) == 80);
    EXPECT(lseek(queue, -80, SEEK_END) == 0);
    EXPECT_ERRNO(lseek(queue, -81, SEEK_END), EINVAL);
    EXPECT_ERRNO(lseek(queue, -1, SEEK_SET), EINVAL);
    EXPECT(lseek(queue, 5, SEEK_DATA) == 5 && lseek(queue, 5, SEEK_HOLE) == 80);
    EXPECT_ERRNO(lseek(queue, 80, SEEK_HOLE), ENXIO);
    EXPECT_ERRNO(lseek(queue, 0, 99), EINVAL);
}

CASE(writing_syncing_and_mapping_are_refused) {
    mqd_t queue = create(O_RDWR, 4);
    mqd_t reader = mq_open(name(), O_RDONLY), writer = mq_open(name(), O_WRONLY);
    struct iovec part = {"x", 1};
    EXPECT_ERRNO(write(queue, "x", 1), EINVAL);
    EXPECT_ERRNO(write(queue, "", 0), EINVAL);
    EXPECT_ERRNO(pwrite(queue, "x", 1, 0), EINVAL);
    EXPECT_ERRNO(writev(queue, &part, 1), EINVAL);
    EXPECT_ERRNO(pwritev(queue, &part, 1, 0), EINVAL);
    EXPECT_ERRNO(write(reader, "x", 1), EBADF);
    EXPECT_ERRNO(fsync(queue), EINVAL);
    EXPECT_ERRNO(fdatasync(queue), EINVAL);
    EXPECT_ERRNO(mmap(NULL, 4096, PROT_READ, MAP_SHARED, queue, 0), ENODEV);
    EXPECT_ERRNO(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, writer, 0), EACCES);
    EXPECT_ERRNO(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, reader, 0), EACCES);
    EXPECT_ERRNO(mmap(NULL, 4096, PROT_READ, MAP_SHARED, queue, 5), EINVAL);
    EXPECT_ERRNO(mmap(NULL, 0, PROT_READ, MAP_SHARED, queue, 0), EINVAL);
    EXPECT_ERRNO(ftruncate(reader, 0), EINVAL);
    EXPECT(ftruncate(queue, 0) == 0);
    EXPECT(mq_send(queue, "x", 1, 0) == 0 && count(reader) == 1);
    EXPECT(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, queue, 0) != MAP_FAILED);
}

CASE(getattr_and_setattr_know_one_flag) {
    mqd_t queue = create(O_RDWR, 4);
    struct mq_attr old;
    memset(&old, 0xff, sizeof old);
    struct mq_attr new = {.mq_flags = O_NONBLOCK, .mq_maxmsg = 99, .mq_msgsize = 99, .mq_curmsgs = 99};
    EXPECT(mq_setattr(queue, &new, &old) == 0);
    EXPECT(old.mq_flags == 0 && old.mq_maxmsg == 4 && old.mq_msgsize == 16 && old.mq_curmsgs == 0);
    EXPECT(fcntl(queue, F_GETFL) == (O_RDWR | O_NONBLOCK));
    EXPECT(mq_getattr(queue, &old) == 0);
    EXPECT(old.mq_flags == O_NONBLOCK && old.mq_maxmsg == 4);
    new.mq_flags = O_NONBLOCK | O_APPEND;
    EXPECT_ERRNO(mq_setattr(queue, &new, NULL), EINVAL);
    EXPECT_ERRNO(mq_setattr(-1, &new, NULL), EINVAL);
    EXPECT(fcntl(queue, F_SETFL, 0) == 0);
    EXPECT(mq_getattr(queue, &old) == 0 && old.mq_flags == 0);
    EXPECT(mq_getattr(queue, nowhere) == 0 && mq_setattr(queue, nowhere, nowhere) == 0);
    EXPECT_ERRNO(mq_getattr(queue, (void *)8), EFAULT);
    EXPECT_ERRNO(mq_setattr(queue, (void *)8, NULL), EFAULT);
}

CASE(o_nonblock_belongs_to_the_open_file_description) {
    mqd_t queue = create(O_RDWR, 1);
    mqd_t second = mq_open(name(), O_RDWR);
    int copy = dup(queue);
    struct mq_attr nonblocking = {.mq_flags = O_NONBLOCK};
    EXPECT(mq_setattr(queue, &nonblocking, NULL) == 0);
    EXPECT(fcntl(copy, F_GETFL) == (O_RDWR | O_NONBLOCK) && fcntl(second, F_GETFL) == O_RDWR);
    char buffer[16];
    EXPECT_ERRNO(mq_receive(copy, buffer, 16, NULL), EAGAIN);
    struct timespec soon = in_ms(20);
    EXPECT_ERRNO(mq_timedreceive(second, buffer, 16, NULL, &soon), ETIMEDOUT);
    EXPECT(fcntl(copy, F_SETFL, 0) == 0);
    soon = in_ms(20);
    EXPECT_ERRNO(mq_timedreceive(queue, buffer, 16, NULL, &soon), ETIMEDOUT);
}

CASE(proc_self_fd_leads_to_the_name) {
    mqd_t queue = create(O_RDWR, 4);
    char path[64], target[100] = {0};
    snprintf(path, sizeof path, "/proc/self/fd/%d", queue);
    EXPECT(readlink(path, target, sizeof target) == (ssize_t)strlen(name()) && !strcmp(target, name()));
    EXPECT(readlink(path, target, 3) == 3);
    EXPECT(mq_unlink(name()) == 0);
    memset(target, 0, sizeof target);
    EXPECT(readlink(path, target, sizeof target) == (ssize_t)strlen(name()) + 10);
    EXPECT(!strcmp(target + strlen(name()), " (deleted)"));
}
