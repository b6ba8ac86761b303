/*
 * Sends frames of a megabyte to another process without copying them: the sender writes each frame in the queue's memory, and the receiver reads the
 * frame in place.
 *
 *     ./frames /frames 1000
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <umsg.h>
#include <unistd.h>

enum { FRAME = 1 << 20, DEPTH = 4 };

static void check(int result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "frames: %s: %s\n", what, umsg_last_error());
        exit(1);
    }
}

static void paint(umsg_mqd_t queue, int frames)
{
    for (int i = 0; i < frames; i++) {
        struct umsg_mq_reservation frame;
        /* Waits until fewer than DEPTH frames are in the queue or leased. */
        check(umsg_mq_reserve(queue, FRAME, &frame, NULL), "reserve");
        memset(frame.data, i & 0xff, FRAME);
        check(umsg_mq_commit(&frame, FRAME, 0), "commit");
    }
}

static int show(umsg_mqd_t queue, int frames)
{
    int right = 0;
    for (int i = 0; i < frames; i++) {
        struct umsg_mq_lease frame;
        check(umsg_mq_lease(queue, &frame, NULL), "lease");
        const unsigned char *pixels = frame.data;
        right += frame.len == FRAME && pixels[0] == (i & 0xff) && pixels[FRAME - 1] == (i & 0xff);
        /* The queue frees the frame only now: if this process dies earlier, another process gets the frame. */
        check(umsg_mq_acknowledge(&frame), "acknowledge");
    }
    return right;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "/frames";
    int frames = argc > 2 ? atoi(argv[2]) : 1000;
    struct umsg_mq_attr attr = {.mq_maxmsg = DEPTH, .mq_msgsize = FRAME};
    umsg_mqd_t queue = umsg_mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &attr);
    int status;

    check(queue == (umsg_mqd_t)-1, name);
    /* The child inherits the queue; the name is no longer needed. */
    check(umsg_mq_unlink(name), name);
    if (fork() == 0) {
        paint(queue, frames);
        _exit(0);
    }
    int right = show(queue, frames);
    printf("%d of %d frames\n", right, frames);
    wait(&status);
    return right == frames && status == 0 ? 0 : 1;
}
