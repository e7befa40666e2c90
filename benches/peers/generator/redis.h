/* What the two ways of queueing in Redis share: RESP, its requests and replies. */
#ifndef REDIS_H
#define REDIS_H

#include "load.h"

enum expected { SETUP, PUBLISH, RECEIVE, SETTLE };

struct reply {
    char type;
    const char *text;
    size_t size;
    long long number; /* of an integer; of an array, how many follow */
};

void command(struct buffer *, unsigned count, ...); /* texts that end with a zero */
void command_head(struct buffer *, unsigned count);
void argument(struct buffer *, const char *, size_t);
void argument_message(struct buffer *, uint64_t number);
const char *reply_end(const char *at, const char *end);           /* NULL if it is not whole */
const char *reply_read(const char *at, struct reply *);           /* one element of a whole reply; returns the next */
const char *next_reply(struct connection *, struct reply *);      /* NULL if none is whole; else its elements */
void expect(struct connection *, enum expected, uint32_t count);
enum expected expected(struct connection *, uint32_t *count);
int failed(struct connection *, const struct reply *, const char *harmless); /* 1: reconnect */

#endif
