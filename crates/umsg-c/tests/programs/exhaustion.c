/* Exhausted resources: errno, and a text that names the limit. Also leaks: many queues and rings in one process. */
#define _GNU_SOURCE
#include "check.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sets a limit of this process, and returns the previous one. */
static rlim_t limited(int resource, rlim_t soft)
{
    struct rlimit limit;
    rlim_t before;
    CHECK(getrlimit(resource, &limit) == 0);
    before = limit.rlim_cur;
    limit.rlim_cur = soft;
    CHECK(setrlimit(resource, &limit) == 0);
    return before;
}

static void says(const char *text)
{
    CHECK(strstr(umsg_last_error(), text) != NULL);
}

/* Checks that a POSIX queue, a System V queue and a ring can't be created, with this error. */
static void nothing_is_made(int error, const char *text)
{
    struct umsg_ring_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    OPENS_NOT(umsg_mq_open("/new", O_RDWR | O_CREAT, 0600, NULL), error);
    says(text);
    FAILS(umsg_msgget(IPC_PRIVATE, 0600), error);
    says(text);
    errno = 0;
    options.name = "/new";
    CHECK(umsg_ring_create(&options) == NULL && errno == error);
    says(text);
}

static void a_limit_of_the_process_is_named(void)
{
    rlim_t plenty = limited(RLIMIT_NOFILE, 0);
    nothing_is_made(EMFILE, "ulimit -n");
    limited(RLIMIT_NOFILE, plenty);
    plenty = limited(RLIMIT_FSIZE, 4096);
    nothing_is_made(EFBIG, "ulimit -f");
    limited(RLIMIT_FSIZE, plenty);
    plenty = limited(RLIMIT_AS, 0);
    nothing_is_made(ENOMEM, "ulimit -v");
    limited(RLIMIT_AS, plenty);
    done(make("/new", 4, 8, 0), "/new");
}

struct message {
    long type;
    char text[4096];
};

static void a_full_file_system_is_named(void)
{
    static struct message message = {1, ""};
    struct msqid_ds set;
    const char *directory = getenv("UMSG_DIR");
    umsg_mqd_t queue;
    int id;
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0)
        return;
    CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("tmpfs", directory, "tmpfs", 0, "size=1m,mode=700") == 0);
    queue = make("/q", 1000, 4096, O_NONBLOCK);
    id = umsg_msgget(IPC_PRIVATE, 0600);
    CHECK(id >= 0 && umsg_msgctl(id, IPC_STAT, &set) == 0);
    set.msg_qbytes = 1 << 30;
    CHECK(umsg_msgctl(id, IPC_SET, &set) == 0);
    while (umsg_mq_send(queue, message.text, 4096, 0) == 0)
        ;
    CHECK(errno == ENOSPC);
    says("the file system of the namespace is full");
    while (umsg_msgsnd(id, &message, 4096, IPC_NOWAIT) == 0)
        ;
    CHECK(errno == ENOMEM);
    says("the file system of the namespace is full");
    CHECK(umsg_msgctl(id, IPC_RMID, NULL) == 0);
    done(queue, "/q");
    /* The process maps the page that counts the namespace's changes until the process ends. So only MNT_DETACH can unmount the file system. */
    CHECK(umount2(directory, MNT_DETACH) == 0);
}

static void one_of_each(void)
{
    struct umsg_ring_options options;
    struct umsg_ring *ring;
    int id = umsg_msgget(IPC_PRIVATE, 0600);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.name = "/r";
    CHECK(id >= 0 && umsg_msgctl(id, IPC_RMID, NULL) == 0);
    done(make("/q", 4, 8, 0), "/q");
    ring = umsg_ring_create(&options);
    CHECK(ring != NULL && umsg_ring_free(ring) == 0);
}

static long mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    long count = 0;
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        count++;
    CHECK(fclose(maps) == 0);
    return count;
}

static void queues_without_number_leave_no_descriptor_and_no_mapping(void)
{
    long before;
    int i, descriptor;
    for (i = 0; i < 100; i++)
        one_of_each();
    before = mappings();
    descriptor = dup(0);
    CHECK(descriptor >= 0 && close(descriptor) == 0);
    for (i = 0; i < 1000; i++)
        one_of_each();
    /* A leak in each round would leave 1,000 mappings. Without a leak, the library may keep a few more queues, and the heap may have a few more
     * parts. */
    CHECK(mappings() <= before + 50);
    CHECK(dup(0) == descriptor && close(descriptor) == 0);
}

static const struct test_case cases[] = {
    CASE(a_limit_of_the_process_is_named),
    CASE(queues_without_number_leave_no_descriptor_and_no_mapping),
    CASE(a_full_file_system_is_named),
};

MAIN(cases)
