/*
 * The names of System V message queues for those of umsg, for programs that can be recompiled.
 *
 * Include this header instead of <sys/msg.h>, or in addition to <sys/msg.h>, in any order. Or let the compiler include it
 * first, by -include umsg/msg.h. In that case, define macros such as _GNU_SOURCE on the command line too (-D), because
 * this header includes the system's headers.
 */
#ifndef UMSG_MSG_H
#define UMSG_MSG_H

/* The system's headers come first, so that a later #include of them declares nothing under the names below. */
#include <sys/ipc.h>
#include <sys/msg.h>
#include <time.h>

#include <umsg.h>

#define msgget umsg_msgget
#define msgsnd umsg_msgsnd
#define msgrcv umsg_msgrcv
#define msgctl umsg_msgctl

#endif
