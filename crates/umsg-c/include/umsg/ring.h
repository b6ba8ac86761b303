/*
 * Rings with less to write: messages and options as C makes them best, beside the functions of <umsg.h>.
 *
 *     struct umsg_ring_post post = umsg_ring_post_of(7, "work", 4);
 *     umsg_ring_send(sender, &post);
 */
#ifndef UMSG_RING_H
#define UMSG_RING_H

#include <string.h>

#include <umsg.h>

/* Options that are all defaults, to be changed by name. */
static inline struct umsg_ring_options umsg_ring_defaults(void)
{
    struct umsg_ring_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    return options;
}

/* A message with a payload, which may be NULL if it has no bytes. */
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
