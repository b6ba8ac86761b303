/*
 * rate DEPTH SECONDS
 *
 * Sends messages of 64 bytes from one process to another through a queue of DEPTH messages for SECONDS, with the calls of <mqueue.h> only, and
 * prints: messages, seconds, seconds of CPU time of both processes.
 */
#define _GNU_SOURCE
#include <mqueue.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct message {
	uint64_t number;
	char rest[56];
};

/* The number that marks the last message. */
#define END UINT64_MAX

/* The receiver's report to the sender at the end. */
struct result {
	uint64_t received;
	double end;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double cpu(int who)
{
	struct rusage usage;
	getrusage(who, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
		+ (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void receive_all(mqd_t queue, struct result *result)
{
	struct message message;
	uint64_t next = 0;

	for (;;) {
		if (mq_receive(queue, (char *)&message, sizeof message, NULL) != sizeof message)
			die("mq_receive");
		if (message.number == END)
			break;
		if (message.number != next++) {
			fprintf(stderr, "message %llu came in place of %llu\n",
				(unsigned long long)message.number, (unsigned long long)(next - 1));
			exit(1);
		}
	}
	result->end = now();
	result->received = next;
}

static uint64_t send_for(mqd_t queue, double end)
{
	struct message message = { 0 };

	while (message.number % 256 != 0 || now() < end) {
		if (mq_send(queue, (const char *)&message, sizeof message, 0) != 0)
			die("mq_send");
		message.number++;
	}
	uint64_t sent = message.number;
	message.number = END;
	if (mq_send(queue, (const char *)&message, sizeof message, 0) != 0)
		die("mq_send");
	return sent;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: rate DEPTH SECONDS\n");
		return 2;
	}
	struct mq_attr attributes = { .mq_maxmsg = atol(argv[1]), .mq_msgsize = sizeof(struct message) };
	char name[64];
	snprintf(name, sizeof name, "/umsg-demo-rate-%d", (int)getpid());
	mqd_t queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &attributes);
	if (queue == (mqd_t)-1)
		die("mq_open");
	mq_unlink(name);

	struct result *result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (result == MAP_FAILED)
		die("mmap");
	pid_t sender = getpid();
	pid_t receiver = fork();
	if (receiver < 0)
		die("fork");
	if (receiver == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != sender)
			return 1;
		receive_all(queue, result);
		return 0;
	}

	double start = now();
	uint64_t sent = send_for(queue, start + atof(argv[2]));
	int status;
	if (waitpid(receiver, &status, 0) != receiver || status != 0 || result->received != sent) {
		fprintf(stderr, "%llu messages sent, %llu received\n",
			(unsigned long long)sent, (unsigned long long)result->received);
		return 1;
	}
	printf("%llu %.6f %.6f\n", (unsigned long long)sent, result->end - start,
	       cpu(RUSAGE_SELF) + cpu(RUSAGE_CHILDREN));
	return 0;
}
