/* `files WORD ARGUMENTS`...: performs the operation of each word on the kernel's files of queues, and prints the outcome. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char **next;

static void told(long outcome) {
    if (outcome < 0) printf("%s\n", strerrorname_np(errno));
    else printf("%ld\n", outcome);
}

static void list(char *path) {
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    for (int at = 0; at < count; at++)
        if (entries[at]->d_name[0] != '.') printf("%s ", entries[at]->d_name);
    told(count);
}

int main(int given, char **words) {
    char text[9000];
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    struct stat status;
    struct statx more;
    setvbuf(stdout, NULL, _IONBF, 0);
    for (next = words + 1; *next;) {
        char *word = *next++;
#define IS(name) (!strcmp(word, name))
        if (IS("read")) {
            int file = open(*next++, O_RDONLY);
            ssize_t count = file < 0 ? -1 : read(file, text, sizeof text);
            if (count < 0) told(-1);
            else printf("%.*s", (int)count, text);
            close(file);
        } else if (IS("write")) {
            int file = open(*next++, O_WRONLY | O_TRUNC);
            told(file < 0 ? -1 : write(file, *next, strlen(*next)));
            next++;
            close(file);
        } else if (IS("overwrite")) {
            /* Opens the file without O_TRUNC, so the end of a longer old text remains after the new text. */
            int file = open(*next++, O_RDWR);
            told(file < 0 ? -1 : write(file, *next, strlen(*next)));
            next++;
            close(file);
        } else if (IS("append")) {
            int file = open(*next++, O_RDWR);
            if (file < 0 || read(file, text, sizeof text) < 0) told(-1);
            else told(write(file, *next, strlen(*next)));
            next++;
            close(file);
        } else if (IS("update")) {
            /* Uses one stream for reading and writing, as the kernel's own test does. */
            FILE *file = fopen(*next++, "r+");
            int before = 0, after = 0;
            if (!file) { told(-1); next++; continue; }
            if (fscanf(file, "%d", &before) != 1) return 1;
            rewind(file);
            fprintf(file, "%s\n", *next++);
            rewind(file);
            if (fscanf(file, "%d", &after) != 1) return 1;
            printf("%d %d\n", before, after);
            fclose(file);
        } else if (IS("make")) {
            mqd_t queue = mq_open(*next++, O_RDWR | O_CREAT | O_EXCL, 0640, &attributes);
            told(queue < 0 ? -1 : mq_send(queue, "five!", 5, 1));
            mq_close(queue);
        } else if (IS("default")) {
            mqd_t queue = mq_open(*next++, O_RDWR | O_CREAT, 0600, NULL);
            if (queue < 0 || mq_getattr(queue, &attributes)) told(-1);
            else printf("%ld %ld\n", attributes.mq_maxmsg, attributes.mq_msgsize);
            mq_close(queue);
        } else if (IS("create")) {
            int file = open(*next++, O_RDWR | O_CREAT | O_EXCL, 0600);
            told(file < 0 ? -1 : fcntl(file, F_GETFD));
            close(file);
        } else if (IS("protect")) {
            /* The creator may open the file for writing, although the mode grants no write access. */
            int file = open(*next++, O_RDWR | O_CREAT | O_EXCL, 0400);
            told(file < 0 ? -1 : 0);
            close(file);
        } else if (IS("openat2")) {
            /* The arguments are a path, the size of `struct open_how`, and the member `resolve`. */
            unsigned long long how[3] = {O_RDONLY, 0, strtoull(next[2], NULL, 0)};
            long file = syscall(SYS_openat2, AT_FDCWD, next[0], how, atol(next[1]));
            told(file < 0 ? -1 : 0);
            if (file >= 0) close(file);
            next += 3;
        } else if (IS("receive")) {
            mqd_t queue = open(*next++, O_RDWR);
            told(queue < 0 ? -1 : mq_receive(queue, text, sizeof text, NULL));
            close(queue);
        } else if (IS("scribble")) {
            int file = open(*next++, O_RDWR);
            told(write(file, "x", 1) < 0 ? 1 : 0);
            close(file);
        } else if (IS("stat")) {
            if (stat(*next++, &status)) told(-1);
            else printf("%o %ld\n", status.st_mode, (long)status.st_size);
        } else if (IS("statx")) {
            if (statx(AT_FDCWD, *next++, 0, STATX_ALL, &more)) told(-1);
            else printf("%o %ld %d\n", more.stx_mode, (long)more.stx_size, (more.stx_mask & STATX_BTIME) != 0);
        } else if (IS("access")) told(access(next[0], atoi(next[1]))), next += 2;
        else if (IS("chmod")) told(chmod(next[0], strtol(next[1], NULL, 8))), next += 2;
        else if (IS("chown")) told(chown(next[0], atoi(next[1]), -1)), next += 2;
        else if (IS("rename")) told(rename(next[0], next[1])), next += 2;
        else if (IS("unlink")) told(unlink(*next++));
        else if (IS("rmdir")) told(rmdir(*next++));
        else if (IS("list")) list(*next++);
        else if (IS("within")) {
            /* Uses paths relative to a descriptor of the directory. */
            int directory = open("/dev/mqueue", O_RDONLY | O_DIRECTORY);
            if (fstatat(directory, *next, &status, 0)) told(-1);
            else printf("%o %ld\n", status.st_mode, (long)status.st_size);
            told(unlinkat(directory, *next++, 0));
            close(directory);
        } else if (IS("watch")) {
            int watcher = inotify_init1(IN_NONBLOCK);
            int watch = inotify_add_watch(watcher, "/dev/mqueue", IN_DELETE);
            told(watch < 0 ? -1 : 0);
            told(unlink(*next));
            char *name = strrchr(*next++, '/') + 1;
            ssize_t count = read(watcher, text, sizeof text);
            struct inotify_event *event = (void *)text;
            told(count > 0 && event->mask == IN_DELETE && !strcmp(event->name, name));
            close(watcher);
        } else if (IS("rlimit")) {
            rlim_t bytes = atol(*next++);
            told(setrlimit(RLIMIT_MSGQUEUE, &(struct rlimit){bytes, bytes}));
        } else if (IS("identifier")) {
            int queue = msgget(IPC_PRIVATE, 0600);
            told(queue);
            msgctl(queue, IPC_RMID, NULL);
        } else return printf("%s?\n", word), 1;
    }
    return 0;
}
