/* A program like one that was built before glibc 2.34: its symbols have the versions of librt, including the fortified mq_open. It prints the result
   of each call, so that two runs can be compared. With an argument, it prints the file that provides each symbol. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OLD "GLIBC_2.3.4"
#define OLD_FORTIFIED "GLIBC_2.7"
#elif defined(__aarch64__)
#define OLD "GLIBC_2.17"
#define OLD_FORTIFIED "GLIBC_2.17"
#else
#error "which versions did librt have here?"
#endif

__asm__(".symver mq_open,mq_open@" OLD);
__asm__(".symver mq_close,mq_close@" OLD);
__asm__(".symver mq_unlink,mq_unlink@" OLD);
__asm__(".symver mq_send,mq_send@" OLD);
__asm__(".symver mq_timedsend,mq_timedsend@" OLD);
__asm__(".symver mq_receive,mq_receive@" OLD);
__asm__(".symver mq_timedreceive,mq_timedreceive@" OLD);
__asm__(".symver mq_getattr,mq_getattr@" OLD);
__asm__(".symver mq_setattr,mq_setattr@" OLD);
__asm__(".symver __mq_open_2,__mq_open_2@" OLD_FORTIFIED);

extern mqd_t __mq_open_2(const char *name, int flags);

static void say(const char *what, long answer)
{
    if (answer == -1)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, answer);
}

/* Prints the file that provides a name to dlsym, and the file that provides the name to this program. */
static void provider(const char *name, void *linked)
{
    Dl_info plain = {0}, used = {0};
    dladdr(dlsym(RTLD_DEFAULT, name), &plain);
    dladdr(linked, &used);
    printf("%s %s %s\n", name, plain.dli_fname, used.dli_fname);
}

static int providers(void)
{
#define PROVIDER(name) provider(#name, (void *)name)
    PROVIDER(mq_open);
    PROVIDER(__mq_open_2);
    PROVIDER(mq_close);
    PROVIDER(mq_unlink);
    PROVIDER(mq_send);
    PROVIDER(mq_timedsend);
    PROVIDER(mq_receive);
    PROVIDER(mq_timedreceive);
    PROVIDER(mq_getattr);
    PROVIDER(mq_setattr);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return providers();
    char name[64], buffer[64];
    unsigned priority = 0;
    struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = sizeof buffer}, got;
    struct timespec past = {0}, invalid = {.tv_nsec = -1};
    struct stat status;

    snprintf(name, sizeof name, "/umsg-old-symbols-%d", (int)getpid());
    mqd_t queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &attributes);
    say("mq_open", queue);
    mqd_t fortified = __mq_open_2(name, O_RDONLY | O_NONBLOCK);
    say("__mq_open_2", fortified);
    say("mq_receive of nothing", mq_receive(fortified, buffer, sizeof buffer, &priority));
    say("mq_send", mq_send(queue, "first", 5, 1));
    say("mq_timedsend", mq_timedsend(queue, "second", 6, 2, &past));
    say("mq_timedsend to a full queue", mq_timedsend(queue, "third", 5, 3, &past));
    say("mq_timedsend with no time", mq_timedsend(queue, "third", 5, 3, &invalid));
    say("mq_getattr", mq_getattr(queue, &got));
    printf("%ld of %ld messages of %ld\n", got.mq_curmsgs, got.mq_maxmsg, got.mq_msgsize);
    say("fstat", fstat(queue, &status));
    printf("%ld bytes, mode %o\n", (long)status.st_size, status.st_mode);
    say("read", read(fortified, buffer, sizeof buffer));
    long length = mq_timedreceive(queue, buffer, sizeof buffer, &priority, &past);
    say("mq_timedreceive", length);
    printf("%.*s of priority %u\n", (int)length, buffer, priority);
    got.mq_flags = O_NONBLOCK;
    say("mq_setattr", mq_setattr(queue, &got, &attributes));
    say("F_GETFL", fcntl(queue, F_GETFL));

    pid_t child = fork();
    if (child == 0) {
        mq_setattr(queue, &attributes, NULL);
        length = mq_receive(queue, buffer, sizeof buffer, &priority);
        _exit(length == 5 && mq_send(queue, buffer, length, priority + 1) == 0 ? 0 : 1);
    }
    int ended = -1;
    waitpid(child, &ended, 0);
    say("the child", ended);
    say("mq_receive", mq_receive(queue, buffer, sizeof buffer, NULL));
    say("F_SETFL", fcntl(queue, F_SETFL, O_NONBLOCK));
    say("mq_receive of nothing", mq_receive(queue, buffer, sizeof buffer, NULL));
    say("mq_unlink", mq_unlink(name));
    say("mq_unlink again", mq_unlink(name));
    say("mq_close", mq_close(queue));
    say("mq_close again", mq_close(queue));
    say("close", close(fortified));
    return 0;
}
