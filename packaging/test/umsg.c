/* Sends a text and receives it, with the functions of umsg.h. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <umsg.h>

int main(void)
{
	struct umsg_mq_attr attributes = { .mq_maxmsg = 1000, .mq_msgsize = 64 };
	umsg_mqd_t queue = umsg_mq_open("/c", O_CREAT | O_RDWR, 0600, &attributes);
	char text[64];
	unsigned priority;
	if (queue == (umsg_mqd_t)-1 || umsg_mq_send(queue, "from C", 6, 3) != 0
	    || umsg_mq_receive(queue, text, sizeof text, &priority) != 6) {
		fprintf(stderr, "%s\n", umsg_last_error());
		return 1;
	}
	if (strcmp(umsg_version(), UMSG_VERSION) != 0) {
		fprintf(stderr, "header %s, library %s\n", UMSG_VERSION, umsg_version());
		return 1;
	}
	printf("%.6s, priority %u\n", text, priority);
	return umsg_mq_close(queue);
}
