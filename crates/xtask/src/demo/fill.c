/*
 * fill NAME MESSAGES [unlink]
 *
 * Makes a queue NAME that holds MESSAGES messages of up to 16 bytes and fills it, with the calls of <mqueue.h> only. The messages have all possible
 * priorities in turn. The queue stays, unless the third argument is given.
 */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PRIORITIES = 32768 };

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: fill NAME MESSAGES [unlink]\n");
		return 2;
	}
	long messages = atol(argv[2]);
	struct mq_attr attributes = { .mq_maxmsg = messages, .mq_msgsize = 16 };
	mqd_t queue = mq_open(argv[1], O_CREAT | O_EXCL | O_RDWR, 0600, &attributes);
	if (queue == (mqd_t)-1) {
		perror("mq_open");
		return 1;
	}
	if (argc > 3)
		mq_unlink(argv[1]);
	double start = now();
	for (long number = 0; number < messages; number++) {
		char text[17];
		int length = snprintf(text, sizeof text, "message %ld", number);
		/* 7919 is odd, so this passes every priority before it repeats one. */
		if (mq_send(queue, text, (size_t)length, (unsigned)(number * 7919 % PRIORITIES)) != 0) {
			perror("mq_send");
			return 1;
		}
	}
	printf("%ld messages in %.1f ms\n", messages, (now() - start) * 1e3);
	return 0;
}
