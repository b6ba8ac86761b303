/*
 * The names of POSIX message queues for those of umsg, for programs that can be recompiled.
 *
 * Include it instead of <mqueue.h>, or besides it, before or after; or have the compiler include it first, with
 * -include umsg/mqueue.h. In the last case macros such as _GNU_SOURCE have to be defined on the command line too (-D),
 * since the system's headers are included from here.
 *
 * What a program has to know: mqd_t is a pointer here, as it is on FreeBSD, and no descriptor. It may be compared
 * with (mqd_t)-1 and with nothing else, and poll(2), close(2) and the like don't take it.
 */
#ifndef UMSG_MQUEUE_H
#define UMSG_MQUEUE_H

/* First, so that a later #include of it declares nothing under the names below. */
#include <fcntl.h>
#include <mqueue.h>
#include <sys/stat.h>
#include <time.h>

#include <umsg.h>

#define mqd_t umsg_mqd_t
#define mq_attr umsg_mq_attr

#define mq_open umsg_mq_open
#define mq_close umsg_mq_close
#define mq_unlink umsg_mq_unlink
#define mq_send umsg_mq_send
#define mq_timedsend umsg_mq_timedsend
#define mq_receive umsg_mq_receive
#define mq_timedreceive umsg_mq_timedreceive
#define mq_getattr umsg_mq_getattr
#define mq_setattr umsg_mq_setattr
#define mq_notify umsg_mq_notify

#endif
