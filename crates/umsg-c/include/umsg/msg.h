/*
 * The names of System V message queues for those of umsg, for programs that can be recompiled.
 *
 * Include it instead of <sys/msg.h>, or besides it, before or after; or have the compiler include it first, with
 * -include umsg/msg.h. In the last case macros such as _GNU_SOURCE have to be defined on the command line too (-D),
 * since the system's headers are included from here.
 */
#ifndef UMSG_MSG_H
#define UMSG_MSG_H

/* First, so that a later #include of it declares nothing under the names below. */
#include <sys/ipc.h>
#include <sys/msg.h>
#include <time.h>

#include <umsg.h>

#define msgget umsg_msgget
#define msgsnd umsg_msgsnd
#define msgrcv umsg_msgrcv
#define msgctl umsg_msgctl

#endif
