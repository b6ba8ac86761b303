/* /dev/mqueue as mq_overview(7) describes it. Cases on the kernel's queues run in their own IPC and mount namespaces. */
#include "check.h"
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define HOME "/dev/mqueue"
static const char *const one = HOME "/one", *const two = HOME "/two";

/* On the kernel's queues: enters new namespaces, or ends the case without permission for namespaces. umsg needs neither the directory nor the file
 * system. */
static void enter(void) {
    if (getenv("UMSG_DIR")) return;
    if (unshare(CLONE_NEWIPC | CLONE_NEWNS) != 0) exit(0);
    EXPECT(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    if (access(HOME, F_OK) != 0) {
        EXPECT(mount("tmpfs", "/dev", "tmpfs", 0, "mode=755") == 0 && mkdir(HOME, 0755) == 0);
        EXPECT(mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3)) == 0 && chmod("/dev/null", 0666) == 0);
        EXPECT(symlink("/proc/self/fd", "/dev/fd") == 0);
    }
    EXPECT(mount("mqueue", HOME, "mqueue", 0, NULL) == 0);
}

static mqd_t make(const char *queue, mode_t mode) {
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 100};
    mqd_t made = mq_open(queue, O_RDWR | O_CREAT | O_EXCL, mode, &attributes);
    EXPECT(made >= 0);
    return made;
}

CASE(a_queue_is_a_file_of_eighty_bytes) {
    enter();
    umask(0);
    make("/one", 0640);
    struct stat seen[4], of_descriptor;
    int directory = open(HOME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT(directory >= 0 && stat(one, &seen[0]) == 0 && lstat(one, &seen[1]) == 0);
    EXPECT(fstatat(AT_FDCWD, one, &seen[2], AT_SYMLINK_NOFOLLOW) == 0 && fstatat(directory, "one", &seen[3], 0) == 0);
    mqd_t queue = mq_open("/one", O_RDONLY);
    EXPECT(fstat(queue, &of_descriptor) == 0);
    for (int i = 0; i < 4; i++) {
        EXPECT(seen[i].st_mode == (S_IFREG | 0640) && seen[i].st_size == 80 && seen[i].st_nlink == 1);
        EXPECT(seen[i].st_uid == geteuid() && seen[i].st_gid == getegid() && seen[i].st_blocks == 0);
        EXPECT(seen[i].st_ino == of_descriptor.st_ino && seen[i].st_dev == of_descriptor.st_dev);
    }
#ifdef STATX_BASIC_STATS /* musl 1.2.3 has no statx */
    struct statx extended;
    EXPECT(statx(AT_FDCWD, one, 0, STATX_ALL, &extended) == 0 && extended.stx_size == 80 && extended.stx_mode == (S_IFREG | 0640));
    EXPECT(statx(directory, "one", 0, STATX_ALL, &extended) == 0 && extended.stx_size == 80);
#endif
    EXPECT(stat(HOME, &seen[0]) == 0 && S_ISDIR(seen[0].st_mode) && stat(HOME "/", &seen[0]) == 0);
    EXPECT_ERRNO(stat(two, &seen[0]), ENOENT);
    EXPECT_ERRNO(fstatat(directory, "two", &seen[0], 0), ENOENT);
    EXPECT_ERRNO(getxattr(one, "system.posix_acl_access", NULL, 0), EOPNOTSUPP);
    EXPECT(mq_unlink("/one") == 0);
    EXPECT_ERRNO(stat(one, &seen[0]), ENOENT);
}

CASE(a_path_opens_the_queue) {
    enter();
    umask(022);
    mqd_t queue = make("/one", 0666);
    EXPECT(mq_send(queue, "hello", 5, 3) == 0);
    int file = open(one, O_RDONLY);
    char text[200] = {0}, message[100];
    unsigned priority;
    EXPECT(file >= 0 && fcntl(file, F_GETFD) == 0);
    EXPECT(read(file, text, 199) == 60);
    EXPECT(!strcmp(text, "QSIZE:5          NOTIFY:0     SIGNO:0     NOTIFY_PID:0     \n"));
    /* The file is an ordinary descriptor of the queue. */
    EXPECT(mq_receive(file, message, sizeof message, &priority) == 5 && priority == 3);
    EXPECT_ERRNO(mq_send(file, "x", 1, 0), EBADF);
    EXPECT(close(file) == 0);
    EXPECT((file = open(one, O_RDWR | O_CLOEXEC | O_NONBLOCK)) >= 0 && fcntl(file, F_GETFD) == FD_CLOEXEC);
    EXPECT_ERRNO(mq_receive(file, message, sizeof message, NULL), EAGAIN);
    EXPECT_ERRNO(write(file, "x", 1), EINVAL);
    EXPECT_ERRNO(open(two, O_RDONLY), ENOENT);
    EXPECT_ERRNO(open(one, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    EXPECT_ERRNO(open(one, O_RDONLY | O_DIRECTORY), ENOTDIR);
    EXPECT_ERRNO(open(HOME, O_RDWR), EISDIR);
    EXPECT_ERRNO(open(one, O_RDONLY | O_DIRECT), EINVAL);
    /* A created queue has the default attributes. */
    int made = open(two, O_RDWR | O_CREAT, 0664);
    struct mq_attr attributes;
    struct stat seen;
    EXPECT(made >= 0 && mq_getattr(made, &attributes) == 0 && attributes.mq_maxmsg == 10 && attributes.mq_msgsize == 8192);
    EXPECT(stat(two, &seen) == 0 && seen.st_mode == (S_IFREG | 0644));
    EXPECT(mq_open("/two", O_RDWR) >= 0);
    int directory = open(HOME, O_RDONLY | O_DIRECTORY), other = openat(directory, "three", O_WRONLY | O_CREAT, 0600);
    EXPECT(other >= 0 && mq_send(other, "x", 1, 0) == 0 && openat(directory, "one", O_RDONLY) >= 0 && creat(HOME "/four", 0600) >= 0);
    EXPECT(mq_open("/four", O_RDONLY) >= 0);
    char name[300] = HOME "/";
    memset(name + strlen(name), 'a', 256);
    EXPECT_ERRNO(open(name, O_RDWR | O_CREAT, 0600), ENAMETOOLONG);
    name[strlen(HOME) + 256] = 0;
    EXPECT(open(name, O_RDWR | O_CREAT, 0600) >= 0);
}

CASE(streams_read_the_line) {
    enter();
    mqd_t queue = make("/one", 0600);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    EXPECT(mq_notify(queue, &event) == 0);
    char expected[100], text[100] = {0};
    snprintf(expected, sizeof expected, "QSIZE:%-10d NOTIFY:%-5d SIGNO:%-5d NOTIFY_PID:%-6d\n", 0, 0, SIGUSR1, getpid());
    FILE *stream = fopen(one, "r");
    EXPECT(stream && fgets(text, sizeof text, stream) && !strcmp(text, expected) && fclose(stream) == 0);
    stream = fopen(two, "w");
    EXPECT(stream && fputs("x", stream) >= 0);
    EXPECT_ERRNO(fflush(stream), EINVAL);
    EXPECT(mq_open("/two", O_RDWR) >= 0);
    errno = 0;
    EXPECT(!fopen(HOME "/three", "r") && errno == ENOENT);
}

/* Returns a bit for the name of an entry: 1, 2 and 4 for "one", "two" and "three", 8 for other names, 0 for a name that begins with a dot. */
static int bit(const char *entry) {
    return !strcmp(entry, "one") ? 1 : !strcmp(entry, "two") ? 2 : !strcmp(entry, "three") ? 4 : entry[0] == '.' ? 0 : 8;
}

static int listed(DIR *directory) {
    EXPECT(directory);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        found |= bit(entry->d_name);
        if (entry->d_name[0] != '.') {
            struct stat seen;
            EXPECT(fstatat(dirfd(directory), entry->d_name, &seen, 0) == 0 && seen.st_size == 80 && seen.st_ino == entry->d_ino);
            EXPECT(entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN);
        }
    }
    EXPECT(closedir(directory) == 0);
    return found;
}

static int scanned(void) {
    struct dirent **entries;
    int count = scandir(HOME, &entries, NULL, alphasort), found = 0;
    EXPECT(count >= 2);
    while (count-- > 0) found |= bit(entries[count]->d_name);
    return found;
}

CASE(the_directory_lists_the_queues_that_there_are) {
    enter();
    EXPECT(listed(opendir(HOME)) == 0 && scanned() == 0);
    make("/one", 0600);
    make("/two", 0);
    EXPECT(listed(opendir(HOME)) == 3 && listed(opendir(HOME "/")) == 3 && scanned() == 3);
    EXPECT(listed(fdopendir(open(HOME, O_RDONLY | O_DIRECTORY | O_CLOEXEC))) == 3);
    /* Creates and removes a queue three times. The directory does not list a name without a queue. */
    for (int round = 0; round < 3; round++) {
        mqd_t three = make("/three", 0600);
        EXPECT(listed(opendir(HOME)) == 7 && mq_close(three) == 0);
        EXPECT(mq_unlink("/three") == 0 && listed(opendir(HOME)) == 3);
        struct stat seen;
        EXPECT_ERRNO(stat(HOME "/three", &seen), ENOENT);
    }
    errno = 0;
    EXPECT(!opendir(one) && errno == ENOTDIR);
    errno = 0;
    EXPECT(!opendir(HOME "/four") && errno == ENOENT);
}

static int walked;

static int visit(const char *path, const struct stat *seen, int kind, struct FTW *at) {
    if (!strcmp(path, HOME)) {
        EXPECT(kind == FTW_D && at->level == 0 && !strcmp(path + at->base, "mqueue"));
        return 0;
    }
    EXPECT(kind == FTW_F && at->level == 1 && at->base == strlen(HOME) + 1 && seen->st_size == 80);
    EXPECT(!strncmp(path, HOME "/", at->base) && S_ISREG(seen->st_mode));
    walked |= bit(path + at->base);
    return 0;
}

static int visit_plainly(const char *path, const struct stat *seen, int kind) {
    if (kind == FTW_F) {
        EXPECT(seen->st_size == 80);
        walked |= bit(path + strlen(HOME) + 1);
    }
    return strcmp(path, two) ? 0 : 5;
}

static int visit_other(const char *path, const struct stat *seen, int kind, struct FTW *at) {
    (void)seen, (void)kind, (void)at;
    EXPECT(!strncmp(path, "/proc/self/ns", 13));
    return 3;
}

CASE(walks_and_patterns_find_the_queues) {
    enter();
    umask(0);
    make("/one", 0640);
    EXPECT(nftw(HOME, visit, 4, FTW_PHYS) == 0 && walked == 1);
    make("/two", 0600);
    walked = 0;
    EXPECT(nftw(HOME, visit, 4, 0) == 0 && walked == 3);
    walked = 0;
    EXPECT(ftw(HOME, visit_plainly, 4) == 5 && walked & 2);
    EXPECT(nftw("/proc/self/ns", visit_other, 4, 0) == 3);
    glob_t found = {0};
    EXPECT(glob(HOME "/[ot]*", 0, NULL, &found) == 0 && found.gl_pathc == 2);
    EXPECT(!strcmp(found.gl_pathv[0], one) && !strcmp(found.gl_pathv[1], two));
    globfree(&found);
    EXPECT(glob(HOME "/x*", 0, NULL, &found) == GLOB_NOMATCH && glob(HOME "/one", 0, NULL, &found) == 0);
    EXPECT(glob("/proc/self/sta*", 0, NULL, &found) == 0 && found.gl_pathc >= 2);
}

CASE(a_queue_is_removed_by_its_path) {
    enter();
    make("/one", 0600);
    make("/two", 0600);
    make("/three", 0600);
    int directory = open(HOME, O_RDONLY | O_DIRECTORY);
    EXPECT(unlink(one) == 0);
    EXPECT_ERRNO(unlink(one), ENOENT);
    EXPECT_ERRNO(mq_open("/one", O_RDONLY), ENOENT);
    EXPECT_ERRNO(rmdir(two), ENOTDIR);
    EXPECT(unlinkat(directory, "two", 0) == 0 && remove(HOME "/three") == 0);
    EXPECT_ERRNO(unlinkat(directory, "two", 0), ENOENT);
    EXPECT_ERRNO(mq_unlink("/two"), ENOENT);
    EXPECT_ERRNO(remove(HOME "/three"), ENOENT);
    EXPECT_ERRNO(unlink(HOME), EISDIR);
    EXPECT_ERRNO(rmdir(HOME), EBUSY);
    EXPECT_ERRNO(rmdir(HOME "/four"), ENOENT);
}

CASE(a_queue_has_one_name_for_ever) {
    enter();
    make("/one", 0600);
    make("/two", 0600);
    int directory = open(HOME, O_RDONLY | O_DIRECTORY);
    EXPECT_ERRNO(rename(one, HOME "/three"), EPERM);
    EXPECT_ERRNO(rename(one, two), EPERM);
    EXPECT_ERRNO(renameat(directory, "one", directory, "three"), EPERM);
    EXPECT_ERRNO(rename(HOME "/three", two), ENOENT);
    EXPECT_ERRNO(rename(one, "/tmp/umsg-test-renamed"), EXDEV);
    EXPECT_ERRNO(rename("/proc/self/comm", two), EXDEV);
    EXPECT(rename(one, one) == 0);
}

CASE(mode_and_owner_change_by_the_path) {
    enter();
    mqd_t queue = make("/one", 0600);
    struct stat seen;
    EXPECT(chmod(one, 0622) == 0 && stat(one, &seen) == 0 && seen.st_mode == (S_IFREG | 0622));
    EXPECT(fstat(queue, &seen) == 0 && seen.st_mode == (S_IFREG | 0622));
    EXPECT(fchmodat(AT_FDCWD, one, 0200, 0) == 0 && stat(one, &seen) == 0 && seen.st_mode == (S_IFREG | 0200));
    EXPECT_ERRNO(chmod(two, 0600), ENOENT);
    EXPECT_ERRNO(chown(two, 0, 0), ENOENT);
    EXPECT(access(one, F_OK) == 0);
    EXPECT_ERRNO(access(two, F_OK), ENOENT);
    EXPECT_ERRNO(access(one, X_OK), EACCES);
    if (geteuid() != 0) {
        EXPECT(access(one, W_OK) == 0 && eaccess(one, W_OK) == 0);
        EXPECT_ERRNO(access(one, R_OK), EACCES);
        return;
    }
    EXPECT(access(one, R_OK | W_OK) == 0 && faccessat(AT_FDCWD, one, R_OK, AT_EACCESS) == 0);
    EXPECT(chown(one, 65534, 65534) == 0 && stat(one, &seen) == 0 && seen.st_uid == 65534 && seen.st_gid == 65534);
}

CASE(another_user_is_held_to_the_mode) {
    if (geteuid() != 0) return;
    if (getenv("UMSG_DIR")) EXPECT(chmod(getenv("UMSG_DIR"), 01777) == 0);
    enter();
    umask(0);
    make("/one", 0644);
    make("/two", 0600);
    make("/three", 0622);
    EXPECT(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    struct stat seen;
    EXPECT(access(one, R_OK) == 0 && access(two, F_OK) == 0 && access(HOME "/three", W_OK) == 0);
    EXPECT_ERRNO(access(one, W_OK), EACCES);
    EXPECT_ERRNO(access(two, R_OK), EACCES);
    EXPECT_ERRNO(access(HOME "/three", R_OK), EACCES);
    EXPECT(stat(one, &seen) == 0 && seen.st_mode == (S_IFREG | 0644));
    EXPECT(stat(two, &seen) == 0 && seen.st_mode == (S_IFREG | 0600) && seen.st_size == 80);
    EXPECT(open(one, O_RDONLY) >= 0);
    EXPECT_ERRNO(open(one, O_RDWR), EACCES);
    EXPECT_ERRNO(open(two, O_RDONLY), EACCES);
    EXPECT_ERRNO(unlink(one), EPERM);
    EXPECT_ERRNO(mq_unlink("/one"), EACCES);
    EXPECT_ERRNO(chmod(one, 0666), EPERM);
}

CASE(inotify_tells_of_queues) {
    enter();
    int watcher = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    EXPECT(inotify_add_watch(watcher, HOME, IN_CREATE | IN_DELETE) > 0);
    make("/one", 0600);
    union {
        struct inotify_event event;
        char room[600];
    } read_event;
    EXPECT(read(watcher, &read_event, sizeof read_event) > 0 && read_event.event.mask == IN_CREATE);
    EXPECT(!strcmp(read_event.event.name, "one") && mq_unlink("/one") == 0);
    EXPECT(read(watcher, &read_event, sizeof read_event) > 0 && read_event.event.mask == IN_DELETE);
    EXPECT(!strcmp(read_event.event.name, "one"));
}

static void shell(const char *line) {
    int status = system(line);
    if (status != 0) fprintf(stderr, "%s: status %#x\n", line, (unsigned)status);
    EXPECT(status == 0);
}

CASE(shells_and_commands_list_read_and_remove) {
    enter();
    umask(022);
    mqd_t queue = make("/one", 0640);
    make("/two", 0600);
    EXPECT(mq_send(queue, "hello", 5, 0) == 0);
    shell("test \"$(ls /dev/mqueue | tr '\\n' ' ')\" = 'one two '");
    shell("test \"$(ls -l /dev/mqueue 2>&1 | grep -c '^-rw-r----- *1 .* 80 .* one$')\" = 1");
    shell("ls -l /dev/mqueue/two 2>&1 | grep -q '^-rw-------'");
    shell("test \"$(cat /dev/mqueue/one)\" = 'QSIZE:5          NOTIFY:0     SIGNO:0     NOTIFY_PID:0     '");
    shell("grep -q QSIZE:5 < /dev/mqueue/one");
    shell("cat /dev/mqueue/one > /tmp/umsg-test-line-$$ && grep -q QSIZE:5 /tmp/umsg-test-line-$$; s=$?; rm /tmp/umsg-test-line-$$; exit $s");
    shell("test -f /dev/mqueue/one && test ! -e /dev/mqueue/three && test -d /dev/mqueue");
    shell("test \"$(stat -c '%s %a' /dev/mqueue/one)\" = '80 640'");
    shell("test \"$(find /dev/mqueue -type f -size 80c | wc -l)\" = 2");
    shell("test \"$(cd / && echo /dev/mqueue/*)\" = '/dev/mqueue/one /dev/mqueue/two'");
    shell("! mv /dev/mqueue/one /dev/mqueue/three 2>/dev/null");
    shell("touch /dev/mqueue/three && chmod 600 /dev/mqueue/three && test -f /dev/mqueue/three");
    EXPECT(mq_open("/three", O_RDWR) >= 0);
    shell("rm /dev/mqueue/three && rm -f /dev/mqueue/t*");
    EXPECT_ERRNO(mq_open("/two", O_RDONLY), ENOENT);
    shell("find /dev/mqueue -name 'o*' -delete");
    EXPECT_ERRNO(mq_open("/one", O_RDONLY), ENOENT);
    shell("test -z \"$(ls -A /dev/mqueue)\"");
}
