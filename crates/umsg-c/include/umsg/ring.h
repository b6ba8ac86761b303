/*
 * Rings with less code: functions that make the messages and the options for the functions of <umsg.h>.
 *
 *     struct umsg_ring_post post = umsg_ring_post_of(7, "work", 4);
 *     umsg_ring_send(sender, &post);
 */
#ifndef UMSG_RING_H
#define UMSG_RING_H

#include <string.h>

#include <umsg.h>

/* Returns options that are all defaults. Set other values by the names of the members. */
static inline struct umsg_ring_options umsg_ring_defaults(void)
{
    struct umsg_ring_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    return options;
}

/* Returns a message with a payload. The payload may be NULL if len is 0. */
static inline struct umsg_ring_post umsg_ring_post_of(uint64_t user_data, const void *payload,
                                                      size_t len)
{
    struct umsg_ring_post post;
    memset(&post, 0, sizeof post);
    post.user_data = user_data;
    post.payload = payload;
    post.len = len;
    return post;
}

#endif
