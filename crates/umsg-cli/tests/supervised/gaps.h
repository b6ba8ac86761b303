/* Hides two facts from a program of cases: the known gaps of supervised programs in docs/protocols.md, and that the program runs on umsg's queues. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

__attribute__((unused)) static char *variable(const char *name) { return strcmp(name, "UMSG_DIR") ? getenv(name) : NULL; }

/* F_GETFL of a queue's file has O_LARGEFILE, whose bit no other command of the cases returns. */
#define fcntl(...) (fcntl(__VA_ARGS__) & ~0100000)
#define getenv variable
