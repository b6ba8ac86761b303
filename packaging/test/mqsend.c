/*
 * mqsend NAME TEXT
 *
 * Creates a queue, sends a text, receives it and prints it, with the functions of <mqueue.h> alone. The queue stays. The depth is above the
 * kernel's limit for ordinary users, so that the program fails on the kernel's queues.
 */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: mqsend NAME TEXT\n");
		return 2;
	}
	struct mq_attr attributes = { .mq_maxmsg = 1000, .mq_msgsize = 64 };
	mqd_t queue = mq_open(argv[1], O_CREAT | O_RDWR, 0600, &attributes);
	if (queue == (mqd_t)-1) {
		perror("mq_open");
		return 1;
	}
	char text[64];
	unsigned priority;
	if (mq_send(queue, argv[2], strlen(argv[2]), 7) != 0) {
		perror("mq_send");
		return 1;
	}
	ssize_t length = mq_receive(queue, text, sizeof text, &priority);
	if (length < 0) {
		perror("mq_receive");
		return 1;
	}
	printf("%.*s, priority %u\n", (int)length, text, priority);
	return mq_close(queue);
}
