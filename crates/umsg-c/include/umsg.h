/*
 * Message queues of Linux in shared memory: the C library.
 *
 * Link with -lumsg, or ask pkg-config for umsg. Each function has a manual page: man 3 umsg_mq_open.
 * <umsg/mqueue.h> gives the functions and types the names of POSIX, and <umsg/msg.h> those of System V, for programs that
 * have these. <umsg/ring.h> makes messages and options of rings.
 *
 * Made by `cargo xtask c-header` from crates/umsg-c/src, and to be changed there.
 */
#ifndef UMSG_H
#define UMSG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define UMSG_VERSION "0.1.0"
#define UMSG_VERSION_MAJOR 0
#define UMSG_VERSION_MINOR 1
#define UMSG_VERSION_PATCH 0

struct msqid_ds;
struct sigevent;
struct timespec;

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Handles of open queues ---- */

/*
 * A handle of an open queue; (umsg_mqd_t)-1 is no handle. Threads may share a handle. A child made by fork(2) has the handles of its
 * parent.
 */
typedef struct umsg_mq *umsg_mqd_t;

/* ---- Attributes of a queue ---- */

/* Attributes of a queue, in the layout of libc's struct mq_attr. */
struct umsg_mq_attr {
    /* 0 or O_NONBLOCK. The flag belongs to the handle, not to the queue. */
    long mq_flags;
    /* The maximum number of messages in the queue. */
    long mq_maxmsg;
    /* The maximum length of a message, in bytes. */
    long mq_msgsize;
    /* The number of queued messages. */
    long mq_curmsgs;
    /* Reserved; 0. */
    long mq_reserved[4];
};

/*
 * Gets the attributes of a queue.
 *
 * Writes to attr the maximum and the present number of messages, the maximum length of a message, and whether the handle has
 * O_NONBLOCK.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: mqdes is not the handle of an open queue.
 * - EFAULT: attr is at an address that can't be written.
 *
 * If the process dies:
 * The call changes nothing.
 *
 * See also:
 * umsg_mq_setattr(3), umsg_mq_status(3), mq_getattr(3)
 */
int umsg_mq_getattr(umsg_mqd_t mqdes, struct umsg_mq_attr *attr);

/*
 * Sets or clears O_NONBLOCK of a handle.
 *
 * mq_flags of newattr is 0 or O_NONBLOCK; its other members are ignored. If oldattr is not NULL, the call writes the attributes before the
 * change to it, like umsg_mq_getattr(3). If newattr is NULL, the call changes nothing.
 *
 * The flag belongs to the handle. It applies to all threads that use the handle, and to processes that inherited the handle over fork(2),
 * but not to other handles of the same queue.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: mqdes is not the handle of an open queue.
 * - EFAULT: newattr or oldattr is at an address that can't be read or written.
 * - EINVAL: mq_flags has other bits than O_NONBLOCK.
 *
 * If the process dies:
 * The flag keeps its value for processes that inherited the handle.
 *
 * See also:
 * umsg_mq_getattr(3), umsg_mq_open(3), mq_setattr(3)
 */
int umsg_mq_setattr(umsg_mqd_t mqdes,
                    const struct umsg_mq_attr *newattr,
                    struct umsg_mq_attr *oldattr);

/* ---- Opening, closing, unlinking ---- */

/*
 * Opens a queue, or creates it.
 *
 * name is a slash and up to 255 bytes. oflag is one of O_RDONLY (to receive), O_WRONLY (to send) and O_RDWR,
 * with any of these:
 *
 * - O_CREAT: create the queue if no queue has this name. Two further arguments follow: mode_t mode, the permission bits before the
 *   umask, and const struct umsg_mq_attr *attr, whose members mq_maxmsg and mq_msgsize are used. With NULL the queue gets the
 *   defaults of the namespace: 10 messages of 8192 bytes if its owner has not changed them. An existing queue keeps its attributes.
 * - O_EXCL: with O_CREAT, fail if a queue has this name.
 * - O_NONBLOCK: calls on the handle fail with EAGAIN where they would wait.
 *
 * A queue belongs to a namespace, which is a directory: the directory that the environment variable UMSG_DIR names, or else /dev/shm/umsg if
 * root owns it, or else the user's own directory /dev/shm/umsg-UID, which is created at its first use. The owner of the namespace sets its limits;
 * umsg limits shows and sets them.
 *
 * The permission bit r grants receiving, and w grants sending. Both senders and receivers map the queue's file for writing. The kernel
 * therefore enforces access to the queue as a whole. The library, not the kernel, enforces send-only and receive-only access: a process
 * that writes to the file directly can bypass it. If senders must not read or change each other's messages, give each sender its own queue
 * with mode 0600, or 0660 and a group of two. The kernel enforces these modes.
 *
 * The handle is not a descriptor and does not count as one. A child made by fork(2) may continue to use it; execve(2) ends it.
 *
 * Return value:
 * On success, a handle. On error, (umsg_mqd_t)-1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the queue's mode or its directory denies the access; the mode of a new queue lets some users only send or only receive, in a
 *   namespace that refuses such modes (umsg-limits(1)); the name has a second slash; or the namespace is not trusted. umsg_last_error(3) says
 *   which.
 * - EAGAIN: the queue was created with UMSG_REMOVE_ON_LAST_CLOSE, and a process has been removing it for a second: it was stopped, or
 *   got no processor.
 * - EBADMSG: the queue's file is corrupted.
 * - EEXIST: the queue exists, and oflag has O_CREAT and O_EXCL.
 * - EFAULT: name or attr is at an address that can't be read.
 * - EFBIG: the queue's file would be longer than the process's limit for files (RLIMIT_FSIZE), although most of the file takes no memory.
 * - EINVAL: name does not begin with a slash, oflag has no access mode, the attributes are not from 1 to the
 *   namespace's limits, or the file of this name is not a queue, or belongs to another version of umsg.
 * - EMFILE, ENFILE: the process or the system has no descriptor left for the moment of opening, or the process has
 *   65,536 queues open.
 * - ENAMETOOLONG: name has more than 255 bytes after its slash.
 * - ENOENT: no queue has this name, and oflag lacks O_CREAT; or UMSG_DIR names a directory that does
 *   not exist.
 * - ENOMEM: there is no memory, or no address space to map the queue.
 * - ENOSPC: the namespace has as many queues or bytes as its limits allow, or its file system is full.
 * - ENOTEMPTY: the directory that UMSG_DIR names is not a namespace and holds other files, so that it can't become one.
 *
 * If the process dies:
 * While it creates a queue: there is no queue, or a complete one. The queue and its messages stay until
 * umsg_mq_unlink(3).
 *
 * See also:
 * umsg_mq_close(3), umsg_mq_open_with(3), umsg_mq_unlink(3), umsg(1), mq_open(3), mq_overview(7)
 */
umsg_mqd_t umsg_mq_open(const char *name, int oflag, ...);

/*
 * Closes a handle.
 *
 * The queue and its messages stay. Calls of other threads that use the handle continue. The queue's memory is unmapped when the last of these
 * calls returns. A registration of the process by umsg_mq_notify(3) ends, even if it was made with another handle. A close in a child made by
 * fork(2) does not end the registration of the parent.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: mqdes is not the handle of an open queue; for example, it is already closed.
 *
 * If the process dies:
 * The system closes all of its handles.
 *
 * See also:
 * umsg_mq_notify(3), umsg_mq_open(3), umsg_mq_unlink(3), mq_close(3)
 */
int umsg_mq_close(umsg_mqd_t mqdes);

/*
 * Removes a queue's name.
 *
 * The name is free at once. The queue exists until the last process that has it open closes it. Only the queue's owner and root may remove
 * the name.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the caller is neither the queue's owner nor root, the name has a second slash, or the namespace can't be
 *   used; umsg_last_error(3) says which.
 * - EFAULT: name is at an address that can't be read.
 * - EINVAL: name does not begin with a slash.
 * - EMFILE, ENFILE: the queue was created with UMSG_REMOVE_ON_LAST_CLOSE, and the process or the system has no descriptor left.
 * - ENAMETOOLONG: name has more than 255 bytes after its slash.
 * - ENOENT: no queue has this name.
 * - ENOTEMPTY: the directory that UMSG_DIR names is not a namespace and holds other files, so that it can't become one.
 *
 * If the process dies:
 * The name was removed, or not.
 *
 * See also:
 * umsg_mq_close(3), umsg_mq_open(3), umsg_mq_unlink_in(3), mq_unlink(3)
 */
int umsg_mq_unlink(const char *name);

/*
 * Removes a queue's name from a namespace.
 *
 * Does the same as umsg_mq_unlink(3) in the namespace directory, instead of the namespace that the environment selects.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_unlink(3), and these errors of the directory:
 *
 * - EFAULT: directory is at an address that can't be read.
 * - ELOOP, ENOTDIR: directory is a symbolic link, or not a directory.
 * - ENOTEMPTY: directory is not a namespace and holds other files, so that it can't become one.
 *
 * If the process dies:
 * The name was removed, or not.
 *
 * See also:
 * umsg_mq_open_with(3), umsg_mq_unlink(3)
 */
int umsg_mq_unlink_in(const char *directory, const char *name);

/* ---- Opening with options that POSIX lacks ---- */

/*
 * An existing queue is opened if its policy (on_full, time_to_live, dead_letter, max_deliveries, flags, fair_priorities, retry_delay,
 * retry_delay_max) equals the given policy. Its max_messages and message_size may differ.
 */
#define UMSG_EXISTING_MATCH_POLICY 0

/* An existing queue is opened if its max_messages, its message_size and its policy equal the given values. */
#define UMSG_EXISTING_MATCH 1

/* An existing queue is opened with its own attributes and policy. */
#define UMSG_EXISTING_ANY 2

/*
 * The queue and its messages are removed when no process has an open handle of the queue. The process that closes the last handle
 * removes the queue. If the last process was killed, or ended without closing its handle, a later call removes the queue: one that
 * opens or creates a queue of its name, one that creates a queue with this flag, or a listing of the namespace by umsg(1). A child
 * made by fork(2) has the queue open like its parent, until the child closes its handle, ends or executes a program. Without this
 * flag the queue stays until umsg_mq_unlink(3).
 */
#define UMSG_REMOVE_ON_LAST_CLOSE 1

/*
 * The queue is closed for sending, as by umsg_mq_close_send(3), when the last process that called umsg_mq_begin_to_produce(3) has ended its count,
 * or has died.
 */
#define UMSG_CLOSE_WITH_LAST_PRODUCER 2

/*
 * The queue notes each delivery of a message on a lease and its end, and each move to a dead-letter queue and back, with time and process id.
 * umsg peek --long shows them (umsg(1)). A send, and a receive without a lease, do nothing for it.
 */
#define UMSG_TRACE_MESSAGES 4

/* The send waits for room, as in the kernel's queues. A send that must not block fails. */
#define UMSG_ON_FULL_BLOCK 0

/* The send fails with EAGAIN, like a send that must not block. */
#define UMSG_ON_FULL_FAIL 1

/*
 * The send drops the oldest message of the lowest priority, or moves it to the dead-letter queue if there is one. If all queued messages
 * have a higher priority than the new message, the new message is dropped.
 */
#define UMSG_ON_FULL_DROP_OLDEST 2

/*
 * The options of umsg_mq_open_with. A member of 0 or NULL means the default.
 *
 * Initialise it by struct umsg_mq_options options = {.size = sizeof options}; and set further members by name, because a later version of the
 * library may have more members.
 */
struct umsg_mq_options {
    /* sizeof(struct umsg_mq_options): which members the program knows. */
    size_t size;
    /* The directory that is the namespace; NULL for the namespace that umsg_mq_open uses. */
    const char *directory;
    /* The maximum number of messages in a created queue; 0 for the namespace's default. */
    uint32_t max_messages;
    /* The maximum length of a message in a created queue, in bytes; 0 for the namespace's default. */
    uint32_t message_size;
    /*
     * The way in which calls on the handle wait: one of UMSG_WAITING_ADAPTIVE (the default), UMSG_WAITING_BLOCKING and
     * UMSG_WAITING_SPINNING.
     */
    uint32_t waiting;
    /*
     * The overflow policy of a created queue, the behaviour of a send that finds the queue full: UMSG_ON_FULL_BLOCK (the default),
     * UMSG_ON_FULL_FAIL or UMSG_ON_FULL_DROP_OLDEST.
     */
    uint32_t on_full;
    /*
     * The time to live of messages in a created queue, in nanoseconds; 0 for no limit. A receiver that finds an older message drops it, or
     * moves it to the dead-letter queue.
     */
    uint64_t time_to_live;
    /*
     * The name of the dead-letter queue of a created queue; NULL for none. It gets the messages that the queue could not keep or deliver,
     * with the same priority and with their history (umsg_mq_dead_letter(3)). It belongs to the same namespace. If it does not exist, it
     * is created together with the queue, with the same attributes and mode. The process that finds such a message moves it, and needs
     * permission to send to that queue. If the move fails, the message stays set aside: it takes memory, but does not count towards the capacity
     * of its queue. At most 1,024 messages are set aside. If a process dies while it moves a message, the next process that moves a message
     * completes the move, so that the message is in exactly one queue.
     */
    const char *dead_letter;
    /*
     * The number of leases of a message in a created queue; 0 for no limit. A message that was returned that often goes to the dead-letter
     * queue, which must be named, too.
     */
    uint32_t max_deliveries;
    /* Flags of a created queue: 0, or any of UMSG_REMOVE_ON_LAST_CLOSE, UMSG_CLOSE_WITH_LAST_PRODUCER and UMSG_TRACE_MESSAGES. */
    uint32_t flags;
    /*
     * The rule if a queue of this name exists and differs from a member that is not 0 or NULL: UMSG_EXISTING_MATCH_POLICY (the
     * default), UMSG_EXISTING_MATCH or UMSG_EXISTING_ANY.
     */
    uint32_t existing;
    /*
     * Fair priorities in a created queue, at most 65,535; 0 for strict order. After this number of deliveries during which messages of
     * lower priorities waited, one of those is delivered. The lower priorities take turns, and get one of fair_priorities + 1 deliveries.
     */
    uint32_t fair_priorities;
    /*
     * The delay before a message of a created queue is delivered again after its lease was returned or lost, in nanoseconds; 0 for no delay. The
     * delay doubles after each further delivery.
     */
    uint64_t retry_delay;
    /* The longest such delay, in nanoseconds. A value below retry_delay means retry_delay: the delay does not grow. */
    uint64_t retry_delay_max;
};

/*
 * Opens a queue, or creates it, with options that POSIX does not have.
 *
 * name and oflag are those of umsg_mq_open(3), and mode is its third argument, which is used only with O_CREAT. options may be
 * NULL, for the defaults.
 *
 * A program that was compiled with an older umsg.h has a shorter structure; the missing members have their defaults. If a program was
 * compiled with a newer umsg.h and uses a member that this version of the library does not know, the call fails.
 *
 * Return value:
 * On success, a handle. On error, (umsg_mqd_t)-1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_open(3), and these:
 *
 * - E2BIG: a member that this version of the library does not know is not 0.
 * - EFAULT: options or one of its texts is at an address that can't be read.
 * - EINVAL: size is not the size of any version of the structure; waiting, on_full or existing has no valid value; the queue exists and
 *   differs in a way that existing does not permit; dead_letter can't be a name, is name itself, or names a queue that has a smaller message
 *   size;
 *   max_deliveries is not 0 and dead_letter is NULL; fair_priorities is greater than 65,535; or flags has a bit that this version
 *   of the library does not know.
 * - ELOOP, ENOTDIR: directory is a symbolic link, or not a directory.
 * - ENOTEMPTY: directory is not a namespace and holds other files, so that it can't become one.
 * - EPERM: dead_letter names a queue of another user.
 *
 * If the process dies:
 * The same as for umsg_mq_open(3).
 *
 * See also:
 * umsg_mq_close(3), umsg_mq_open(3), umsg_mq_set_waiting(3), umsg_mq_unlink_in(3)
 */
umsg_mqd_t umsg_mq_open_with(const char *name,
                             int oflag,
                             mode_t mode,
                             const struct umsg_mq_options *options);

/* ---- Sending ---- */

/*
 * Sends a message.
 *
 * Puts the msg_len bytes at msg_ptr into the queue, behind all messages of the same priority or a higher one.
 * msg_prio is from 0 to 32,767; the highest priority is 32,767. If the queue is full, the call waits until there is room; if the handle has
 * O_NONBLOCK, it fails. umsg_mq_open_with(3) can create queues with another rule for a full queue.
 *
 * A message may be empty. The function is not a cancellation point of pthread_cancel(3).
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EAGAIN: the queue is full and the handle has O_NONBLOCK, or the queue was created with UMSG_ON_FULL_FAIL; or a stopped process
 *   has held a lock of this queue for more than a second.
 * - EBADF: mqdes is not the handle of an open queue, or was not opened for sending.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
 * - EFAULT: msg_ptr is at an address that can't be read.
 * - EINTR: a signal handler ran while the call waited.
 * - EINVAL: msg_prio is 32,768 or more.
 * - EMSGSIZE: msg_len is more than the queue's message size.
 * - ENOMEM, ENOSPC: the system has no memory for the message, or the namespace's file system is full or its limit of
 *   bytes is reached.
 * - EPIPE: the queue was closed by umsg_mq_close_send(3). No SIGPIPE is raised.
 *
 * If the process dies:
 * Before the call returns: the message was sent completely, or not at all.
 *
 * See also:
 * umsg_mq_receive(3), umsg_mq_timedsend(3), mq_send(3)
 */
int umsg_mq_send(umsg_mqd_t mqdes, const char *msg_ptr, size_t msg_len, unsigned int msg_prio);

/*
 * Sends a message, and waits for room at most until a deadline.
 *
 * Does the same as umsg_mq_send(3), but a call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. If there is
 * room, the call ignores the time; if the handle has O_NONBLOCK, the call does not wait at all.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_send(3), and these:
 *
 * - EFAULT: abs_timeout is at an address that can't be read.
 * - EINVAL: tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - ETIMEDOUT: the deadline passed before there was room.
 *
 * If the process dies:
 * Before the call returns: the message was sent completely, or not at all.
 *
 * See also:
 * umsg_mq_send(3), umsg_mq_timedreceive(3), clock_gettime(2), mq_timedsend(3)
 */
int umsg_mq_timedsend(umsg_mqd_t mqdes,
                      const char *msg_ptr,
                      size_t msg_len,
                      unsigned int msg_prio,
                      const struct timespec *abs_timeout);

/*
 * Sends a message for a later delivery.
 *
 * Does the same as umsg_mq_send(3), but receivers get the message after delay nanoseconds at the earliest. Until then the message counts for the
 * queue's capacity, and delayed of umsg_mq_status(3) counts it. When the message is due, it takes its place behind the messages of its
 * priority that are in the queue, and ahead of the messages that are sent later. Its time to live begins when it is due, but sent of
 * umsg_mq_peek(3)
 * is the time of this call. umsg_mq_peek_delayed(3) shows the messages that are not due. A blocked receiver wakes up when the message is due.
 * umsg_mq_pollfd(3) describes what a poller learns.
 *
 * If the queue is full, the call waits until there is room; if the handle has O_NONBLOCK, it fails. The delay begins when there is room.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_send(3).
 *
 * If the process dies:
 * Before the call returns: the message is sent completely, or not at all. After the call has returned, the message is delivered in any case.
 *
 * See also:
 * umsg_mq_open_with(3), umsg_mq_return_after(3), umsg_mq_send(3), umsg_mq_send_at(3), umsg_mq_timedsend_after(3)
 */
int umsg_mq_send_after(umsg_mqd_t mqdes,
                       const char *msg_ptr,
                       size_t msg_len,
                       unsigned int msg_prio,
                       uint64_t delay);

/*
 * Sends a message for a later delivery, and waits for room at most until a deadline.
 *
 * Does the same as umsg_mq_send_after(3), but a call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. If there is
 * room, the call ignores the time; if the handle has O_NONBLOCK, the call does not wait at all.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_timedsend(3).
 *
 * If the process dies:
 * The same as for umsg_mq_send_after(3).
 *
 * See also:
 * umsg_mq_send_after(3), umsg_mq_timedsend(3), clock_gettime(2)
 */
int umsg_mq_timedsend_after(umsg_mqd_t mqdes,
                            const char *msg_ptr,
                            size_t msg_len,
                            unsigned int msg_prio,
                            uint64_t delay,
                            const struct timespec *abs_timeout);

/*
 * Sends a message for a delivery at a time of the day.
 *
 * Does the same as umsg_mq_send_after(3), but receivers get the message at time at the earliest, a time of the clock CLOCK_REALTIME. The call
 * computes the delay, so setting the clock later has no effect. A time in the past means no delay.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_send(3), and these:
 *
 * - EFAULT: time is NULL, or at an address that can't be read.
 * - EINVAL: tv_sec of time is negative, or tv_nsec is not from 0 to 999,999,999.
 *
 * If the process dies:
 * The same as for umsg_mq_send_after(3).
 *
 * See also:
 * umsg_mq_send(3), umsg_mq_send_after(3), clock_gettime(2)
 */
int umsg_mq_send_at(umsg_mqd_t mqdes,
                    const char *msg_ptr,
                    size_t msg_len,
                    unsigned int msg_prio,
                    const struct timespec *time);

/* ---- Receiving ---- */

/*
 * Receives a message.
 *
 * Takes the oldest message of the highest priority out of the queue, and copies its bytes to msg_ptr. If msg_prio is not NULL, writes the
 * priority there. msg_len is the room at msg_ptr in bytes. It must be at least the queue's message size, even
 * for short messages; umsg_mq_getattr(3) returns that size. The library allocates no memory for a message. If the
 * queue is empty, the call waits until a message comes; if the handle has O_NONBLOCK, it fails.
 *
 * The function is not a cancellation point of pthread_cancel(3).
 *
 * Return value:
 * On success, the length of the message in bytes. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EAGAIN: the queue is empty and the handle has O_NONBLOCK; or a stopped process has held a lock of this queue for more than a
 *   second.
 * - EBADF: mqdes is not the handle of an open queue, or was not opened for receiving.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: msg_ptr or msg_prio is at an address that can't be written. As with the kernel's queues, the message is lost, except a message
 *   without bytes.
 * - EINTR: a signal handler ran while the call waited.
 * - EMSGSIZE: msg_len is less than the queue's message size.
 * - ENOMEM, ENOSPC: the system has no memory left, or the namespace's file system is full.
 * - EPIPE: the end of the stream: the queue was closed by umsg_mq_close_send(3), and all its messages are received.
 *
 * If the process dies:
 * Before the call returns: the message is still in the queue, or lost if it was already copied out.
 *
 * See also:
 * umsg_mq_send(3), umsg_mq_timedreceive(3), mq_receive(3)
 */
ssize_t umsg_mq_receive(umsg_mqd_t mqdes, char *msg_ptr, size_t msg_len, unsigned int *msg_prio);

/*
 * Receives a message, and waits for a message at most until a deadline.
 *
 * Does the same as umsg_mq_receive(3), but a call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. If there is
 * a message, the call ignores the time. If the handle has O_NONBLOCK, the call does not wait.
 *
 * Return value:
 * On success, the length of the message in bytes. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_receive(3), and these:
 *
 * - EFAULT: abs_timeout is at an address that can't be read.
 * - EINVAL: tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - ETIMEDOUT: the deadline passed before a message came.
 *
 * If the process dies:
 * Before the call returns: the message is still in the queue, or lost if it was already copied out.
 *
 * See also:
 * umsg_mq_receive(3), umsg_mq_timedsend(3), clock_gettime(2), mq_timedreceive(3)
 */
ssize_t umsg_mq_timedreceive(umsg_mqd_t mqdes,
                             char *msg_ptr,
                             size_t msg_len,
                             unsigned int *msg_prio,
                             const struct timespec *abs_timeout);

/* ---- Sending several messages in one call ---- */

/* One of several messages. Sending reads data, len and priority; receiving reads data and size, and sets len and priority. */
struct umsg_mq_message {
    /* The message's bytes, or the place to which a receive copies them; NULL if there are none. Sending does not change the bytes. */
    void *data;
    /* The length of the buffer at data, in bytes: for receiving. */
    size_t size;
    /* The length of the message, in bytes. */
    size_t len;
    /* The message's priority. */
    unsigned int priority;
};

/*
 * Sends several messages as one: all of them or none.
 *
 * A receiver finds all of the n messages at once. The call takes one lock and makes at most one round of wake-ups. The messages are delivered by
 * priority; messages of one priority are delivered in the given order. If the queue has no room for all of them, the call waits. A waiting
 * batch has its place among the blocked senders. While the batch is first, the free room is kept for it.
 *
 * A call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. If the handle has O_NONBLOCK, the call
 * does
 * not wait, and ignores the time. The messages must not change during the call.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error; nothing was sent.
 *
 * Errors:
 * - EAGAIN: there is no room for all of them, and the handle has O_NONBLOCK, or the queue was created with
 *   UMSG_ON_FULL_FAIL.
 * - EBADF: mqdes is not the handle of an open queue, or was not opened for sending.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: messages, the data of one of them, or abs_timeout is at an address that can't be read.
 * - EINTR: a signal handler ran while the call waited.
 * - EINVAL: a priority is 32,768 or more; or tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to
 *   999,999,999.
 * - EMSGSIZE: a message is longer than the queue's message size, or there are more messages than the queue can hold.
 * - ENOMEM, ENOSPC: the system has no memory for the messages, or the namespace's file system is full or its limit of
 *   bytes is reached.
 * - ETIMEDOUT: the deadline passed before there was room for all of them.
 *
 * If the process dies:
 * Before the call returns: all of them were sent, or none.
 *
 * See also:
 * umsg_mq_receive_batch(3), umsg_mq_send(3), umsg_mq_send_some(3)
 */
int umsg_mq_send_batch(umsg_mqd_t mqdes,
                       const struct umsg_mq_message *messages,
                       size_t n,
                       const struct timespec *abs_timeout);

/*
 * Sends as many of several messages as there is room for.
 *
 * Sends the first of the n messages as one batch: as many as fit, and at least one. While the queue is full, the call waits to send the
 * first message; further messages that fit then follow as a second batch.
 *
 * A call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. If the handle has O_NONBLOCK, the call
 * does
 * not wait, and ignores the time. The messages must not change during the call.
 *
 * Return value:
 * On success, the number of messages sent, which is 0 only if n is 0. On error, -1
 * with errno set to indicate the error; no message was sent.
 *
 * Errors:
 * The errors of umsg_mq_send_batch(3), with two differences. EAGAIN and ETIMEDOUT mean that there is no room for the first message. EMSGSIZE
 * means that a message is longer than the queue's message size. Each message is checked, even if there is no room for it.
 *
 * If the process dies:
 * Before the call returns: some of the first messages were sent, each of them complete.
 *
 * See also:
 * umsg_mq_send(3), umsg_mq_send_batch(3)
 */
ssize_t umsg_mq_send_some(umsg_mqd_t mqdes,
                          const struct umsg_mq_message *messages,
                          size_t n,
                          const struct timespec *abs_timeout);

/* ---- Receiving several messages in one call ---- */

/*
 * Receives several messages.
 *
 * Receives up to n of the messages in the queue, in order of delivery and under one lock. Each message is copied to the data of one of
 * messages, in
 * order, and len and priority are set. A message that is longer than the size of its place stays in the queue and ends the call; the size
 * of the first place must be at least the queue's message size, so that the call receives at least one message.
 *
 * While the queue is empty, the call waits for one message, not for more. The wait ends at abs_timeout, a time of the clock
 * CLOCK_REALTIME; NULL means no limit. If the handle has O_NONBLOCK, the call does not wait, and ignores the time. The places must not
 * overlap. Other receivers wait while the call copies messages.
 *
 * Return value:
 * On success, the number of messages received, which is 0 only if n is 0. On error, -1
 * with errno set to indicate the error; no message was received.
 *
 * Errors:
 * - EAGAIN: the queue is empty and the handle has O_NONBLOCK; or a stopped process has held a lock of this
 *   queue for more than a second.
 * - EBADF: mqdes is not the handle of an open queue, or was not opened for receiving.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: messages, the data of one of them, or abs_timeout is at an address that can't be read or written.
 * - EINTR: a signal handler ran while the call waited.
 * - EINVAL: tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - EMSGSIZE: size of the first of messages is less than the queue's message size.
 * - ENOMEM, ENOSPC: the system has no memory left, or the namespace's file system is full.
 * - ETIMEDOUT: the deadline passed before a message came.
 *
 * If the process dies:
 * Before the call returns: the messages that were already copied are lost, and the others are in the queue.
 *
 * See also:
 * umsg_mq_lease(3), umsg_mq_receive(3), umsg_mq_send_batch(3)
 */
ssize_t umsg_mq_receive_batch(umsg_mqd_t mqdes,
                              struct umsg_mq_message *messages,
                              size_t n,
                              const struct timespec *abs_timeout);

/* ---- Closing a queue for sending: the end of a stream of messages ---- */

/*
 * Closes a queue for sending.
 *
 * The queue is closed in all processes: all sends, also blocked ones, fail with EPIPE. Receivers get the remaining messages, and then EPIPE;
 * blocked receivers are woken. While a message is leased (umsg_mq_lease(3)), receivers wait, because the message may come back. A reservation
 * (umsg_mq_reserve(3)) can no longer be committed. A poller finds the closed queue writable, and at the end of the
 * stream also readable. A process that is registered for a notification (umsg_mq_notify(3)) is notified if the queue is empty.
 *
 * The queue stays closed until umsg_mq_reopen_send(3) opens it. send_closed of umsg_mq_status(3) tells whether it is closed.
 *
 * Return value:
 * On success, 1 if the queue was open, and 0 if it was already closed. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: mqdes is not the handle of an open queue, or was not opened for sending.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 *
 * If the process dies:
 * Before the call returns: the queue is closed or open. If it is closed, waiters that were not woken notice it within a tenth of a second.
 *
 * See also:
 * umsg_mq_receive(3), umsg_mq_reopen_send(3), umsg_mq_send(3), umsg_mq_status(3)
 */
int umsg_mq_close_send(umsg_mqd_t mqdes);

/*
 * Opens a queue for sending again.
 *
 * Undoes umsg_mq_close_send(3). A receiver that got EPIPE is not notified; its next call waits for messages.
 *
 * Return value:
 * On success, 1 if the queue was closed, and 0 if it was open. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_close_send(3).
 *
 * If the process dies:
 * Before the call returns: the queue is closed or open.
 *
 * See also:
 * umsg_mq_close_send(3), umsg_mq_send(3), umsg_mq_status(3)
 */
int umsg_mq_reopen_send(umsg_mqd_t mqdes);

/*
 * Counts the calling process as a producer of a queue.
 *
 * The call is for a queue that was created with UMSG_CLOSE_WITH_LAST_PRODUCER (umsg_mq_open_with(3)). While a living process counts as a
 * producer, the queue stays open for sending. After the last umsg_mq_end_producing(3), or the death of the last producer, the queue is closed as
 * by umsg_mq_close_send(3). A process may count several times. For other queues, the call has no effect. A child made by fork(2) does not count
 * through the call of its parent.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_close_send(3), and these:
 *
 * - EPIPE: the queue is closed for sending.
 * - EUSERS: 32 living processes already count as producers.
 *
 * If the process dies:
 * The process no longer counts. A receiver that finds the queue empty notices the death within some milliseconds, and a blocked receiver or a poller
 * within a tenth of a second.
 *
 * See also:
 * umsg_mq_close_send(3), umsg_mq_end_producing(3), umsg_mq_open_with(3)
 */
int umsg_mq_begin_to_produce(umsg_mqd_t mqdes);

/*
 * Ends one count of the calling process as a producer of a queue.
 *
 * Undoes one call of umsg_mq_begin_to_produce(3). The queue is closed for sending when the last producer ends.
 *
 * Return value:
 * On success, 1 if the process counted, and 0 if it did not. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_close_send(3).
 *
 * If the process dies:
 * The process no longer counts.
 *
 * See also:
 * umsg_mq_begin_to_produce(3), umsg_mq_close_send(3)
 */
int umsg_mq_end_producing(umsg_mqd_t mqdes);

/* ---- Sending in place ---- */

/* Room in a queue for a message that is written in place. id must not be changed. */
struct umsg_mq_reservation {
    /* The place for the message: valid until the reservation ends. */
    void *data;
    /* The length of the reserved room, in bytes. */
    size_t len;
    /* The number by which the library knows the reservation; 0 once it has ended. */
    uint64_t id;
};

/*
 * Reserves room for a message that is written in place.
 *
 * The caller writes up to len bytes to data of reservation, and umsg_mq_commit(3) sends them without copying. At first, the room holds
 * arbitrary bytes, possibly of earlier messages. The reservation counts for the queue's capacity from the beginning. Other senders can send
 * meanwhile: the message follows the messages of its priority that were sent before the commit.
 *
 * A call that waits for room ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. If the handle has O_NONBLOCK, the
 * call does not wait, and ignores the time.
 *
 * Reservations may be ended in any order and by any thread of the process, also after the handle was closed. A child made
 * by fork(2) does not own its parent's reservations.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EAGAIN: the queue is full, and the handle has O_NONBLOCK.
 * - EBADF: mqdes is not the handle of an open queue, or was not opened for sending.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: reservation or abs_timeout is at an address that can't be written or read.
 * - EINTR: a signal handler ran while the call waited.
 * - EINVAL: tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - EMFILE: the process has 65,536 reservations, which is the limit.
 * - EMSGSIZE: len is more than the queue's message size.
 * - ENOMEM, ENOSPC: the system has no memory for the message, or the namespace's file system is full or its limit of
 *   bytes is reached.
 * - ETIMEDOUT: the deadline passed before there was room.
 *
 * If the process dies:
 * The room becomes free. A call that finds the queue full checks for dead holders; a blocked call checks ten times a second.
 *
 * See also:
 * umsg_mq_cancel(3), umsg_mq_commit(3), umsg_mq_lease(3), umsg_mq_send(3)
 */
int umsg_mq_reserve(umsg_mqd_t mqdes,
                    size_t len,
                    struct umsg_mq_reservation *reservation,
                    const struct timespec *abs_timeout);

/*
 * Sends a message that was written in place.
 *
 * The message is the first len bytes of the reserved room, and msg_prio its priority. The reservation ends, even if the call fails.
 * The exceptions are EFAULT, EINVAL and EMSGSIZE. If the message was not sent, its room is free again.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: this is a forked child of the process that made the reservation.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: reservation is at an address that can't be read and written.
 * - EINVAL: this process has no such reservation, or another thread is ending it at this moment; or
 *   msg_prio is 32,768 or more.
 * - EMSGSIZE: len is more than was reserved.
 * - ENOMEM, ENOSPC: the system has no memory left, or the namespace's file system is full.
 *
 * If the process dies:
 * Before the call returns: the message was sent completely, or not at all.
 *
 * See also:
 * umsg_mq_cancel(3), umsg_mq_reserve(3)
 */
int umsg_mq_commit(struct umsg_mq_reservation *reservation, size_t len, unsigned int msg_prio);

/*
 * Gives reserved room back.
 *
 * The call sends nothing, and ends the reservation.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EFAULT: reservation is at an address that can't be read and written.
 * - EINVAL: this process has no such reservation, or another thread is ending it at this moment.
 *
 * If the process dies:
 * The room is free again, as if the call had succeeded.
 *
 * See also:
 * umsg_mq_commit(3), umsg_mq_reserve(3)
 */
int umsg_mq_cancel(struct umsg_mq_reservation *reservation);

/* ---- Receiving in place ---- */

/* A message that was received in place. The members describe it. Changing them has no effect, but id must stay as it is. */
struct umsg_mq_lease {
    /* The address of the message: valid until the lease ends. */
    const void *data;
    /* The length of the message in bytes. */
    size_t len;
    /* The time of the send, in nanoseconds since 1970, accurate to a few milliseconds. */
    int64_t sent;
    /* The message's priority. */
    unsigned int priority;
    /* The number of leases of the message, this one included: 1 for the first lease. */
    unsigned int deliveries;
    /* Process id of the sender. */
    pid_t pid;
    /* The library sets this field to 0. */
    uint32_t reserved;
    /* The number by which the library knows the lease; 0 once it has ended. */
    uint64_t id;
};

/*
 * Receives a message in place.
 *
 * Does the same as umsg_mq_receive(3), but copies nothing: data and len of lease are the address of the message in the queue's memory and
 * its
 * length. The bytes must not be written. The message counts for the queue's capacity until umsg_mq_acknowledge(3) removes it.
 * Three events return the message to the head of its priority: a call of umsg_mq_return(3), the death of the process, and the end of a time limit
 * that umsg_mq_lease_limit(3) has set. The next receiver then gets the message.
 *
 * A call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. If the handle has O_NONBLOCK, the call
 * does
 * not wait, and ignores the time.
 *
 * Leases may be ended in any order and by any thread of the process, also after the handle was closed. A child made by
 * fork(2) does not own its parent's leases.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EAGAIN: the queue is empty, and the handle has O_NONBLOCK.
 * - EBADF: mqdes is not the handle of an open queue, or was not opened for receiving.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: lease or abs_timeout is at an address that can't be written or read.
 * - EINTR: a signal handler ran while the call waited.
 * - EINVAL: tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - EMFILE: the process has 65,536 leases, which is the limit.
 * - ENOMEM, ENOSPC: the system has no memory left, or the namespace's file system is full.
 * - ETIMEDOUT: the deadline passed before a message came.
 *
 * If the process dies:
 * The message goes back to the head of its priority. A call that finds the queue empty or full checks for dead holders; a blocked call
 * checks ten times a second.
 *
 * See also:
 * umsg_mq_acknowledge(3), umsg_mq_lease_limit(3), umsg_mq_receive(3), umsg_mq_reserve(3), umsg_mq_return(3)
 */
int umsg_mq_lease(umsg_mqd_t mqdes,
                  struct umsg_mq_lease *lease,
                  const struct timespec *abs_timeout);

/*
 * Removes a leased message for good.
 *
 * Call it after the message has been processed. The message leaves the queue, its room becomes free, and the lease ends, even if the call fails.
 * The exceptions are EDEADLK and EFAULT: then the lease continues and can be ended later.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue; umsg_defer_signal(3) makes such a handler run
 *   later. The lease continues.
 * - EFAULT: lease is at an address that can't be read and written.
 * - EINVAL: this process has no such lease.
 * - ESTALE: a time limit or another thread has ended the lease, or this is a forked child of its holder.
 *   Another receiver gets the message, or has already received it.
 *
 * If the process dies:
 * Before the call returns: the message is gone, or goes back to the head of its priority.
 *
 * See also:
 * umsg_defer_signal(3), umsg_mq_lease(3), umsg_mq_return(3)
 */
int umsg_mq_acknowledge(struct umsg_mq_lease *lease);

/*
 * Returns a leased message to its queue.
 *
 * The message goes back to the head of its priority, and the next receiver gets it. The lease ends, even if the call fails. The
 * exceptions are EDEADLK and EFAULT: then the lease continues and can be ended later.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue; umsg_defer_signal(3) makes such a handler run
 *   later. The lease continues.
 * - EFAULT: lease is at an address that can't be read and written.
 * - EINVAL: this process has no such lease.
 * - ESTALE: a time limit or another thread has ended the lease, or this is a forked child of its holder.
 *
 * If the process dies:
 * The message goes back, as if the call had succeeded.
 *
 * See also:
 * umsg_defer_signal(3), umsg_mq_acknowledge(3), umsg_mq_lease(3)
 */
int umsg_mq_return(struct umsg_mq_lease *lease);

/*
 * Returns a leased message to its queue for a later delivery.
 *
 * Does the same as umsg_mq_return(3), but receivers get the message after delay nanoseconds at the earliest. This delay replaces the queue's
 * retry delay
 * (umsg_mq_open_with(3)). Other messages are not delayed. If the message was delivered as often as the queue allows, it goes to the
 * dead-letter queue at once.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_return(3).
 *
 * If the process dies:
 * The message goes back to the queue, now or after the delay.
 *
 * See also:
 * umsg_mq_lease(3), umsg_mq_return(3), umsg_mq_send_after(3)
 */
int umsg_mq_return_after(struct umsg_mq_lease *lease, uint64_t delay);

/*
 * Lets a lease end by itself after some time.
 *
 * time is relative to the call. After that time the message goes back to the head of its priority, even if the holder still reads the
 * message; the holder's umsg_mq_acknowledge(3) then fails. The next call on the queue that finds it empty or full, or receives while other
 * leases exist, returns the message. A blocked call checks ten times a second. A further call sets another limit.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: lease or time is at an address that can't be read.
 * - EINVAL: this process has no such lease; or tv_sec of time is negative, or tv_nsec is not from 0 to
 *   999,999,999.
 * - ESTALE: an earlier limit or another thread has ended the lease, or this is a forked child of its holder.
 *
 * If the process dies:
 * The message goes back at once.
 *
 * See also:
 * umsg_mq_acknowledge(3), umsg_mq_lease(3)
 */
int umsg_mq_lease_limit(const struct umsg_mq_lease *lease, const struct timespec *time);

/* ---- Dead letters: their histories, and the way back to their source ---- */

/* The message left its source for an unknown reason: the queue's memory holds a number that no operation writes. */
#define UMSG_DEAD_UNKNOWN 0

/* The message was older than the source's time to live. */
#define UMSG_DEAD_EXPIRED 1

/* The message was leased and came back as often as the source allows. */
#define UMSG_DEAD_UNDELIVERED 2

/* The source was full and dropped its oldest message. */
#define UMSG_DEAD_DROPPED 3

/*
 * The history of a dead letter, or of a dead letter that was sent back. Times are in nanoseconds since 1970, accurate to a few
 * milliseconds; 0 means never or unknown.
 *
 * Every process that may use the queue can forge a history.
 */
struct umsg_mq_history {
    /* A number that no other message of the queue has. */
    uint64_t id;
    /* The time of the first send. */
    int64_t sent;
    /* The time of the first delivery on a lease. */
    int64_t first_delivery;
    /* The time of the last delivery on a lease. */
    int64_t last_delivery;
    /* The time at which the message left its source last. */
    int64_t dead;
    /* Real user id of the first sender; -1 if unknown. */
    int64_t uid;
    /* Process id of the first sender. */
    pid_t pid;
    /* The number of deliveries on a lease, of all stays in a source. */
    uint32_t deliveries;
    /* The number of times that the message was sent back. */
    uint32_t redrives;
    /* The reason: one of UMSG_DEAD_EXPIRED, UMSG_DEAD_UNDELIVERED, UMSG_DEAD_DROPPED and UMSG_DEAD_UNKNOWN. */
    uint32_t reason;
    /* The name of the queue that the message comes from; empty if unknown. */
    char source[264];
};

/*
 * Selects the dead letters that umsg_mq_redrive sends back, and their destination. If a member is 0 or NULL, it does not restrict the selection.
 *
 * Initialise it by struct umsg_mq_redrive which = {.size = sizeof which}; and set further members by name, because a later version of the
 * library may have more members.
 */
struct umsg_mq_redrive {
    /* sizeof(struct umsg_mq_redrive): which members the program knows. */
    size_t size;
    /* The queue of the same namespace to which the messages are sent; NULL for the queue from which each message comes. */
    const char *to;
    /* Select only messages that come from this queue. */
    const char *source;
    /* Select only the message with this id. */
    uint64_t id;
    /* Select at most this many messages, in order of delivery. */
    uint64_t count;
    /* Select only messages that left their source for this reason. */
    uint32_t reason;
    /* The program sets this field to 0. */
    uint32_t reserved;
};

/*
 * Gets the history of a leased message.
 *
 * lease is a lease of umsg_mq_lease(3). If the message is a dead letter, or a dead letter that was sent back, the call writes its history to
 * history. size is sizeof(struct umsg_mq_history): a program that was compiled with an older umsg.h gets the members that it knows.
 *
 * Return value:
 * On success, 1 if the message has a history, and 0 if it has none. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: lease or history is at an address that can't be read or written.
 * - EINVAL: this process has no such lease.
 * - ESTALE: a time limit or another thread has ended the lease, or this is a forked child of its holder.
 *
 * If the process dies:
 * The message goes back to the head of its priority.
 *
 * See also:
 * umsg_mq_dead_letter(3), umsg_mq_lease(3), umsg_mq_redrive(3)
 */
int umsg_mq_lease_history(const struct umsg_mq_lease *lease,
                          struct umsg_mq_history *history,
                          size_t size);

/*
 * Gets the history of a dead letter in a queue.
 *
 * n counts the messages that have a history, in order of delivery, from 0. The messages stay in the queue. size is
 * sizeof(struct umsg_mq_history), as for umsg_mq_lease_history(3). Other processes that receive wait meanwhile, for a time in proportion to the
 * number of messages.
 *
 * Return value:
 * On success, 1, and 0 if the queue has at most n such messages. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_peek(3), except ENOMSG.
 *
 * If the process dies:
 * The call changes nothing.
 *
 * See also:
 * umsg(1), umsg_mq_lease_history(3), umsg_mq_peek(3), umsg_mq_redrive(3)
 */
int umsg_mq_dead_letter(umsg_mqd_t mqdes, size_t n, struct umsg_mq_history *history, size_t size);

/*
 * Sends dead letters back to the queues from which they come.
 *
 * mqdes is the handle of a dead-letter queue, opened for receiving. which selects messages; NULL selects all. A message takes its place behind the
 * other messages of its priority, and its deliveries are counted from 0 again. It keeps its bytes, its priority and its history.
 *
 * If to is NULL, a message goes to the queue that its history names. That queue must have the same owner as the dead-letter queue, and
 * must use this dead-letter queue. If to is set, all selected messages go to that queue, without this check.
 *
 * A message stays in the dead-letter queue if the other queue does not take it. The call then sends the other messages. umsg_last_error(3) returns
 * the reason why a message stayed, even if the call sent other messages. The call does not wait for room.
 *
 * Return value:
 * The number of messages that were sent back. If none was sent and a message was refused, or on another error, -1 with errno set to
 * indicate the error.
 *
 * Errors:
 * - E2BIG: a member that this version of the library does not know is not 0.
 * - EACCES: the other queue's mode does not let the caller send to it.
 * - EAGAIN: the other queue is full.
 * - EBADF: mqdes is not the handle of an open queue, or was not opened for receiving.
 * - EBADMSG: the memory of one of the queues is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: which or one of its texts is at an address that can't be read.
 * - EINVAL: size or reason has no valid value, reserved is not 0, or to is the dead-letter queue itself.
 * - EMSGSIZE: the message is longer than the other queue's message size.
 * - ENOENT: the other queue does not exist, or the history names no queue.
 * - ENOMEM, ENOSPC: the system has no memory left, or the namespace's file system is full.
 * - EPERM: the source belongs to another user than the dead-letter queue.
 * - EPIPE: the other queue is closed for sending.
 * - ESTALE: the source does not have this queue as its dead-letter queue.
 *
 * If the process dies:
 * No message is lost, and none is in two queues. The message that was being sent stays in the dead-letter queue, where receivers don't see it. The
 * next call, or umsg redrive, completes
 * its move or returns it to this queue.
 *
 * See also:
 * umsg(1), umsg_mq_close_send(3), umsg_mq_dead_letter(3), umsg_mq_open_with(3)
 */
ssize_t umsg_mq_redrive(umsg_mqd_t mqdes, const struct umsg_mq_redrive *which);

/* ---- The status of a queue ---- */

/*
 * The status of a queue, without its messages. Times are in nanoseconds since 1970, accurate to a few milliseconds; 0 means never. Counts
 * of events begin with the creation of the queue.
 */
struct umsg_mq_status {
    /* The maximum number of messages in the queue. */
    uint64_t max_messages;
    /* The maximum length of a message, in bytes. */
    uint64_t message_size;
    /* The number of queued messages. */
    uint64_t messages;
    /* The number of bytes in these messages. */
    uint64_t bytes;
    /* Permission bits. */
    uint32_t mode;
    /* The owner's user id. */
    uint32_t uid;
    /* The owner's group id. */
    uint32_t gid;
    /* Process id of the creator. */
    uint32_t creator;
    /* The time of the queue's creation. */
    int64_t created;
    /* The time of the last send. */
    int64_t last_send;
    /* The time of the last receive. */
    int64_t last_receive;
    /* Threads that wait for room. */
    uint64_t blocked_senders;
    /* Threads that wait for a message. */
    uint64_t blocked_receivers;
    /* Slots in circulation: the most messages that were ever queued at once, and some. */
    uint64_t slots;
    /* Bytes of memory in use by slots and blocks. */
    uint64_t memory;
    /* Sends that found the queue full and waited. */
    uint64_t sends_blocked;
    /* Receives that found the queue empty and waited. */
    uint64_t receives_blocked;
    /* Messages handed to a waiting receiver. */
    uint64_t handed_over;
    /* Waits that ended while their thread was still spinning. */
    uint64_t spins_paid;
    /* Waits that ended with a time-out or a signal. */
    uint64_t given_up;
    /* Waiting threads that were found dead. */
    uint64_t waiters_died;
    /* Repairs of the senders' side after a death. */
    uint64_t sender_repairs;
    /* Repairs of the receivers' side after a death. */
    uint64_t receiver_repairs;
    /* Messages that are written in place and not committed. They count for the capacity. */
    uint64_t reserved;
    /* Messages that were received in place and not acknowledged. They count for the capacity. */
    uint64_t leased;
    /* Leased messages that went back to the queue. */
    uint64_t returned;
    /* The behaviour of a send that finds the queue full: UMSG_ON_FULL_BLOCK, UMSG_ON_FULL_FAIL or UMSG_ON_FULL_DROP_OLDEST. */
    uint32_t on_full;
    /* The maximum number of leases of a message; 0 for no limit. */
    uint32_t max_deliveries;
    /* The maximum age of a message, in nanoseconds; 0 for no limit. */
    uint64_t time_to_live;
    /* The name of the dead-letter queue; empty for none. */
    char dead_letter[264];
    /* The number of messages that are set aside for the dead-letter queue. They take memory, but do not count for the capacity. */
    uint64_t set_aside;
    /* Messages that were dropped because the queue was full. */
    uint64_t dropped;
    /* Messages that were older than the queue's time to live. */
    uint64_t expired;
    /* Messages that were moved to the dead-letter queue. */
    uint64_t dead_lettered;
    /* 1 if a call has found the queue's memory corrupted, with values that no operation writes; otherwise 0. */
    uint64_t damaged;
    /* 1 if the queue is removed when no process has it open any more, else 0. */
    uint64_t remove_on_last_close;
    /* 1 if the queue is closed for sending, by umsg_mq_close_send(3) or by the end of its last producer; otherwise 0. */
    uint64_t send_closed;
    /* The number of messages that were sent or returned for a later delivery, and are not due. They count for the capacity. */
    uint64_t delayed;
    /* 1 if the queue is closed for sending when its last producer ends, else 0. */
    uint64_t close_with_last_producer;
    /* The number of living processes that count as producers; always 0 if the queue is not closed with its last producer. */
    uint64_t producers;
    /* The delay before a returned message is delivered again, in nanoseconds; 0 for no delay. The delay doubles after each further delivery. */
    uint64_t retry_delay;
    /* The longest such delay, in nanoseconds. */
    uint64_t retry_delay_max;
    /* The number of deliveries of higher priorities before a lower priority has its turn; 0 for strict order. */
    uint64_t fair_priorities;
    /* 1 if the queue notes the events of its messages (UMSG_TRACE_MESSAGES), else 0. */
    uint64_t trace_messages;
};

/*
 * Gets the complete status of a queue.
 *
 * Writes the status of the queue to status. size is sizeof(struct umsg_mq_status): a program that was compiled with an older umsg.h
 * has a shorter structure, and gets the members that it knows. In a program that was compiled with a newer umsg.h, the members that this
 * library does not know are set to 0.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: mqdes is not the handle of an open queue.
 * - EFAULT: status is at an address that can't be written.
 *
 * If the process dies:
 * The call changes nothing.
 *
 * See also:
 * umsg(1), umsg_mq_getattr(3), umsg_mq_peek(3)
 */
int umsg_mq_status(umsg_mqd_t mqdes, struct umsg_mq_status *status, size_t size);

/* ---- Peeking at messages, which stay in the queue ---- */

/* A message that was peeked at. The program sets data and size, the call the other members. */
struct umsg_mq_peeked {
    /* The place to which the bytes are copied; NULL if size is 0. */
    void *data;
    /* The length of the buffer, in bytes. */
    size_t size;
    /* The length of the message in bytes, which may be more than size. */
    size_t len;
    /* The time of the call that sent it, in nanoseconds since 1970, to a few milliseconds. */
    int64_t sent;
    /* The message's priority. */
    unsigned int priority;
    /* Process id of the sender. */
    pid_t pid;
    /* The number of leases of the message that ended without an acknowledgement. */
    uint32_t returns;
    /* The library sets this field to 0. */
    uint32_t unused;
    /*
     * For a delayed message, the earliest time of its delivery, in nanoseconds since 1970. For a queued message that was sent for a later time,
     * that time, at which its time to live began. 0 for other messages.
     */
    int64_t due;
    /* The library sets this field to 0. */
    uint32_t reserved[2];
};

/*
 * Copies a message without receiving it.
 *
 * n counts in order of delivery, and 0 is the message that the next receive would get. The call copies as many bytes as there is room
 * for. len is the whole length of the message, so a call with a size of 0 returns only the length and the other members.
 *
 * Other processes that receive wait meanwhile, for a time in proportion to n: some nanoseconds for each message. The message
 * may be gone when the call returns.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: mqdes is not the handle of an open queue, or was not opened for receiving.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: peeked or its data is at an address that can't be written.
 * - ENOMSG: the queue has at most n messages.
 * - ETIMEDOUT: a stopped process has held a lock of this queue for more than a second.
 *
 * If the process dies:
 * The call changes nothing.
 *
 * See also:
 * umsg(1), umsg_mq_peek_delayed(3), umsg_mq_receive(3), umsg_mq_status(3)
 */
int umsg_mq_peek(umsg_mqd_t mqdes, size_t n, struct umsg_mq_peeked *peeked);

/*
 * Copies a delayed message without receiving it.
 *
 * Does the same as umsg_mq_peek(3) for the messages that were sent or returned for a later delivery and are not due. n counts in the order in
 * which they become due. due is the earliest time of the message's delivery.
 *
 * Other processes that receive wait meanwhile, for a time in proportion to all leased and delayed messages.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_mq_peek(3). ENOMSG: the queue has at most n delayed messages.
 *
 * If the process dies:
 * The call changes nothing.
 *
 * See also:
 * umsg(1), umsg_mq_peek(3), umsg_mq_return_after(3), umsg_mq_send_after(3), umsg_mq_status(3)
 */
int umsg_mq_peek_delayed(umsg_mqd_t mqdes, size_t n, struct umsg_mq_peeked *peeked);

/* ---- Saving a queue in a file, and making a queue of it ---- */

/*
 * Saves a queue in a file, as it is at one instant.
 *
 * Writes the queue's name, attributes, policy and messages to the descriptor fd of a file, a pipe or a socket, from the present offset. The
 * queue is not changed. umsg load and umsg_mq_restore(3) create a queue from the snapshot. Checksums cover the whole snapshot, so a truncated or
 * altered snapshot is refused. A message for a later delivery is saved with the remaining delay. If the queue is closed
 * for sending, the restored queue is closed, too. Leased messages are not saved.
 *
 * Other processes that receive wait while the messages are copied, not while they are written. The process needs memory for
 * all of them.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error; an incomplete snapshot is refused when it is read.
 *
 * Errors:
 * - EBADF: mqdes is not the handle of an open queue, or was not opened for receiving; or fd is not a descriptor that is open for writing.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - ENOMEM: there is no memory for the messages.
 * - ETIMEDOUT: a stopped process has held a lock of this queue for more than a second.
 *
 * The errors of write(2) are possible, too.
 *
 * If the process dies:
 * The queue loses nothing.
 *
 * See also:
 * umsg(1), umsg_mq_peek(3), umsg_mq_restore(3), umsg_mq_restore_into(3)
 */
int umsg_mq_snapshot(umsg_mqd_t mqdes, int fd);

/*
 * Creates a queue from a snapshot that umsg_mq_snapshot(3) wrote.
 *
 * Reads a snapshot from the descriptor fd, from the present offset, and creates the queue name, or, if name is NULL, a queue with the saved
 * name. oflag is the access mode of the handle: O_RDONLY, O_WRONLY or O_RDWR, with or without O_NONBLOCK.
 *
 * The queue gets the attributes, the policy and the mode that were saved. The umask does not change the mode. Each message keeps its priority,
 * its place, its sender's process id, the time of its send, and the number of its returns from leases. options are those
 * of umsg_mq_open_with(3), or NULL; only the members directory and waiting are used.
 *
 * Return value:
 * On success, a handle. On error, (umsg_mqd_t)-1 with errno set to indicate the error; then there is no new queue.
 *
 * Errors:
 * The errors of umsg_mq_open(3), umsg_mq_open_with(3) and read(2), and these:
 *
 * - EBADF: fd is not a descriptor that is open for reading.
 * - EBADMSG: the snapshot was truncated or altered.
 * - EEXIST: a queue has this name.
 * - EINVAL: the input is not a saved queue, or was saved by another version; or name is NULL and no name was saved.
 *
 * If the process dies:
 * There is no queue, or a complete one: the queue gets its name when all messages are in it.
 *
 * See also:
 * umsg(1), umsg_mq_open_with(3), umsg_mq_restore_into(3), umsg_mq_snapshot(3)
 */
umsg_mqd_t umsg_mq_restore(const char *name,
                           int fd,
                           int oflag,
                           const struct umsg_mq_options *options);

/*
 * Sends the messages of a snapshot to a queue.
 *
 * Reads a snapshot from the descriptor fd, from the present offset, and sends all its messages to an existing queue as one batch. They
 * follow the queue's messages of the same priority. The queue keeps its attributes; the caller counts as the sender of the messages, and the time
 * of the call as their time. The call
 * does not wait for room.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error; nothing was sent.
 *
 * Errors:
 * The errors of umsg_mq_send_batch(3) and read(2), and these:
 *
 * - EAGAIN: the queue has no room for all messages.
 * - EBADF: mqdes is not the handle of an open queue, or was not opened for sending; or fd is not a descriptor that is open for reading.
 * - EBADMSG: the snapshot was truncated or altered.
 * - EINVAL: the input is not a saved queue, or was saved by another version.
 * - EMSGSIZE: a message is longer than the queue's message size.
 *
 * If the process dies:
 * Before the call returns: all messages were sent, or none.
 *
 * See also:
 * umsg_mq_restore(3), umsg_mq_snapshot(3)
 */
int umsg_mq_restore_into(umsg_mqd_t mqdes, int fd);

/* ---- Notification that a message has arrived ---- */

/*
 * Registers the process for a notification when a message arrives at the empty queue, or ends the registration.
 *
 * The process is notified once, when a message arrives at the empty queue and no thread waits to receive it; then the registration ends.
 * One process can be registered with a queue. While messages are in the queue, the registration has no effect until they have been
 * received. sigev_notify of notification is the kind of the notification:
 *
 * - SIGEV_NONE: no notification; the registration only prevents other processes from registering.
 * - SIGEV_SIGNAL: by the signal sigev_signo to the process, with SI_MESGQ in si_code, sigev_value in si_value, and the
 *   sender's process and real user id in si_pid and si_uid. Signal 0 means no signal.
 * - SIGEV_THREAD: by a call of sigev_notify_function with sigev_value, in a new detached thread with the attributes
 *   sigev_notify_attributes (NULL for the default) and no signal masked.
 *
 * If notification is NULL, the call ends the process's registration, if there is one.
 *
 * The registration ends when the process closes a handle of the queue, or ends. A child made by fork(2) does not
 * have it.
 *
 * Notes:
 * The process raises its signals itself, so the sender needs no permission to send signals to it. A thread of this library waits for
 * notifications, with all signals masked. The first registration starts this thread, so do not make the first registration in a signal
 * handler. SIGEV_NONE and signal 0 start no thread.
 *
 * The thread has two effects. The process does not end when its last other thread calls pthread_exit(3). Calls that need a
 * single-threaded process fail: unshare(2) with CLONE_NEWUSER, setns(2) into a user or mount namespace. Make such calls before the first
 * registration, or in a child made by fork(2).
 *
 * When a send returns, the signal that it causes has been raised. There is one exception: another process sent the message, and the
 * registered process was stopped or got no processor for a second.
 *
 * A process with access to the queue can forge the notification: too early, and with any si_pid and si_uid. It can also suppress the
 * notification.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EAGAIN: a stopped process has held a lock of this queue for more than a second.
 * - EBADF: mqdes is not the handle of an open queue.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EBUSY: a process is already registered, possibly this one.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
 * - EFAULT: notification is at an address that can't be read.
 * - EINVAL: sigev_notify is not one of the three, sigev_signo is not from 0 to 64, or sigev_notify_function is NULL.
 * - ENOMEM: there is no memory, no thread can be started, or 1,032 stopped processes have not run since this queue notified
 *   them. Notifications that the calling process has not handled yet do not count. If threads for the calling process's functions can't
 *   be started fast enough, the call waits for these threads, for at most a second.
 *
 * If the process dies:
 * Its registration ends as soon as another process registers. If a sender dies after it has sent its message, another process notifies in
 * its place within a tenth of a second.
 *
 * See also:
 * umsg_mq_receive(3), umsg_mq_status(3), mq_notify(3), sigevent(3type)
 */
int umsg_mq_notify(umsg_mqd_t mqdes, const struct sigevent *notification);

/* ---- The ways in which calls wait ---- */

/* Spin for some microseconds if recent spins were successful, then sleep. */
#define UMSG_WAITING_ADAPTIVE 0

/* Give way to other threads a few times, then sleep: the least CPU time. */
#define UMSG_WAITING_BLOCKING 1

/* Spin until the wait is over: the least delay, and a CPU's whole time. */
#define UMSG_WAITING_SPINNING 2

/*
 * Chooses how calls on a handle wait.
 *
 * waiting is one of these:
 *
 * - UMSG_WAITING_ADAPTIVE, the default: spin for some microseconds if recent spins were successful, then sleep.
 * - UMSG_WAITING_BLOCKING: give way to other threads a few times, then sleep: the least CPU time.
 * - UMSG_WAITING_SPINNING: spin until the wait is over: the least delay, but the whole time of a CPU.
 *
 * The choice belongs to this handle, and applies from the next call on.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: mqdes is not the handle of an open queue.
 * - EINVAL: waiting is not one of the three.
 *
 * If the process dies:
 * The choice ends with the process.
 *
 * See also:
 * umsg_mq_open_with(3), umsg_mq_receive(3), umsg_mq_send(3)
 */
int umsg_mq_set_waiting(umsg_mqd_t mqdes, int waiting);

/* ---- Queues in event loops ---- */

/* Notify pollers when the queue becomes readable or writable. */
#define UMSG_EDGES_CHANGES 0

/* Also notify pollers for messages after each send and receive that leaves a message. */
#define UMSG_EDGES_MESSAGES 1

/* Also notify pollers for room after each send and receive that leaves room. */
#define UMSG_EDGES_ALL 2

/*
 * Returns the descriptor of a queue, for poll(2), select(2) and epoll(7).
 *
 * The descriptor is readable (POLLIN) while there is a message, and writable (POLLOUT) while there is room, regardless of the handle's
 * access mode. All processes that have the descriptor see the same state. The descriptor may be inherited over fork(2) and passed on.
 *
 * edges selects the events of a poller with EPOLLET; it does not affect other pollers:
 *
 * - UMSG_EDGES_CHANGES: when the queue becomes readable, and when it becomes writable. This is enough for a program that repeats its calls until
 *   one fails with EAGAIN. It costs the least: a send or a receive makes one system call if it makes the queue full or empty, or ends that
 *   state, and otherwise none.
 * - UMSG_EDGES_MESSAGES: also notifies pollers for EPOLLIN after each send and each receive that leaves a message, like the
 *   kernel's queues. Each notification costs a system call.
 * - UMSG_EDGES_ALL: also notifies pollers for EPOLLOUT after each send and each receive that leaves room.
 *
 * The setting stays in force until no process has the descriptor open any more. The descriptor belongs to the library, which opens one for each
 * handle at the first call. The program must not read, write or close it; umsg_mq_close(3) closes it.
 *
 * Time or a death may bring a message, room or the end of the stream: a message that was delayed (umsg_mq_send_after(3),
 * umsg_mq_return_after(3), retry_delay of umsg_mq_open_with(3)) is due, the holder of a lease or of a reservation dies, the last producer
 * dies. A thread of the library looks for these changes, and makes the descriptor ready within a tenth of a second.
 *
 * If a process polls before the queue has its first delayed message, lease or reservation, the process has no such thread yet. That first event
 * makes the descriptor ready once, although a receive then finds no message, or a send no room. That call starts the thread.
 *
 * Return value:
 * On success, the descriptor, the same each time. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the caller may not create files in the namespace's directory.
 * - EAGAIN: a process was stopped inside an operation on the queue.
 * - EBADF: mqdes is not the handle of an open queue.
 * - EBADMSG: the queue is corrupted.
 * - EINVAL: edges is not one of the three.
 * - EMFILE, ENFILE: there are too many open files.
 * - ENOSPC, ENOMEM: there is no room for a file.
 * - EOPNOTSUPP: the queue belongs to another user, and the file system has no access control lists.
 *
 * If the process dies:
 * The system closes the descriptor. After some hundred messages, senders and receivers detect that no process polls any more.
 *
 * See also:
 * umsg_mq_open(3), umsg_msg_pollfd(3), umsg_ring_descriptor(3), poll(2), epoll(7)
 */
int umsg_mq_pollfd(umsg_mqd_t mqdes, int edges);

/* ---- System V queues: finding and creating ---- */

/*
 * Finds the System V queue of a key, or creates one.
 *
 * key is a key_t, as ftok(3) makes them. msgflg is 0, to find a queue, or has these bits of <sys/msg.h>:
 *
 * - IPC_CREAT: create the queue if no queue has this key. The lowest nine bits of msgflg are its permission bits; the umask does not
 *   change them. Read permission allows receiving, and write permission sending.
 * - IPC_EXCL: with IPC_CREAT, fail if a queue has this key.
 *
 * With the key IPC_PRIVATE, which is 0, each call creates a new queue without a key. For an existing queue, the lowest nine bits are the
 * permissions that the caller requests.
 *
 * The queue belongs to the namespace that umsg_mq_open(3) describes, like the POSIX queues. The process's first call determines the
 * namespace for all later calls. The owner of the namespace sets its limits without privilege (umsg limits): the longest message,
 * msgmax; the bytes that a new queue may hold, msgmnb; the largest value to which umsg_msgctl(3) may raise them, max_qbytes; and the
 * number of queues, msgmni. The defaults are the kernel's.
 *
 * Return value:
 * On success, the queue's identifier, a non-negative integer that is not a descriptor. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the queue's mode does not grant the access that the lowest nine bits request; the mode of a new queue lets some users only
 *   send or only
 *   receive, in a namespace that refuses such modes (umsg-limits(1)); or the key symlink, msg/k-XXXXXXXX, belongs to another
 *   user and leads to no queue; or the namespace is not trusted. umsg_last_error(3) says which.
 * - EBUSY: a process was stopped while it made or removed a queue.
 * - EEXIST: the queue exists, and msgflg has IPC_CREAT and IPC_EXCL.
 * - EFBIG: the queue's file would be longer than the process's limit for files (RLIMIT_FSIZE), although most of the file takes no memory.
 * - ENOENT: no queue has this key, and msgflg lacks IPC_CREAT; or UMSG_DIR names a directory that does not
 *   exist.
 * - ENOMEM: there is no memory, or no address space to map the queue.
 * - ENOSPC: the namespace has as many queues or bytes as its limits allow, or its file system is full.
 * - EMFILE, ENFILE: the process or the system has no descriptor left for the moment of opening.
 *
 * If the process dies:
 * While it creates a queue: there is no queue, or a complete one. The queue and its messages stay until it is removed.
 *
 * See also:
 * umsg_msgctl(3), umsg_msgrcv(3), umsg_msgsnd(3), umsg(1), msgget(2), sysvipc(7)
 */
int umsg_msgget(int key, int msgflg);

/* ---- System V queues: creating one with options that System V lacks ---- */

/*
 * The options of umsg_msgget_with. A member of 0 means the default.
 *
 * Initialise it by struct umsg_msg_options options = {.size = sizeof options}; and set further members by name, because a later version of the
 * library may have more members.
 */
struct umsg_msg_options {
    /* sizeof(struct umsg_msg_options): which members the program knows. */
    size_t size;
    /*
     * The delay before a message of a created queue is delivered again after its lease was returned or lost, in nanoseconds; 0 for no delay. The
     * delay doubles after each further delivery.
     */
    uint64_t retry_delay;
    /* The longest such delay, in nanoseconds. A value below retry_delay means retry_delay: the delay does not grow. */
    uint64_t retry_delay_max;
    /* Flags of a created queue: 0 or UMSG_CLOSE_WITH_LAST_PRODUCER. */
    uint32_t flags;
    /* The program sets this field to 0. */
    uint32_t reserved;
};

/*
 * Finds the System V queue of a key, or creates one, with options that System V does not have.
 *
 * key and msgflg are those of umsg_msgget(3). options may be NULL, for the defaults. If the queue exists and differs from a member that is
 * not 0, the call fails.
 *
 * Return value:
 * On success, the queue's identifier, a non-negative integer that is not a descriptor. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_msgget(3), and these:
 *
 * - E2BIG: a member that this version of the library does not know is not 0.
 * - EACCES: the queue exists, and the caller may not open it.
 * - EFAULT: options is at an address that can't be read.
 * - EINVAL: size is not the size of any version of the structure; flags has a bit that this version of the library does not know;
 *   reserved is not 0; or the queue exists and differs.
 *
 * If the process dies:
 * The same as for umsg_msgget(3).
 *
 * See also:
 * umsg_msg_begin_to_produce(3), umsg_msg_lease(3), umsg_msgget(3)
 */
int umsg_msgget_with(int key, int msgflg, const struct umsg_msg_options *options);

/* ---- System V queues: sending ---- */

/*
 * Sends a message to a System V queue.
 *
 * msgp points to a long, the message's type, followed by the msgsz bytes of its text, as in the struct msgbuf of msgsnd(2). The type is 1
 * or more; receivers select messages by their type. If the queue has no room, the call waits; with IPC_NOWAIT in msgflg it fails.
 * There is room if the queue, including this message, has at most msg_qbytes bytes and at most msg_qbytes messages.
 *
 * A message may be empty. The function is not a cancellation point of pthread_cancel(3).
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the queue's mode does not let the caller send.
 * - EAGAIN: msgflg has IPC_NOWAIT, and there is no room, or a stopped process has held a lock of this queue for more than a
 *   second.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
 * - EFAULT: msgp is at an address that can't be read.
 * - EIDRM: the queue was removed while the call waited.
 * - EINTR: a signal handler ran while the call waited, whether it was installed with SA_RESTART or not.
 * - EINVAL: no queue has the identifier msqid, or that queue was removed; the type is below 1; or msgsz is more than the value of msgmax
 *   at the creation of the queue.
 * - ENOMEM: the system has no memory for the message, or the namespace's file system is full or its limit of bytes is
 *   reached.
 * - EPIPE: the queue was closed by umsg_msg_close_send(3). No SIGPIPE is raised.
 *
 * If the process dies:
 * Before the call returns: the message was sent completely, or not at all.
 *
 * See also:
 * umsg_msg_close_send(3), umsg_msg_send_after(3), umsg_msg_send_batch(3), umsg_msg_timedsend(3), umsg_msgget(3), umsg_msgrcv(3), msgsnd(2)
 */
int umsg_msgsnd(int msqid, const void *msgp, size_t msgsz, int msgflg);

/*
 * Sends a message to a System V queue, and waits for room at most until a deadline.
 *
 * Does the same as umsg_msgsnd(3), but a call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. If
 * there
 * is
 * room, the call ignores the time. With IPC_NOWAIT in msgflg, the call does not wait.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_msgsnd(3), and these:
 *
 * - EFAULT: abs_timeout is at an address that can't be read.
 * - EINVAL: tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - ETIMEDOUT: the deadline passed before there was room.
 *
 * If the process dies:
 * Before the call returns: the message was sent completely, or not at all.
 *
 * See also:
 * umsg_msg_timedreceive(3), umsg_msgsnd(3), clock_gettime(2)
 */
int umsg_msg_timedsend(int msqid,
                       const void *msgp,
                       size_t msgsz,
                       int msgflg,
                       const struct timespec *abs_timeout);

/* ---- System V queues: sending for a later delivery ---- */

/*
 * Sends a message to a System V queue for a later delivery.
 *
 * Does the same as umsg_msgsnd(3), but receivers get the message after delay nanoseconds at the earliest. This applies also to msgrcv(2) of a
 * program under umsg run. Until then, the message takes room in the queue, and delayed of umsg_msg_status(3) counts it. When it is due, it
 * takes its place behind the messages that were sent before, and ahead of the messages that are sent later. A blocked receiver wakes up when the
 * message is due. umsg_msg_pollfd(3) describes what a poller learns.
 *
 * If the queue has no room, the call waits until there is room; with IPC_NOWAIT in msgflg it fails. The delay begins when there is room.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_msgsnd(3).
 *
 * If the process dies:
 * Before the call returns: the message is sent completely, or not at all. After the call has returned, the message is delivered in any case.
 *
 * See also:
 * umsg_msg_return_after(3), umsg_msg_timedsend_after(3), umsg_msgget_with(3), umsg_msgsnd(3)
 */
int umsg_msg_send_after(int msqid, const void *msgp, size_t msgsz, int msgflg, uint64_t delay);

/*
 * Sends a message to a System V queue for a later delivery, and waits for room at most until a deadline.
 *
 * Does the same as umsg_msg_send_after(3), but a call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit.
 * If
 * there is
 * room, the call ignores the time. With IPC_NOWAIT in msgflg, the call does not wait.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_msg_timedsend(3).
 *
 * If the process dies:
 * The same as for umsg_msg_send_after(3).
 *
 * See also:
 * umsg_msg_send_after(3), umsg_msg_timedsend(3), clock_gettime(2)
 */
int umsg_msg_timedsend_after(int msqid,
                             const void *msgp,
                             size_t msgsz,
                             int msgflg,
                             uint64_t delay,
                             const struct timespec *abs_timeout);

/* ---- System V queues: the end of a stream of messages ---- */

/*
 * Closes a System V queue for sending.
 *
 * The queue is closed in all processes. All sends by functions of this library, also blocked ones, fail with EPIPE. Receivers get the remaining
 * messages. A receiver gets EPIPE when no message that it wants is left; blocked receivers are woken. While a message is leased
 * (umsg_msg_lease(3)) or delayed (umsg_msg_send_after(3)), receivers wait, because it may be a message that they want. A poller finds the
 * closed queue writable, and at the end of the stream also readable.
 *
 * msgsnd(2) and msgrcv(2) of a program under umsg run ignore that a queue is closed, because the kernel's calls have no error for a closed
 * queue: msgsnd sends, and msgrcv waits.
 *
 * The queue stays closed until umsg_msg_reopen_send(3) opens it. send_closed of umsg_msg_status(3) tells whether it is closed.
 *
 * Return value:
 * On success, 1 if the queue was open, and 0 if it was already closed. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the queue's mode does not let the caller send.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EIDRM: the queue was removed during the call.
 * - EINVAL: no queue has the identifier msqid, or that queue was removed.
 *
 * If the process dies:
 * Before the call returns: the queue is closed or open. If it is closed, waiters that were not woken notice it within a tenth of a second.
 *
 * See also:
 * umsg_msg_begin_to_produce(3), umsg_msg_reopen_send(3), umsg_msg_status(3), umsg_msgrcv(3), umsg_msgsnd(3)
 */
int umsg_msg_close_send(int msqid);

/*
 * Opens a System V queue for sending again.
 *
 * Undoes umsg_msg_close_send(3). A receiver that got EPIPE is not notified; its next call waits for messages.
 *
 * Return value:
 * On success, 1 if the queue was closed, and 0 if it was open. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_msg_close_send(3).
 *
 * If the process dies:
 * Before the call returns: the queue is closed or open.
 *
 * See also:
 * umsg_msg_close_send(3), umsg_msg_status(3), umsg_msgsnd(3)
 */
int umsg_msg_reopen_send(int msqid);

/*
 * Counts the calling process as a producer of a System V queue.
 *
 * The call is for a queue that was created with UMSG_CLOSE_WITH_LAST_PRODUCER (umsg_msgget_with(3)). While a living process counts as a
 * producer, the queue stays open for sending. After the last umsg_msg_end_producing(3), or the death of the last producer, the queue is closed as
 * by umsg_msg_close_send(3). A process may count several times. For other queues, the call has no effect. A child made by fork(2) does not count
 * through the call of its parent.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_msg_close_send(3), and these:
 *
 * - EPIPE: the queue is closed for sending.
 * - EUSERS: 32 living processes already count as producers.
 *
 * If the process dies:
 * The process no longer counts. A receiver or a poller of this library notices the death within a tenth of a second.
 *
 * See also:
 * umsg_msg_close_send(3), umsg_msg_end_producing(3), umsg_msgget_with(3)
 */
int umsg_msg_begin_to_produce(int msqid);

/*
 * Ends one count of the calling process as a producer of a System V queue.
 *
 * Undoes one call of umsg_msg_begin_to_produce(3). The queue is closed for sending when the last producer ends.
 *
 * Return value:
 * On success, 1 if the process counted, and 0 if it did not. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_msg_close_send(3).
 *
 * If the process dies:
 * The process no longer counts.
 *
 * See also:
 * umsg_msg_begin_to_produce(3), umsg_msg_close_send(3)
 */
int umsg_msg_end_producing(int msqid);

/* ---- System V queues: receiving ---- */

/*
 * Receives a message from a System V queue.
 *
 * Removes the first matching message from the queue, and writes its type, a long, to msgp and its bytes behind the type; msgsz is the
 * room for the bytes. msgtyp selects the message:
 *
 * - 0: the oldest message - above 0: the oldest message of this type; with MSG_EXCEPT in msgflg the oldest of any other type
 * - below 0: the oldest of the lowest type in the queue, up to the absolute value of the number
 *
 * If there is no such message, the call waits until one comes; with IPC_NOWAIT in msgflg it fails. If several calls wait for
 * the same message, the call that has waited longest gets it. The number of other messages does not change the cost of receiving by type.
 *
 * A message that is longer than msgsz stays in the queue and the call fails; with MSG_NOERROR the call receives its first msgsz bytes, and
 * the other bytes are lost. With MSG_COPY and IPC_NOWAIT, msgtyp is a number in order of arrival, from 0, and the message is copied and
 * stays;
 * umsg_msg_peek(3) also returns its sender and time.
 *
 * If msgp can't be written, the message is lost. The function is not a cancellation point of pthread_cancel(3).
 *
 * Return value:
 * On success, the number of bytes that were written behind the type. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - E2BIG: the message is longer than msgsz, and msgflg lacks MSG_NOERROR. It is still in the queue, or the next
 *   receiver got it.
 * - EACCES: the queue's mode does not let the caller receive.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
 * - EFAULT: msgp is at an address that can't be written.
 * - EIDRM: the queue was removed while the call waited.
 * - EINTR: a signal handler ran while the call waited, whether it was installed with SA_RESTART or not.
 * - EINVAL: no queue has the identifier msqid, or that queue was removed; msgsz is larger than SSIZE_MAX; or
 *   msgflg has MSG_COPY without IPC_NOWAIT, with MSG_EXCEPT, or with MSG_NOERROR and the message is longer than msgsz.
 * - ENOMEM: the system has no memory left.
 * - ENOMSG: msgflg has IPC_NOWAIT, and there is no such message, or a stopped process has held a lock of this queue for more
 *   than a second.
 * - EPIPE: the end of the stream: the queue was closed by umsg_msg_close_send(3), and no matching message is left or can come back.
 *
 * If the process dies:
 * Before the call returns: the message is still in the queue, or lost if it was already copied out; umsg_msg_lease(3) does not
 * lose it.
 *
 * See also:
 * umsg_msg_lease(3), umsg_msg_receive_batch(3), umsg_msg_timedreceive(3), umsg_msgsnd(3), msgrcv(2)
 */
ssize_t umsg_msgrcv(int msqid, void *msgp, size_t msgsz, long msgtyp, int msgflg);

/*
 * Receives a message from a System V queue, and waits for a message at most until a deadline.
 *
 * Does the same as umsg_msgrcv(3), but a call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. If
 * there
 * is a
 * message, the call ignores the time. With IPC_NOWAIT in msgflg, the call does not wait.
 *
 * Return value:
 * On success, the number of bytes that were written behind the type. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_msgrcv(3), and these:
 *
 * - EFAULT: abs_timeout is at an address that can't be read.
 * - EINVAL: tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - ETIMEDOUT: the deadline passed before a wanted message came.
 *
 * If the process dies:
 * The same as for umsg_msgrcv(3).
 *
 * See also:
 * umsg_msg_timedsend(3), umsg_msgrcv(3), clock_gettime(2)
 */
ssize_t umsg_msg_timedreceive(int msqid,
                              void *msgp,
                              size_t msgsz,
                              long msgtyp,
                              int msgflg,
                              const struct timespec *abs_timeout);

/* ---- System V queues: inspecting, changing and removing ---- */

/*
 * Inspects, changes and removes System V queues.
 *
 * cmd is one of these commands of <sys/msg.h>:
 *
 * - IPC_STAT: write the queue's status to buf: key, owner, creator, mode, times, counts, last sender and receiver.
 * - IPC_SET: set owner, group, mode and msg_qbytes to those in buf. Waiting calls check their permission and the
 *   room again.
 * - IPC_RMID: remove the queue with its messages. Waiting calls fail with EIDRM.
 * - IPC_INFO: write the limits to buf, which points to a struct msginfo for this command.
 * - MSG_INFO: write the limits and the numbers of queues, messages and bytes to buf, as for IPC_INFO.
 * - MSG_STAT: do the same as IPC_STAT for the queue whose index is msqid. To list all queues, use the indices from 0 to the result of
 *   MSG_INFO.
 * - MSG_STAT_ANY: do the same as MSG_STAT, without a check of the read permission.
 *
 * An owner may raise msg_qbytes up to the namespace's max_qbytes (umsg limits), which is 1 GiB by default; the kernel's limit is msgmnb.
 * If the caller may not read a queue, its status shows the rights of its file, and counts of 0. umsg_msg_status(3) returns more than
 * IPC_STAT.
 *
 * Return value:
 * For IPC_INFO and MSG_INFO, the highest index of a queue, or 0 if there is no queue. For MSG_STAT and MSG_STAT_ANY, the queue's
 * identifier. For other commands, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the command reads the status of a queue whose mode does not let the caller read.
 * - EAGAIN: a process was stopped inside an operation on this queue.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EBUSY: a process was stopped while it made or removed a queue.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
 * - EFAULT: buf is at an address that can't be read or written.
 * - EINVAL: no queue has the identifier or index msqid, cmd is not one of the commands, or a new user or group is -1.
 * - EPERM: for IPC_SET and IPC_RMID, the caller is neither owner nor creator and lacks CAP_SYS_ADMIN; msg_qbytes is more than
 *   the namespace's limit and the caller lacks CAP_SYS_RESOURCE; the new mode lets some users only send or only receive, in a namespace
 *   that refuses such modes (umsg-limits(1)); or the file system can't give the queue's file such rights.
 *
 * If the process dies:
 * The change was made, or was not made. A removed queue is removed for all processes.
 *
 * See also:
 * umsg_msg_status(3), umsg_msgget(3), umsg(1), msgctl(2)
 */
int umsg_msgctl(int msqid, int cmd, struct msqid_ds *buf);

/* ---- System V queues: sending several messages in one call ---- */

/* One of several messages. Sending reads data, len and mtype; receiving reads data and size, and sets len and mtype. */
struct umsg_msg_message {
    /* The message's bytes, or the place to which a receive copies them; NULL if there are none. Sending does not change the bytes. */
    void *data;
    /* The length of the buffer at data, in bytes: for receiving. */
    size_t size;
    /* The length of the message, in bytes. */
    size_t len;
    /* The message's type. */
    long mtype;
};

/*
 * Sends several messages to a System V queue as one: all of them or none.
 *
 * A receiver finds all of the n messages at once. The call takes one lock and makes at most one round of wake-ups. The messages arrive in
 * the given order. If the queue has no room for all of them, the call waits; with IPC_NOWAIT in msgflg, it fails. There is no other flag. The
 * messages must not change during the call.
 *
 * A call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error; nothing was sent.
 *
 * Errors:
 * - EACCES: the queue's mode does not let the caller send.
 * - EAGAIN: there is no room for all of them, and msgflg has IPC_NOWAIT.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: messages, the data of one of them, or abs_timeout is at an address that can't be read.
 * - EIDRM: the queue was removed during the call.
 * - EINTR: a signal handler ran while the call waited.
 * - EINVAL: no queue has the identifier msqid, or that queue was removed; a type is below 1; a message is longer than the value of msgmax at
 *   the creation of the queue; msgflg has other flags; or tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to
 *   999,999,999.
 * - EMSGSIZE: there are more messages, or more bytes, than the queue can hold (msg_qbytes).
 * - ENOMEM: the system has no memory for the messages, or the namespace's file system is full or its limit of bytes is
 *   reached.
 * - ETIMEDOUT: the deadline passed before there was room for all of them.
 *
 * If the process dies:
 * Before the call returns: all of them were sent, or none.
 *
 * See also:
 * umsg_msg_receive_batch(3), umsg_msgsnd(3)
 */
int umsg_msg_send_batch(int msqid,
                        const struct umsg_msg_message *messages,
                        size_t n,
                        int msgflg,
                        const struct timespec *abs_timeout);

/* ---- System V queues: receiving several messages in one call ---- */

/*
 * Receives several messages from a System V queue.
 *
 * Receives up to n matching messages under one lock, in the order in which the same number of calls of umsg_msgrcv(3) would receive them.
 * msgtyp selects them as in umsg_msgrcv(3), with or without MSG_EXCEPT in msgflg. Each message is copied to the data of one of
 * messages, in order, and len and mtype are set. A message that is longer than the size of its place stays in the queue and ends
 * the call.
 *
 * If no message matches, the call waits for one message, not for more. With IPC_NOWAIT it fails instead. A call that waits needs room for
 * the queue's longest message in the first place: its msgmax, which umsg_msg_status(3) returns. A call that waits ends at abs_timeout,
 * a time of the clock CLOCK_REALTIME; NULL means no limit. The places must not overlap. Other users of the queue wait while the call copies
 * messages.
 *
 * Return value:
 * On success, the number of messages received, which is 0 only if n is 0. On error, -1
 * with errno set to indicate the error; no message was received.
 *
 * Errors:
 * - E2BIG: the first message is longer than the size of the first place; or the call would wait, and the next message could be longer.
 * - EACCES: the queue's mode does not let the caller receive.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: messages, the data of one of them, or abs_timeout is at an address that can't be read or written.
 * - EIDRM: the queue was removed during the call.
 * - EINTR: a signal handler ran while the call waited.
 * - EINVAL: no queue has the identifier msqid, or that queue was removed; msgflg has other flags than IPC_NOWAIT and
 *   MSG_EXCEPT; or tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - ENOMEM: the system has no memory left.
 * - ENOMSG: there is no such message, and msgflg has IPC_NOWAIT.
 * - ETIMEDOUT: the deadline passed before a wanted message came.
 *
 * If the process dies:
 * Before the call returns: the messages that were already copied are lost, and the others are in the queue.
 *
 * See also:
 * umsg_msg_lease(3), umsg_msg_send_batch(3), umsg_msgrcv(3)
 */
ssize_t umsg_msg_receive_batch(int msqid,
                               struct umsg_msg_message *messages,
                               size_t n,
                               long msgtyp,
                               int msgflg,
                               const struct timespec *abs_timeout);

/* ---- System V queues: receiving in place ---- */

/*
 * A message of a System V queue that was received in place. The members describe it. Changing them has no effect, but id must stay as it
 * is.
 */
struct umsg_msg_lease {
    /* The address of the message: valid until the lease ends. */
    const void *data;
    /* The length of the message in bytes. */
    size_t len;
    /* The time of the send, in nanoseconds since 1970, to a few milliseconds. */
    int64_t sent;
    /* The message's type. */
    long mtype;
    /* The number of leases of the message, this one included: 1 for the first lease. */
    unsigned int deliveries;
    /* Process id of the sender. */
    pid_t pid;
    /* The number by which the library knows the lease; 0 once it has ended. */
    uint64_t id;
};

/*
 * Receives a message of a System V queue in place.
 *
 * Does the same as umsg_msgrcv(3), but copies nothing. msgtyp selects the message; msgflg may have MSG_EXCEPT and IPC_NOWAIT. data and
 * len of lease are the
 * address of the message in the queue's memory and its length. The bytes must not be written. The message counts for the queue's capacity
 * until umsg_msg_acknowledge(3) removes it. Three events return the message to its place in the queue: a call of umsg_msg_return(3), the death of
 * the process, and the end of a time limit that umsg_msg_lease_limit(3) has set. The next receiver then gets the message.
 *
 * A call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit.
 *
 * Leases may be ended in any order and by any thread of the process. A child made by fork(2) does not own its parent's leases.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the queue's mode does not let the caller receive.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
 * - EFAULT: lease or abs_timeout is at an address that can't be read or written.
 * - EIDRM: the queue was removed during the call.
 * - EINTR: a signal handler ran while the call waited.
 * - EINVAL: no queue has the identifier msqid, or that queue was removed; msgflg has other flags; or tv_sec of abs_timeout is
 *   negative, or tv_nsec is not from 0 to 999,999,999.
 * - EMFILE: the process has 65,536 leases of System V queues.
 * - ENOMEM: the system has no memory left.
 * - ENOMSG: there is no such message, and msgflg has IPC_NOWAIT.
 * - ETIMEDOUT: the deadline passed before a wanted message came.
 *
 * If the process dies:
 * The message goes back to its place in the queue. A call that finds no message or no room checks for dead holders; a blocked call checks
 * ten times a second.
 *
 * See also:
 * umsg_msg_acknowledge(3), umsg_msg_lease_limit(3), umsg_msg_return(3), umsg_msgrcv(3)
 */
int umsg_msg_lease(int msqid,
                   struct umsg_msg_lease *lease,
                   long msgtyp,
                   int msgflg,
                   const struct timespec *abs_timeout);

/*
 * Removes a leased message of a System V queue for good.
 *
 * Call it after the message has been processed. The message leaves the queue, its room becomes free, and the lease ends, even if the call fails.
 * The exceptions are EDEADLK and EFAULT: then the lease continues and can be ended later.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue; umsg_defer_signal(3) makes such a handler run
 *   later. The lease continues.
 * - EFAULT: lease is at an address that can't be read and written.
 * - EINVAL: this process has no such lease.
 * - ESTALE: a time limit or another thread has ended the lease, the queue was removed, or this is a forked child of its holder.
 *
 * If the process dies:
 * Before the call returns: the message is gone, or goes back to its place in the queue.
 *
 * See also:
 * umsg_defer_signal(3), umsg_msg_lease(3), umsg_msg_return(3)
 */
int umsg_msg_acknowledge(struct umsg_msg_lease *lease);

/*
 * Returns a leased message to its System V queue.
 *
 * The message goes back to its place in the queue, and the next receiver gets it. The lease ends, even if the call fails. The exceptions
 * are EDEADLK and EFAULT: then the lease continues and can be ended later.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue; umsg_defer_signal(3) makes such a handler run
 *   later. The lease continues.
 * - EFAULT: lease is at an address that can't be read and written.
 * - EINVAL: this process has no such lease.
 * - ESTALE: a time limit or another thread has ended the lease, the queue was removed, or this is a forked child of its holder.
 *
 * If the process dies:
 * The message goes back, as if the call had succeeded.
 *
 * See also:
 * umsg_defer_signal(3), umsg_msg_acknowledge(3), umsg_msg_lease(3)
 */
int umsg_msg_return(struct umsg_msg_lease *lease);

/*
 * Returns a leased message of a System V queue for a later delivery.
 *
 * Does the same as umsg_msg_return(3), but receivers get the message after delay nanoseconds at the earliest. This delay replaces the queue's
 * retry delay
 * (umsg_msgget_with(3)). Other messages are not delayed.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_msg_return(3).
 *
 * If the process dies:
 * The message goes back to the queue, now or after the delay.
 *
 * See also:
 * umsg_msg_lease(3), umsg_msg_return(3), umsg_msg_send_after(3)
 */
int umsg_msg_return_after(struct umsg_msg_lease *lease, uint64_t delay);

/*
 * Lets a lease of a message of a System V queue end by itself after some time.
 *
 * time is relative to the call. When it has passed, the message goes back to its place in the queue, even if the holder still
 * reads the message; the holder's umsg_msg_acknowledge(3) then fails. A call that finds no message or no room returns the message.
 * A blocked call checks ten times a second. A further call sets another limit.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: lease or time is at an address that can't be read.
 * - EINVAL: this process has no such lease; or tv_sec of time is negative, or tv_nsec is not from 0 to
 *   999,999,999.
 * - ESTALE: an earlier limit or another thread has ended the lease, the queue was removed, or this is a forked child of its
 *   holder.
 *
 * If the process dies:
 * The message goes back at once.
 *
 * See also:
 * umsg_msg_acknowledge(3), umsg_msg_lease(3)
 */
int umsg_msg_lease_limit(const struct umsg_msg_lease *lease, const struct timespec *time);

/* ---- System V queues: peeking at messages ---- */

/* A message of a System V queue that was peeked at. The program sets data and size, the call the other members. */
struct umsg_msg_peeked {
    /* The place to which the bytes are copied; NULL if size is 0. */
    void *data;
    /* The length of the buffer, in bytes. */
    size_t size;
    /* The length of the message in bytes, which may be more than size. */
    size_t len;
    /* The time of the send, in nanoseconds since 1970, to a few milliseconds. */
    int64_t sent;
    /* The message's type. */
    long mtype;
    /* Process id of the sender. */
    pid_t pid;
    /* The number of leases of the message that ended without an acknowledgement. */
    uint32_t returns;
    /* The library sets this field to 0. */
    uint32_t reserved[4];
};

/*
 * Copies a message of a System V queue without receiving it.
 *
 * n counts in order of arrival, and 0 is the oldest message. The call copies as many bytes as there is room for. len is the whole
 * length of the message, so a call with a size of 0 returns only the length and the other members. A step from one message to the next
 * takes constant time. The message may be gone when the call returns.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the queue's mode does not let the caller receive.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: peeked or its data is at an address that can't be written.
 * - EIDRM: the queue was removed during the call.
 * - EINVAL: no queue has the identifier msqid, or that queue was removed.
 * - ENOMSG: the queue has at most n messages; or a stopped process has held a lock of this queue for more than
 *   a second.
 *
 * If the process dies:
 * The call changes nothing.
 *
 * See also:
 * umsg(1), umsg_msg_status(3), umsg_msg_types(3), umsg_msgrcv(3)
 */
int umsg_msg_peek(int msqid, size_t n, struct umsg_msg_peeked *peeked);

/* ---- System V queues: the types of the queued messages ---- */

/* A type that has queued messages. */
struct umsg_msg_type {
    /* The type. */
    long mtype;
    /* The number of queued messages of this type. */
    uint32_t messages;
    /* The library sets this field to 0. */
    uint32_t reserved;
};

/*
 * Lists the types of the messages in a System V queue, with the number of messages of each.
 *
 * Up to n types are written to types, the lowest first.
 *
 * Return value:
 * On success, the number of types that were written. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the queue's mode does not let the caller receive.
 * - EAGAIN, ENOMSG: a stopped process has held a lock of this queue for more than a second.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: types is at an address that can't be written.
 * - EIDRM: the queue was removed during the call.
 * - EINVAL: no queue has the identifier msqid, or that queue was removed.
 *
 * If the process dies:
 * The call changes nothing.
 *
 * See also:
 * umsg(1), umsg_msg_peek(3), umsg_msg_status(3)
 */
ssize_t umsg_msg_types(int msqid, struct umsg_msg_type *types, size_t n);

/* ---- System V queues: the status of a queue ---- */

/*
 * The status of a System V queue, without its messages. Times are in nanoseconds since 1970; 0 means never. The times of the last calls are
 * accurate to a second. Counts of events begin with the creation of the queue.
 */
struct umsg_msg_status {
    /* The number of queued messages. */
    uint64_t messages;
    /* The number of bytes in these messages. */
    uint64_t bytes;
    /* The maximum number of queued bytes. */
    uint64_t qbytes;
    /* The maximum length of a message, in bytes. */
    uint64_t msgmax;
    /* The queue's identifier. */
    int32_t id;
    /* The queue's key; 0 if it has none. */
    int32_t key;
    /* Permission bits. */
    uint32_t mode;
    /* The owner's user id. */
    uint32_t uid;
    /* The owner's group id. */
    uint32_t gid;
    /* The creator's user id. */
    uint32_t cuid;
    /* The creator's group id. */
    uint32_t cgid;
    /* Process id of the creator. */
    uint32_t creator;
    /* Process id of the last sender; 0 if there was none. */
    uint32_t last_sender;
    /* Process id of the last receiver; 0 if there was none. */
    uint32_t last_receiver;
    /* The time of the queue's creation. */
    int64_t created;
    /* The time of the creation, or of the last change of owner, mode or size. */
    int64_t changed;
    /* The time of the last send. */
    int64_t last_send;
    /* The time of the last receive. */
    int64_t last_receive;
    /* Threads that wait for room. */
    uint64_t blocked_senders;
    /* Threads that wait for a message. */
    uint64_t blocked_receivers;
    /* Messages that were received in place and not acknowledged. They count for the capacity. */
    uint64_t leased;
    /* The number of bytes in the leased and the delayed messages. */
    uint64_t leased_bytes;
    /* Bytes of memory in use by slots and blocks. */
    uint64_t memory;
    /* Sends that found no room and waited. */
    uint64_t sends_blocked;
    /* Receives that found no wanted message and waited. */
    uint64_t receives_blocked;
    /* Messages handed to a waiting receiver. */
    uint64_t handed_over;
    /* Waits that ended while their thread was still spinning. */
    uint64_t spins_paid;
    /* Waits that ended with a time-out or a signal. */
    uint64_t given_up;
    /* Waiting threads that were found dead. */
    uint64_t waiters_died;
    /* Leased messages that went back to the queue. */
    uint64_t returned;
    /* Repairs after a death. */
    uint64_t repairs;
    /* 1 if a call has found the queue's memory corrupted, with values that no operation writes; otherwise 0. */
    uint64_t damaged;
    /* The number of messages that were sent or returned for a later delivery and are not due. They count for the capacity. */
    uint64_t delayed;
    /* 1 if the queue is closed for sending, also by the end of its last producer; else 0. */
    uint64_t send_closed;
    /* The number of living processes that count as producers; always 0 if the queue is not closed with its last producer. */
    uint64_t producers;
    /* The delay, in nanoseconds, before a message is delivered again after its first return; 0 for no delay. */
    uint64_t retry_delay;
    /* The longest such delay, in nanoseconds. */
    uint64_t retry_delay_max;
};

/*
 * Gets the complete status of a System V queue.
 *
 * Writes the status of the queue to status, with all counts as they are at one instant. size is sizeof(struct umsg_msg_status): a program
 * that
 * was compiled with an older umsg.h has a shorter structure, and gets the members that it knows. In a program that was compiled with a
 * newer umsg.h, the members that this library does not know are set to 0.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the queue's mode does not let the caller receive.
 * - EAGAIN: a stopped process has held a lock of this queue for more than a second.
 * - EBADMSG: the queue's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same queue.
 * - EFAULT: status is at an address that can't be written.
 * - EIDRM: the queue was removed during the call.
 * - EINVAL: no queue has the identifier msqid, or that queue was removed.
 *
 * If the process dies:
 * The call changes nothing.
 *
 * See also:
 * umsg(1), umsg_msg_peek(3), umsg_msg_types(3), umsg_msgctl(3)
 */
int umsg_msg_status(int msqid, struct umsg_msg_status *status, size_t size);

/* ---- System V queues: how calls wait, and the credentials that they use ---- */

/*
 * Chooses how this process's calls on a System V queue wait.
 *
 * waiting is one of UMSG_WAITING_ADAPTIVE, UMSG_WAITING_BLOCKING and UMSG_WAITING_SPINNING, which umsg_mq_set_waiting(3)
 * describes. The choice applies from the next call on, to all threads of the process.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the queue's mode grants the caller no access.
 * - EINVAL: no queue has the identifier msqid, or that queue was removed; or waiting is not one of the three.
 *
 * If the process dies:
 * The choice ends with the process.
 *
 * See also:
 * umsg_mq_set_waiting(3), umsg_msgrcv(3), umsg_msgsnd(3)
 */
int umsg_msg_set_waiting(int msqid, int waiting);

/*
 * Makes each System V queue check the credentials of the process again.
 *
 * A queue checks the process's permissions at the first send and at the first receive, and again after a change of its owner or mode. After
 * a change of its user or groups, by setuid(2) or setgroups(2) for example, a program calls this function before it uses queues again. The
 * kernel checks at each call; here, such a check would cost more than the call itself.
 *
 * Return value:
 * 0.
 *
 * Errors:
 * None.
 *
 * If the process dies:
 * The call has no further effect.
 *
 * See also:
 * umsg_msgget(3), credentials(7)
 */
int umsg_msg_forget_caller(void);

/* ---- System V queues in event loops ---- */

/*
 * Returns the descriptor of a System V queue, for poll(2), select(2) and epoll(7).
 *
 * The descriptor is readable (POLLIN) while the queue has a message of any type, and writable (POLLOUT) while it has room for a byte.
 * After the removal of the queue, the descriptor is readable and writable, so that pollers detect the removal. To wait for messages of certain
 * types while
 * there are others, or for more room than there is, poll with EPOLLET and choose edges.
 *
 * edges is one of UMSG_EDGES_CHANGES, UMSG_EDGES_MESSAGES and UMSG_EDGES_ALL, which umsg_mq_pollfd(3) describes, with what
 * each costs.
 *
 * The descriptor belongs to the library, which opens one for each queue and process at the first call. The program must not read, write or
 * close it. The library closes it when it detaches from a removed queue.
 *
 * Return value:
 * On success, the descriptor, the same each time. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the queue's mode grants the caller no access, or the caller may not create files in the namespace's directory.
 * - EAGAIN: a process was stopped inside an operation on the queue.
 * - EBADMSG: the queue is corrupted.
 * - EINVAL: no queue has the identifier msqid, or that queue was removed; or edges is not one of the three.
 * - EMFILE, ENFILE: there are too many open files.
 * - ENOSPC, ENOMEM: there is no room for a file.
 * - EOPNOTSUPP: the queue belongs to another user, and the file system has no access control lists.
 *
 * If the process dies:
 * The system closes the descriptor. After some hundred messages, senders and receivers detect that no process polls any more.
 *
 * See also:
 * umsg_mq_pollfd(3), umsg_msgget(3), poll(2), epoll(7)
 */
int umsg_msg_pollfd(int msqid, int edges);

/* ---- Rings: making one ---- */

/* The value of overflow for a ring without overflow. */
#define UMSG_RING_NO_OVERFLOW 4294967295

/* The value of flags for a ring that refuses senders until umsg_ring_enable. */
#define UMSG_RING_DISABLED 1

/*
 * The options of umsg_ring_create. A member of 0 or NULL means the default.
 *
 * Initialise it by struct umsg_ring_options options = {.size = sizeof options}; and set further members by name, because a later version of the
 * library may have more members.
 */
struct umsg_ring_options {
    /* sizeof(struct umsg_ring_options): which members the program knows. */
    size_t size;
    /* The name by which other processes find the ring, a slash and up to 255 bytes; NULL for a ring without a name. */
    const char *name;
    /* The directory that is the namespace of the ring. NULL for the namespace that umsg_mq_open uses. Always NULL for a ring without a name. */
    const char *directory;
    /* The number of messages that the ring holds without overflow; 0 for 1,024. */
    uint32_t entries;
    /*
     * The capacity of the overflow, in messages; 0 for 65,536, UMSG_RING_NO_OVERFLOW for no overflow. The overflow uses memory only for messages
     * that it holds.
     */
    uint32_t overflow;
    /* The longest payload, in bytes; 0 for 64, which is the least. */
    uint32_t longest;
    /* Permission bits of a ring with a name, before the umask: write permission allows sending; 0 for 0600. */
    uint32_t mode;
    /* UMSG_RING_DISABLED or 0. */
    uint32_t flags;
    /*
     * The way in which the receiver waits: one of UMSG_WAITING_ADAPTIVE (the default), UMSG_WAITING_BLOCKING and
     * UMSG_WAITING_SPINNING.
     */
    uint32_t waiting;
};

/*
 * Creates a ring. The caller is its only receiver.
 *
 * Any number of threads and processes post messages to a ring. The owner of the ring, the process that created it, receives them in order of
 * arrival. options may be NULL, for the defaults.
 *
 * A ring without a name is for the threads of the process and the children that it makes by fork(2). A ring with a name belongs to a
 * namespace, as umsg_mq_open(3) describes; umsg_ring_free(3) removes the name. A new ring replaces a ring of that name whose owner has
 * died.
 *
 * Only one thread at a time may receive. The ring is not a descriptor; umsg_ring_descriptor(3) returns a descriptor on which a program can wait. A
 * program that was compiled
 * with an older umsg.h has a shorter structure; the missing members have their defaults. If a program was compiled with a newer umsg.h
 * and uses a member that this version of the library does not know, the call fails.
 *
 * Return value:
 * On success, the ring. On error, NULL with errno set to indicate the error.
 *
 * Errors:
 * - E2BIG: a member that this version of the library does not know is not 0.
 * - EACCES: the name has a second slash, or the namespace is not trusted, or the caller may not write to it. umsg_last_error(3) says which.
 * - EBUSY: a ring has this name, and its owner lives.
 * - EFAULT: options or one of its texts is at an address that can't be read.
 * - EFBIG: the ring's file would be longer than the process's limit for files (RLIMIT_FSIZE).
 * - EINVAL: size is not the size of any version of the structure; entries and overflow are together more than 1,048,576; flags or
 *   waiting has no valid value; name does not begin with a slash, or is only a slash; or directory is set and name is not.
 * - ELOOP, ENOTDIR: directory is a symbolic link, or not a directory.
 * - EMFILE, ENFILE: the process or the system has no descriptor left. A ring keeps one or two.
 * - ENAMETOOLONG: name has more than 255 bytes after its slash.
 * - ENOENT: UMSG_DIR names a directory that does not exist.
 * - ENOMEM: there is no memory, or no address space to map the ring.
 * - ENOSPC: the namespace has as many bytes as its limits allow, or its file system is full.
 * - ENOTEMPTY: directory is not a namespace and holds other files, so that it can't become one.
 *
 * If the process dies:
 * During the creation: there is no ring, or a complete one. Afterwards the senders of the ring get an error that says that the owner is dead: a
 * send within ten milliseconds, a sender that waits for room within a tenth of a second. The name stays until another ring takes it, or
 * umsg_ring_unlink(3) removes it.
 *
 * See also:
 * umsg_ring_free(3), umsg_ring_open(3), umsg_ring_receive(3), umsg_ring_sender_of(3), umsg_ring_wait(3), umsg(1)
 */
struct umsg_ring *umsg_ring_create(const struct umsg_ring_options *options);

/* ---- Rings: senders, and freeing rings and senders ---- */

/*
 * Frees a ring, which closes it.
 *
 * From now on, sends to the ring fail with EPIPE. Messages that were not received are lost. The name of a named ring is free at
 * once. If a child made by fork(2) frees its copy, the ring stays open.
 *
 * After the call, no thread may use the ring, its descriptor, or the payloads of its messages.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EBUSY: a call that receives from the ring has not returned yet: the ring stays.
 *
 * If the process dies:
 * The system frees its rings; senders get an error that says that the owner is dead.
 *
 * See also:
 * umsg_ring_close(3), umsg_ring_create(3), umsg_ring_sender_free(3)
 */
int umsg_ring_free(struct umsg_ring *ring);

/*
 * Makes a sender of a ring of this process.
 *
 * Threads may share a sender, and a child made by fork(2) may use the senders of its parent. The receiver distinguishes senders by their
 * numbers: umsg_ring_tag(3).
 *
 * The sender may still be used after the ring was freed, and has to be freed, too.
 *
 * Return value:
 * On success, the sender. On error, NULL with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 *
 * If the process dies:
 * The system frees the sender.
 *
 * See also:
 * umsg_ring_create(3), umsg_ring_open(3), umsg_ring_send(3), umsg_ring_sender_free(3)
 */
struct umsg_ring_sender *umsg_ring_sender_of(struct umsg_ring *ring);

/*
 * Opens the ring of a name for sending.
 *
 * The call looks for the ring in the namespace that umsg_mq_open(3) describes. The ring has its name from umsg_ring_create(3) until
 * umsg_ring_free(3).
 *
 * Return value:
 * On success, a sender. On error, NULL with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the ring's mode does not let the caller send, the name has a second slash, or the namespace is not trusted. umsg_last_error(3) says
 *   which.
 * - EBADMSG: the ring's file is corrupted.
 * - EFAULT: name is at an address that can't be read.
 * - EINVAL: name does not begin with a slash, or the file of this name is not a ring, or belongs to another version of umsg.
 * - EMFILE, ENFILE: the process or the system has no descriptor left for the moment of opening.
 * - ENAMETOOLONG: name has more than 255 bytes after its slash.
 * - ENOENT: no ring has this name; or UMSG_DIR names a directory that does not exist.
 * - ENOMEM: there is no memory, or no address space to map the ring.
 * - ENOTEMPTY: the directory that UMSG_DIR names is not a namespace and holds other files, so that it can't become one.
 *
 * If the process dies:
 * The system frees the sender.
 *
 * See also:
 * umsg_ring_create(3), umsg_ring_open_in(3), umsg_ring_send(3), umsg_ring_sender_free(3)
 */
struct umsg_ring_sender *umsg_ring_open(const char *name);

/*
 * Opens the ring of a name for sending, in a namespace.
 *
 * Does the same as umsg_ring_open(3) in the namespace directory, instead of the namespace that the environment selects.
 *
 * Return value:
 * On success, a sender. On error, NULL with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_ring_open(3), and these errors of the directory:
 *
 * - EFAULT: directory is at an address that can't be read.
 * - ELOOP, ENOTDIR: directory is a symbolic link, or not a directory.
 * - ENOTEMPTY: directory is not a namespace and holds other files, so that it can't become one.
 *
 * If the process dies:
 * The system frees the sender.
 *
 * See also:
 * umsg_ring_open(3), umsg_ring_sender_free(3)
 */
struct umsg_ring_sender *umsg_ring_open_in(const char *directory, const char *name);

/*
 * Creates another sender of the same ring. The receiver distinguishes the two.
 *
 * Both senders have to be freed.
 *
 * Return value:
 * On success, the new sender. On error, NULL with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: sender is NULL, or can't be the address of a sender.
 *
 * If the process dies:
 * The system frees the sender.
 *
 * See also:
 * umsg_ring_open(3), umsg_ring_sender_of(3), umsg_ring_tag(3)
 */
struct umsg_ring_sender *umsg_ring_sender_clone(struct umsg_ring_sender *sender);

/*
 * Frees a sender.
 *
 * The messages that it sent stay in the ring. After the call, no thread may use the sender.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: sender is NULL, or can't be the address of a sender.
 *
 * If the process dies:
 * The system frees the sender.
 *
 * See also:
 * umsg_ring_open(3), umsg_ring_sender_of(3)
 */
int umsg_ring_sender_free(struct umsg_ring_sender *sender);

/* ---- Rings: removing the name of a dead owner's ring ---- */

/*
 * Removes the name of a ring whose owner has died.
 *
 * A living owner removes the name by umsg_ring_free(3). This function removes the name that a killed owner has left in the namespace that
 * umsg_mq_open(3) describes.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EACCES: the caller is neither the owner of the ring's file nor root, or may not read the file; the name has a second slash;
 *   or the namespace can't be used; umsg_last_error(3) says which.
 * - EBUSY: the ring's owner lives.
 * - EFAULT: name is at an address that can't be read.
 * - EINVAL: name does not begin with a slash, or the ring was created by another version of umsg.
 * - ENAMETOOLONG: name has more than 255 bytes after its slash.
 * - ENOENT: no ring has this name.
 * - ENOTEMPTY: the directory that UMSG_DIR names is not a namespace and holds other files, so that it can't become one.
 *
 * If the process dies:
 * The name was removed, or not.
 *
 * See also:
 * umsg_ring_create(3), umsg_ring_free(3), umsg_ring_unlink_in(3), umsg(1)
 */
int umsg_ring_unlink(const char *name);

/*
 * Removes the name of a ring whose owner has died from a namespace.
 *
 * Does the same as umsg_ring_unlink(3) in the namespace directory, instead of the namespace that the environment selects.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_ring_unlink(3), and these errors of the directory:
 *
 * - EFAULT: directory is at an address that can't be read.
 * - ELOOP, ENOTDIR: directory is a symbolic link, or not a directory.
 * - ENOTEMPTY: directory is not a namespace and holds other files, so that it can't become one.
 *
 * If the process dies:
 * The name was removed, or not.
 *
 * See also:
 * umsg_ring_open_in(3), umsg_ring_unlink(3)
 */
int umsg_ring_unlink_in(const char *directory, const char *name);

/* ---- Rings: sending ---- */

/* A call does not wait for room. */
#define UMSG_RING_NOWAIT 1

/* A message to be sent. */
struct umsg_ring_post {
    /* A value for the receiver. */
    uint64_t user_data;
    /* A value for the receiver. In a message with a descriptor, the receiver finds the descriptor's number here. */
    int32_t res;
    /* A value for the receiver. All bits are free for the sender's use. */
    uint32_t flags;
    /* The payload, which is copied; NULL for none. */
    const void *payload;
    /* The length of the payload, in bytes. Up to 64 bytes lie in the message itself. */
    size_t len;
};

/*
 * Sends a message to a ring.
 *
 * While the ring and its overflow are full, the call waits. The receiver of the message sees all that the sender wrote before the
 * call. The call makes a system call only if it wakes a sleeping thread.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: sender is NULL, or can't be the address of a sender.
 * - EBADFD: the ring is disabled: umsg_ring_enable(3).
 * - EBADMSG: the ring's memory is corrupted: it holds values that no operation writes.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same ring; see umsg_defer_signal(3).
 * - EFAULT: post or its payload is at an address that can't be read.
 * - EINTR: a signal handler that was installed without SA_RESTART ran while the call waited.
 * - EMSGSIZE: the payload is longer than the longest payload of the ring.
 * - ENOMEM: the system has no memory for the message.
 * - ENOSPC: the namespace's file system is full or its limit of bytes is reached.
 * - EOWNERDEAD: the process that received has died.
 * - EPIPE: the ring was closed.
 *
 * If the process dies:
 * Before the call returns: the message was sent completely, or not at all. Other senders are not delayed.
 *
 * See also:
 * umsg_ring_open(3), umsg_ring_receive(3), umsg_ring_send_batch(3), umsg_ring_send_fd(3), umsg_ring_timedsend(3), umsg_ring_try_send(3)
 */
int umsg_ring_send(struct umsg_ring_sender *sender, const struct umsg_ring_post *post);

/*
 * Sends a message to a ring if there is room.
 *
 * Does the same as umsg_ring_send(3), but the call does not wait. If a process was stopped inside a call on the ring, the call returns after a
 * second.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_ring_send(3), except EINTR, and this one:
 *
 * - EAGAIN: the ring and its overflow are full.
 *
 * If the process dies:
 * Before the call returns: the message was sent completely, or not at all.
 *
 * See also:
 * umsg_ring_send(3), umsg_ring_send_or_drop(3)
 */
int umsg_ring_try_send(struct umsg_ring_sender *sender, const struct umsg_ring_post *post);

/*
 * Sends a message to a ring, and waits for room at most until a deadline.
 *
 * Does the same as umsg_ring_send(3), but a call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. If there is
 * room, the call ignores the time.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_ring_send(3), and these:
 *
 * - EFAULT: abs_timeout is at an address that can't be read.
 * - EINVAL: tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - ETIMEDOUT: the deadline passed before there was room.
 *
 * If the process dies:
 * Before the call returns: the message was sent completely, or not at all.
 *
 * See also:
 * umsg_ring_send(3), umsg_ring_timedreceive(3), clock_gettime(2)
 */
int umsg_ring_timedsend(struct umsg_ring_sender *sender,
                        const struct umsg_ring_post *post,
                        const struct timespec *abs_timeout);

/*
 * Sends a message to a ring if there is room; otherwise drops and counts it.
 *
 * The count is dropped of umsg_ring_status(3).
 *
 * Return value:
 * On success, 1 if the message was sent, 0 if it was dropped. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_ring_send(3), except EINTR.
 *
 * If the process dies:
 * Before the call returns: the message was sent completely, or not at all.
 *
 * See also:
 * umsg_ring_status(3), umsg_ring_try_send(3)
 */
int umsg_ring_send_or_drop(struct umsg_ring_sender *sender, const struct umsg_ring_post *post);

/*
 * Sends a message to a ring, and posts the outcome to another ring.
 *
 * The other ring is usually the ring from which the sender receives. completion arrives there with res 0, or with the negative error
 * number of umsg_ring_send(3). flags is 0, or UMSG_RING_NOWAIT for a call that does not wait for room. A call that waits ends at
 * abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. It never waits for room in the other ring.
 *
 * Return value:
 * On success, 0: the completion was posted, and has the outcome of the message. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_ring_try_send(3) for own; and these, before anything is sent:
 *
 * - EBADF: sender or own is NULL, or can't be the address of a sender.
 * - EFAULT: post, its payload, completion, its payload or abs_timeout is at an address that can't be read.
 * - EINVAL: flags has other bits; tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 *
 * If the process dies:
 * Before the call returns: the message was sent completely, or not at all. If the message was sent, the same holds for its completion.
 *
 * See also:
 * umsg_ring_send(3), umsg_ring_try_send(3)
 */
int umsg_ring_send_completing(struct umsg_ring_sender *sender,
                              const struct umsg_ring_post *post,
                              int flags,
                              const struct timespec *abs_timeout,
                              struct umsg_ring_sender *own,
                              const struct umsg_ring_post *completion);

/* ---- Rings: sending several messages in one call ---- */

/*
 * Sends several messages to a ring as one batch: all of them or none.
 *
 * The call makes one reservation and at most one wake-up. The receiver finds all of the n messages at once. Each payload has up to 64
 * bytes. flags is 0, or UMSG_RING_NOWAIT for a call that does not wait for room for all of them. A call that waits ends at
 * abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error; nothing was sent.
 *
 * Errors:
 * The errors of umsg_ring_send(3), and these:
 *
 * - EAGAIN: there is no room for all of them and flags has UMSG_RING_NOWAIT.
 * - EFAULT: posts, a payload or abs_timeout is at an address that can't be read.
 * - EINVAL: flags has other bits; tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - EMSGSIZE: a payload has more than 64 bytes, or n is more than the ring and its overflow hold.
 * - ETIMEDOUT: the deadline passed before there was room for all of them.
 *
 * If the process dies:
 * Before the call returns: all of them were sent, or none.
 *
 * See also:
 * umsg_ring_receive_batch(3), umsg_ring_send(3)
 */
int umsg_ring_send_batch(struct umsg_ring_sender *sender,
                         const struct umsg_ring_post *posts,
                         size_t n,
                         int flags,
                         const struct timespec *abs_timeout);

/* ---- Rings: passing descriptors ---- */

/*
 * Sends a message that brings a descriptor to a ring.
 *
 * The receiver gets its own descriptor for the same open file, in fd and res of its message. The sender keeps fd, and may close it
 * when the call has returned. The payload has up to 64 bytes. flags is 0, or UMSG_RING_NOWAIT for a call that does not wait for room. A
 * call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit.
 *
 * The receiver keeps the descriptors of messages that it has not received yet: up to a quarter of its RLIMIT_NOFILE, at most 1,024. If there are
 * more, the receiver closes the oldest. It also closes descriptors for which it has no descriptor number left. The messages of closed descriptors
 * arrive with -EBADF, and the sender gets no error.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_ring_send(3), and these:
 *
 * - EAGAIN: the receiver's socket holds its maximum number of descriptors, which is net.unix.max_dgram_qlen plus one, mostly 11, and which the
 *   receiver takes in when it receives; or there is no room and flags has UMSG_RING_NOWAIT.
 * - EBADF: fd is not an open descriptor.
 * - ECONNREFUSED, ENOENT: the receiver is gone.
 * - EFAULT: abs_timeout is at an address that can't be read.
 * - EINVAL: flags has other bits; tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - EMSGSIZE: the payload has more than 64 bytes.
 * - ETIMEDOUT: the deadline passed before there was room.
 *
 * If the process dies:
 * Before the call returns: the message was sent with its descriptor, or nothing was sent.
 *
 * See also:
 * umsg_ring_pass_fd(3), umsg_ring_receive(3), umsg_ring_send(3), unix(7)
 */
int umsg_ring_send_fd(struct umsg_ring_sender *sender,
                      const struct umsg_ring_post *post,
                      int fd,
                      int flags,
                      const struct timespec *abs_timeout);

/*
 * Passes a descriptor to a ring's receiver without a message.
 *
 * The receiver is not woken. The sender passes the returned ticket to the receiver, for example in a message. The receiver takes the
 * descriptor by umsg_ring_take_fd(3) with this ticket. The sender keeps fd, and may close it when the call has returned.
 *
 * Return value:
 * On success, the ticket. Each descriptor of the ring has its own ticket; the first ticket is 0. On error, -1 with errno set to
 * indicate the error.
 *
 * Errors:
 * - EAGAIN: the receiver's socket holds its maximum number of descriptors, which is net.unix.max_dgram_qlen plus one, mostly 11. The receiver
 *   takes them in when it receives a message or takes a descriptor.
 * - EBADF: sender is NULL, or can't be the address of a sender; or fd is not an open descriptor.
 * - EBADFD: the ring is disabled: umsg_ring_enable(3).
 * - ECONNREFUSED, ENOENT: the receiver is gone.
 * - EPIPE: the ring was closed.
 *
 * If the process dies:
 * Before the call returns: the descriptor may already have been sent. The receiver closes descriptors that the program does not take.
 *
 * See also:
 * umsg_ring_send_fd(3), umsg_ring_take_fd(3)
 */
int umsg_ring_pass_fd(struct umsg_ring_sender *sender, int fd);

/*
 * Takes a descriptor that came without a message.
 *
 * ticket is the value that umsg_ring_pass_fd(3) returned to the sender. The descriptor has FD_CLOEXEC set. The caller has to close it.
 *
 * Return value:
 * On success, the descriptor. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring; or no descriptor has arrived with this ticket, or it was already taken.
 * - EBUSY: a call that receives from the ring has not returned yet.
 * - EPERM: this is a forked child of the process that made the ring.
 *
 * If the process dies:
 * The system closes its descriptors.
 *
 * See also:
 * umsg_ring_pass_fd(3), umsg_ring_receive(3)
 */
int umsg_ring_take_fd(struct umsg_ring *ring, int ticket);

/* ---- Rings: receiving ---- */

/* A message that was received. */
struct umsg_ring_message {
    /* The value that the sender gave. */
    uint64_t user_data;
    /* The value that the sender has set. In a message with a descriptor, the same as fd, or -EBADF if the descriptor did not arrive. */
    int32_t res;
    /* The value that the sender gave. */
    uint32_t flags;
    /* The bytes of the message, valid until the next call that receives from the ring; never NULL. */
    const void *payload;
    /* The number of bytes. */
    size_t len;
    /* Process id of the sender. */
    uint32_t pid;
    /* The sender's number, which is unique among the senders of the ring. */
    uint32_t index;
    /* The descriptor of the message, which the receiver has to close. It has FD_CLOEXEC set. -1 for a message without a descriptor. */
    int32_t fd;
    /* The library sets this field to 0. */
    uint32_t reserved;
};

/*
 * Receives the next message of a ring.
 *
 * While the ring is empty, the call waits. By default it spins for some microseconds if spinning has paid off recently, and then sleeps;
 * umsg_ring_set_waiting(3) chooses. The payload stays in the ring until the next call that receives, and must not be freed. If the ring is
 * closed (umsg_ring_close(3)) and empty, no message can arrive any more, but the call still waits.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EBADMSG: the ring's memory is corrupted: it holds values that no operation writes.
 * - EBUSY: another call that receives from the ring has not returned yet: a call of another thread, a call that this signal handler
 *   interrupted, or a call of umsg_ring_drain(3) whose function makes this call.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same ring.
 * - EFAULT: message is at an address that can't be written.
 * - EINTR: a signal handler that was installed without SA_RESTART ran while the call waited.
 * - ENOMEM: the system has no memory left.
 * - EPERM: this is a forked child of the process that made the ring.
 *
 * If the process dies:
 * The messages are lost with the process; senders get an error.
 *
 * See also:
 * umsg_ring_create(3), umsg_ring_drain(3), umsg_ring_receive_batch(3), umsg_ring_send(3), umsg_ring_timedreceive(3), umsg_ring_try_receive(3), umsg_ring_wait(3)
 */
int umsg_ring_receive(struct umsg_ring *ring, struct umsg_ring_message *message);

/*
 * Receives the next message of a ring, if there is one.
 *
 * Does the same as umsg_ring_receive(3), but the call does not wait.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_ring_receive(3), except EINTR, and this one:
 *
 * - EAGAIN: there is no message.
 *
 * If the process dies:
 * The messages are lost with the process; senders get an error.
 *
 * See also:
 * umsg_ring_receive(3), umsg_ring_receive_batch(3)
 */
int umsg_ring_try_receive(struct umsg_ring *ring, struct umsg_ring_message *message);

/*
 * Receives the next message of a ring, and waits for a message at most until a deadline.
 *
 * Does the same as umsg_ring_receive(3), but a call that waits ends at abs_timeout, a time of the clock CLOCK_REALTIME; NULL means no limit. If there
 * is a message, the call ignores the time.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * The errors of umsg_ring_receive(3), and these:
 *
 * - EFAULT: abs_timeout is at an address that can't be read.
 * - EINVAL: tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999.
 * - ETIMEDOUT: the deadline passed before a message came.
 *
 * If the process dies:
 * The messages are lost with the process; senders get an error.
 *
 * See also:
 * umsg_ring_receive(3), umsg_ring_timedsend(3), clock_gettime(2)
 */
int umsg_ring_timedreceive(struct umsg_ring *ring,
                           struct umsg_ring_message *message,
                           const struct timespec *abs_timeout);

/* ---- Rings: receiving several messages in one call ---- */

/*
 * A function that is called with each message. umsg_ring_receive(3) describes messages. message and its payload exist until the function
 * returns.
 */
typedef void (*umsg_ring_visitor)(const struct umsg_ring_message *message, void *argument);

/*
 * Receives all present messages of a ring, and calls a function with each.
 *
 * The messages are copied out of the ring in groups, under one lock for each group. The call may also receive messages that arrive meanwhile, but
 * it returns even if senders continue. visit gets argument. It must return, and must not leave by longjmp(3) or an exception of C++. visit
 * may send, also to this ring if it does not wait for room, but it must not receive from this ring.
 *
 * The call does not wait; umsg_ring_wait(3) does.
 *
 * Return value:
 * On success, the number of messages received, including the messages that umsg_ring_accept_only(3) drops. On error, -1
 * with errno set to indicate the error. Only 0 means that the ring was empty: with EPOLLET, repeat the call until it returns 0.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EBADMSG: the ring's memory is corrupted: it holds values that no operation writes. Earlier messages may have been visited.
 * - EBUSY: another call that receives from the ring has not returned yet.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same ring.
 * - EFAULT: visit is NULL.
 * - EPERM: this is a forked child of the process that made the ring.
 *
 * If the process dies:
 * The messages are lost with the process; senders get an error.
 *
 * See also:
 * umsg_ring_receive(3), umsg_ring_receive_batch(3), umsg_ring_wait(3)
 */
ssize_t umsg_ring_drain(struct umsg_ring *ring, umsg_ring_visitor visit, void *argument);

/*
 * Receives several messages of a ring.
 *
 * Writes up to n present messages to messages. Their payloads exist until the next call that receives from the ring. The call does not
 * wait; umsg_ring_wait(3) does.
 *
 * Return value:
 * On success, the number of messages written: 0 if there were none, or if umsg_ring_accept_only(3) has dropped all of them.
 * On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EBADMSG: the ring's memory is corrupted: it holds values that no operation writes, and no message was received before it.
 * - EBUSY: another call that receives from the ring has not returned yet.
 * - EDEADLK: the call was made by a signal handler that interrupted a call on the same ring.
 * - EFAULT: messages is at an address that can't be written.
 * - EPERM: this is a forked child of the process that made the ring.
 *
 * If the process dies:
 * The messages are lost with the process; senders get an error.
 *
 * See also:
 * umsg_ring_drain(3), umsg_ring_receive(3), umsg_ring_send_batch(3), umsg_ring_wait(3)
 */
ssize_t umsg_ring_receive_batch(struct umsg_ring *ring,
                                struct umsg_ring_message *messages,
                                size_t n);

/* ---- Rings: waiting, and descriptors to poll ---- */

/*
 * Waits until several messages are in a ring, and leaves them there.
 *
 * The thread is woken once, when the last of at_least messages has arrived. The wait ends at abs_timeout, a time of the clock
 * CLOCK_REALTIME. NULL means no limit. With a time in the past, the call only checks.
 *
 * Return value:
 * On success, the number of messages that the receiver knows of, which is at least at_least. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EBUSY: another call that receives from the ring has not returned yet.
 * - EFAULT: abs_timeout is at an address that can't be read.
 * - EINTR: a signal handler that was installed without SA_RESTART ran while the call waited.
 * - EINVAL: tv_sec of abs_timeout is negative, or tv_nsec is not from 0 to 999,999,999; or at_least is more than the ring and
 *   its overflow hold.
 * - EPERM: this is a forked child of the process that made the ring.
 * - ETIMEDOUT: the deadline passed before the messages came.
 *
 * If the process dies:
 * The messages are lost with the process; senders get an error.
 *
 * See also:
 * umsg_ring_descriptor(3), umsg_ring_drain(3), umsg_ring_receive(3), umsg_ring_receive_batch(3), umsg_ring_set_waiting(3)
 */
ssize_t umsg_ring_wait(struct umsg_ring *ring, size_t at_least, const struct timespec *abs_timeout);

/*
 * Returns the descriptor of a ring, for poll(2), epoll(7) and io_uring(7).
 *
 * The descriptor is readable while there are messages. From the first call of this function on, a sender makes the descriptor of an empty
 * ring readable. It stays readable until umsg_ring_try_receive(3), umsg_ring_receive_batch(3) or umsg_ring_drain(3) has found the ring
 * empty. A program that polls with EPOLLET repeats one of these calls until it reports an empty ring: by EAGAIN, or by 0. Otherwise
 * messages may remain without a further edge, such as those that came while umsg_ring_drain(3) ran.
 *
 * The descriptor belongs to the ring: the program must not read, write or close it.
 *
 * Return value:
 * On success, the descriptor, the same each time. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EBUSY: a call that receives from the ring has not returned yet.
 * - EPERM: this is a forked child of the process that made the ring.
 *
 * If the process dies:
 * The system closes the descriptor.
 *
 * See also:
 * umsg_ring_drain(3), umsg_ring_try_receive(3), umsg_ring_wait(3), poll(2), epoll(7)
 */
int umsg_ring_descriptor(struct umsg_ring *ring);

/*
 * Chooses how the receiver of a ring waits.
 *
 * waiting is one of UMSG_WAITING_ADAPTIVE, UMSG_WAITING_BLOCKING and UMSG_WAITING_SPINNING, which umsg_mq_set_waiting(3) describes.
 * umsg_ring_status(3) shows the CPU time that waiting costs.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EBUSY: a call that receives from the ring has not returned yet.
 * - EINVAL: waiting is not one of the three.
 * - EPERM: this is a forked child of the process that made the ring.
 *
 * If the process dies:
 * The choice ends with the process.
 *
 * See also:
 * umsg_mq_set_waiting(3), umsg_ring_create(3), umsg_ring_wait(3)
 */
int umsg_ring_set_waiting(struct umsg_ring *ring, int waiting);

/* ---- Rings: the senders that the receiver accepts ---- */

/*
 * A function that decides whether the receiver wants the messages of a sender; it returns 0 if not. Calls that receive messages call this
 * function.
 */
typedef int (*umsg_ring_filter)(uint32_t pid, uint32_t index, void *argument);

/*
 * Enables a ring that was created with UMSG_RING_DISABLED: it accepts senders from now on.
 *
 * Senders that the ring admits see the caller's earlier writes. An enabled or closed ring stays unchanged.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EBUSY: a call that receives from the ring has not returned yet.
 * - EPERM: this is a forked child of the process that made the ring.
 *
 * If the process dies:
 * Senders get an error that says that the owner is dead.
 *
 * See also:
 * umsg_ring_close(3), umsg_ring_create(3)
 */
int umsg_ring_enable(struct umsg_ring *ring);

/*
 * Closes a ring for senders.
 *
 * Their sends fail with EPIPE from now on. Messages that were already sent can still be received. Use calls that do not wait, because a call
 * that waits never returns once the ring is empty.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EBUSY: a call that receives from the ring has not returned yet.
 * - EPERM: this is a forked child of the process that made the ring.
 *
 * If the process dies:
 * Senders get an error that says that the owner is dead.
 *
 * See also:
 * umsg_ring_enable(3), umsg_ring_free(3)
 */
int umsg_ring_close(struct umsg_ring *ring);

/*
 * Chooses the users whose messages a ring's receiver gets.
 *
 * From now on, each receive calls accept with the sender of each message and with argument. If accept returns 0, the message is
 * dropped and counted: umsg_ring_refused(3). Before the receive, such a message counts as present. NULL accepts all senders again.
 * accept must return, and must not receive from the ring. Any thread that receives calls it.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EBUSY: a call that receives from the ring has not returned yet.
 * - EPERM: this is a forked child of the process that made the ring.
 *
 * If the process dies:
 * The choice ends with the process.
 *
 * See also:
 * umsg_ring_receive(3), umsg_ring_refused(3), umsg_ring_tag(3)
 */
int umsg_ring_accept_only(struct umsg_ring *ring, umsg_ring_filter accept, void *argument);

/*
 * Returns how many messages of a ring were dropped because of their senders.
 *
 * The number counts the messages that umsg_ring_accept_only(3) has dropped in this process.
 *
 * Return value:
 * On success, their number. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EBUSY: a call that receives from the ring has not returned yet.
 * - EPERM: this is a forked child of the process that made the ring.
 *
 * If the process dies:
 * The count ends with the process.
 *
 * See also:
 * umsg_ring_accept_only(3), umsg_ring_status(3)
 */
int64_t umsg_ring_refused(struct umsg_ring *ring);

/* ---- Rings: the status of a ring ---- */

/* The status of a ring, without its messages. Counts begin with the creation of the ring. */
struct umsg_ring_status {
    /* The present number of messages. */
    uint64_t messages;
    /* The number of these messages that are beyond entries. */
    uint64_t overflowing;
    /* The number of messages that the ring holds without overflow. */
    uint32_t entries;
    /* The number of messages that the overflow holds. */
    uint32_t overflow;
    /* The longest payload, in bytes. */
    uint64_t longest;
    /* Process id of the owner. */
    uint32_t owner;
    /* 1 if that process lives, as far as is known; else 0. */
    uint32_t owner_alive;
    /* 1 if the ring accepts senders, else 0. */
    uint32_t enabled;
    /* 1 if the ring was closed, else 0. */
    uint32_t closed;
    /* Permission bits. */
    uint32_t mode;
    /* The number of senders that were made. */
    uint32_t senders;
    /* The time of the ring's creation, in nanoseconds since 1970. */
    int64_t created;
    /* Bytes of memory in use. */
    uint64_t memory;
    /* Threads that wait for room. */
    uint64_t blocked_senders;
    /* Sends that found no room and waited. */
    uint64_t sends_blocked;
    /* Messages that umsg_ring_send_or_drop has dropped. */
    uint64_t dropped;
    /* The number of times that the receiver went to sleep. */
    uint64_t slept;
    /* Waits of the receiver that ended while it was still spinning. */
    uint64_t spun;
    /* The time that the receiver spun, in nanoseconds: CPU time, unless others ran in its place. */
    uint64_t time_spun;
    /* The time that the receiver slept, in nanoseconds. Each sleep costs some microseconds of CPU time. */
    uint64_t time_asleep;
    /* Repairs after a process died in the middle of a call. */
    uint64_t repairs;
    /* 1 if a call has found the ring's memory corrupted, with values that no operation writes; otherwise 0. */
    uint64_t damaged;
};

/* The identity of a sender. */
struct umsg_ring_tag {
    /* Process id. */
    uint32_t pid;
    /* The sender's number, unique among the senders of the ring. */
    uint32_t index;
};

/*
 * Gets the complete status of a ring.
 *
 * size is sizeof(struct umsg_ring_status): a program that was compiled with an older umsg.h has a shorter structure, and gets the
 * members that it knows. In a program that was compiled with a newer umsg.h, the members that this library does not know are set to 0.
 * The function may be called while another thread receives.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: ring is NULL, or can't be the address of a ring.
 * - EFAULT: status is at an address that can't be written.
 *
 * If the process dies:
 * The call changes nothing.
 *
 * See also:
 * umsg(1), umsg_ring_refused(3), umsg_ring_sender_status(3), umsg_ring_wait(3)
 */
int umsg_ring_status(struct umsg_ring *ring, struct umsg_ring_status *status, size_t size);

/*
 * Gets the complete status of the ring of a sender.
 *
 * Does the same as umsg_ring_status(3), for a sender.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: sender is NULL, or can't be the address of a sender.
 * - EFAULT: status is at an address that can't be written.
 *
 * If the process dies:
 * The call changes nothing.
 *
 * See also:
 * umsg(1), umsg_ring_send(3), umsg_ring_status(3)
 */
int umsg_ring_sender_status(struct umsg_ring_sender *sender,
                            struct umsg_ring_status *status,
                            size_t size);

/*
 * Gets the tag by which the receiver of a ring identifies a sender.
 *
 * The call writes to tag the values of pid and index that each message has which the calling process sends with sender.
 *
 * Return value:
 * On success, 0. On error, -1 with errno set to indicate the error.
 *
 * Errors:
 * - EBADF: sender is NULL, or can't be the address of a sender.
 * - EFAULT: tag is at an address that can't be written.
 *
 * If the process dies:
 * The call changes nothing.
 *
 * See also:
 * umsg_ring_accept_only(3), umsg_ring_receive(3), umsg_ring_sender_clone(3)
 */
int umsg_ring_tag(struct umsg_ring_sender *sender, struct umsg_ring_tag *tag);

/* ---- Signal handlers that use queues ---- */

/*
 * Defers a signal that arrived inside a call on a queue.
 *
 * A signal handler that uses umsg calls this function first, with the three arguments that the kernel gave to the handler. So the handler
 * must be installed with SA_SIGINFO. If the signal interrupted this thread inside a critical section of a call on a queue, the handler
 * has to return at once: the signal is delivered again at the end of the section, less than a microsecond later. If the handler continues
 * instead, its call may fail with EDEADLK.
 *
 * Signals that an instruction raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT) are
 * never deferred. A handler that doesn't use queues need not call this function. But if a handler that does not call it runs just before a
 * blocking call falls asleep, the call may miss the signal and sleep. After a handler that calls this function, the call always ends with EINTR.
 *
 * Return value:
 * 1 if the handler has to return at once, 0 if it may use queues.
 *
 * Errors:
 * None.
 *
 * If the process dies:
 * The call has no further effect.
 *
 * See also:
 * umsg_mq_send(3), sigaction(2)
 */
int umsg_defer_signal(int signal, const void *info, void *context);

/*
 * Makes calls fail with an error if another process has truncated a queue's file.
 *
 * If a mapped page of a queue has no memory, the kernel raises SIGBUS in the call on the queue, which ends the process. This function
 * installs a handler of SIGBUS for the process. The handler maps pages of zeroes in place of the missing pages; the call on the queue then
 * fails with EBADMSG, and so does every later call in this process. Other causes of SIGBUS go to the handler that was installed before.
 * A handler that is installed later replaces this one. A second call does nothing. Programs under umsg run need not call the function;
 * other programs call it before they open the first queue.
 *
 * A page has no memory if a process has truncated the file; if the page was never used, or was punched out of the file, and the file
 * system or its quota is full; or if the file system, or swap, can't read or write it.
 *
 * The signal still ends the process if the page's memory is broken (BUS_MCEERR_AR), if the file is on hugetlbfs, or if the thread blocks
 * SIGBUS. A full memory control group raises only SIGKILL.
 *
 * Return value:
 * 0, or -1 with errno set.
 *
 * Errors:
 * The errors of sigaction(2).
 *
 * If the process dies:
 * The handler ends with the process. It is not inherited over execve(2).
 *
 * See also:
 * umsg_defer_signal(3), sigaction(2)
 */
int umsg_catch_truncation(void);

/* ---- The log of a program: rare events of its queues ---- */

/*
 * A function that gets the events of the process's queues: level is LOG_WARNING, LOG_INFO or LOG_DEBUG of syslog(3), and text a line
 * without a line feed, which is valid during the call.
 */
typedef void (*umsg_log)(int level, const char *text, void *argument);

/*
 * Sets a function that gets rare events of the process's queues, for the log of the program.
 *
 * The events are: a process died inside a queue, and the library repaired the queue; a process died with a lease or a reservation; a thread died
 * while it waited; a message expired; a queue is corrupted; a call waited for a second or longer. Their levels are LOG_WARNING, but LOG_INFO for
 * expired messages and waits for room, and LOG_DEBUG for waits for a message. An event is found by one of the process's own calls. text names the queue, if
 * it was opened after the first call of this function: "/jobs: process 4711 died with a lease or a reservation".
 *
 * log is called with argument in the thread of a call of the library, which holds no lock of a queue then, at the end of that call or of a later one. If a
 * signal handler of the program calls the library, log may run in the handler. A log of NULL ends the effect of an earlier call. After this
 * function has returned, a call in another thread may still be in the earlier log.
 *
 * log may call the library, also this function. The events of its own calls are dropped, so log is not called again in the same thread before it
 * has returned. It must return: a thread that leaves it by longjmp(3) gets no more events.
 *
 * This function takes no lock, so it may be called in a signal handler, and in a child of fork(2) of a process with several threads. A child has its
 * parent's function.
 *
 * Return value:
 * 0. The call can't fail.
 *
 * Errors:
 * None.
 *
 * If the process dies:
 * The call changes nothing outside of the process.
 *
 * See also:
 * umsg(1), umsg_mq_open(3), syslog(3)
 */
int umsg_set_log(umsg_log log, void *argument);

/* ---- Errors: errno gives the kind, and a text gives the cause ---- */

/*
 * Returns the reason why the calling thread's last failed call failed.
 *
 * errno names the kind of error, and the manual page lists its possible causes. This text states the cause of this error, with names and
 * numbers: which limit, which directory, and what to do. The text is in English and has no full stop or line feed at its end. A call that
 * succeeds does not change it.
 *
 * Return value:
 * A text, which is never NULL. If no call of this thread has failed, the text is empty. It is valid until the thread calls this function again or
 * ends.
 *
 * Errors:
 * None.
 *
 * If the process dies:
 * The text ends with the process.
 *
 * See also:
 * errno(3), umsg_mq_open(3)
 */
const char *umsg_last_error(void);

/* ---- The version of the library ---- */

/*
 * Returns the version of the library that the program uses.
 *
 * UMSG_VERSION of umsg.h is the version with which the program was compiled. A library of the same major version, from 1.0 on,
 * serves programs that were compiled with an older version.
 *
 * Return value:
 * A text such as "0.1.0", which stays valid.
 *
 * Errors:
 * None.
 *
 * If the process dies:
 * The call has no further effect.
 *
 * See also:
 * umsg_mq_open(3)
 */
const char *umsg_version(void);

#ifdef __cplusplus
}
#endif

#endif
