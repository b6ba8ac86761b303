/* The handler of a timer that fires 10,000 times a second sends to a queue and receives from it. The interrupted thread and another process use the
 * same queue all the time. Every message is accounted for. `timer CASE` runs for 5 seconds, or for UMSG_SIGNAL_SECONDS, and on a busy machine until
 * the handler has run 1000 times. */
#include "check.h"
#include <sys/mman.h>
#include <sys/time.h>

enum { THREAD, HANDLER, PEER, SENDERS };

struct letter {
    unsigned long sender, number;
};

/* The messages that the thread, the handler or the other process has sent and received. */
struct tally {
    unsigned long sent, received[SENDERS], sums[SENDERS];
};

static struct tally *tallies;
static mqd_t queue, blocking_queue;
static volatile sig_atomic_t failures, runs;
static volatile int *stop;

/* Mixes a number, so that lost and repeated numbers do not cancel out in the sums. */
static unsigned long mixed(unsigned long number) { return (number + 1) * (number + 1) * 0x9e3779b97f4a7c15; }

/* The calls of the interrupted thread may block without a limit. The calls of the handler and of the other process never block. */
static void send_one(int sender, mqd_t to) {
    struct letter letter = {sender, tallies[sender].sent};
    if (mq_send(to, (char *)&letter, sizeof letter, sender == HANDLER) == 0)
        tallies[sender].sent++;
    else if (errno != EAGAIN)
        failures++;
}

static void receive_one(int receiver, mqd_t from) {
    struct letter letter;
    if (mq_receive(from, (char *)&letter, sizeof letter, NULL) == sizeof letter) {
        tallies[receiver].received[letter.sender]++;
        tallies[receiver].sums[letter.sender] += mixed(letter.number);
    } else if (errno != EAGAIN) {
        failures++;
    }
}

/* The handler sends in one run and receives in the next. So two runs let a thread continue that is blocked in the full or empty queue. */
static void on_timer(int number) {
    (void)number;
    int error = errno;
    if (runs++ % 2)
        receive_one(HANDLER, queue);
    else
        send_one(HANDLER, queue);
    errno = error;
}

static pid_t start_peer(void) {
    pid_t child = fork();
    if (child != 0) return child;
    while (!*stop) {
        send_one(PEER, queue);
        receive_one(PEER, queue);
    }
    _exit(failures != 0);
}

static void set_timer(long microseconds) {
    struct itimerval period = {{0, microseconds}, {0, microseconds}};
    EXPECT(setitimer(ITIMER_REAL, &period, NULL) == 0);
}

static void expect_all_accounted_for(void) {
    for (int sender = 0; sender < SENDERS; sender++) {
        unsigned long received = 0, sum = 0, expected = 0;
        for (int receiver = 0; receiver < SENDERS; receiver++) {
            received += tallies[receiver].received[sender];
            sum += tallies[receiver].sums[sender];
        }
        for (unsigned long number = 0; number < tallies[sender].sent; number++) expected += mixed(number);
        printf("sender %d: %lu sent, %lu received\n", sender, tallies[sender].sent, received);
        EXPECT(received == tallies[sender].sent && sum == expected);
    }
}

/* The thread makes its calls on `mine`. The calls of the handler and of the other process never block. */
static void hammer(mqd_t mine) {
    tallies = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(tallies != MAP_FAILED);
    stop = (int *)(tallies + SENDERS);
    pid_t peer = start_peer();
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    const char *seconds = getenv("UMSG_SIGNAL_SECONDS");
    time_t end = time(NULL) + (seconds ? atol(seconds) : 5);
    set_timer(100);
    while (time(NULL) < end || runs <= 1000 || tallies[HANDLER].sent <= 100) {
        send_one(THREAD, mine);
        receive_one(THREAD, mine);
    }
    set_timer(0);
    *stop = 1;
    expect_success(peer);
    while (count(queue) > 0) receive_one(THREAD, queue);
    printf("%d runs of the handler\n", (int)runs);
    EXPECT(failures == 0 && runs > 1000 && tallies[HANDLER].sent > 100);
    expect_all_accounted_for();
}

static void open_both(void) {
    queue = create(O_RDWR | O_NONBLOCK, 10);
    blocking_queue = mq_open(name(), O_RDWR);
    EXPECT(blocking_queue >= 0);
}

CASE(no_message_is_lost_between_a_thread_and_its_handler) {
    open_both();
    hammer(queue);
}

CASE(no_message_is_lost_where_the_handler_interrupts_blocked_calls) {
    open_both();
    hammer(blocking_queue);
}
