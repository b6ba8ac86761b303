/*
 * The names of POSIX message queues for those of umsg, for programs that can be recompiled.
 *
 * Include this header instead of <mqueue.h>, or in addition to <mqueue.h>, in any order. Or let the compiler include it
 * first, by -include umsg/mqueue.h. In that case, define macros such as _GNU_SOURCE on the command line too (-D), because
 * this header includes the system's headers.
 *
 * As on FreeBSD, mqd_t is a pointer here, not a file descriptor. A program may compare a value of this type only with
 * (mqd_t)-1, and must not pass it to poll(2), close(2) or similar calls.
 */
#ifndef UMSG_MQUEUE_H
#define UMSG_MQUEUE_H

/* The system's headers come first, so that a later #include of them declares nothing under the names below. */
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
