/* What the parts of the load generator share: connections, queues, counters, and the table of wire protocols. */
#ifndef LOAD_H
#define LOAD_H

#include <stddef.h>
#include <stdint.h>

/* What a connection does: one of them, or both. */
enum role { PRODUCER = 1, CONSUMER = 2 };

/* Bytes that grow at the end and are taken from the beginning. */
struct buffer {
    char *data;
    size_t begin, end, room;
};

/* What answers are waited for, in order: small numbers that only the protocol understands. */
struct fifo {
    uint32_t *items;
    size_t first, count, room;
};

struct connection;

struct queue {
    char name[32];
    size_t name_length;
    uint64_t available; /* confirmed and not requested: no consumer polls an empty queue */
    uint64_t pending;   /* published and not settled */
    struct connection **members;
    size_t member_count;
};

struct connection {
    int fd;
    int role;
    unsigned index;  /* among those of its role */
    struct queue *queue;
    struct buffer in, out;
    struct fifo expected;
    int ready, dirty, writable_wanted, closing, finished;
    uint32_t unconfirmed; /* producer: published, and no answer yet */
    uint32_t requested;   /* consumer: asked for, and not there yet */
    uint32_t held;        /* consumer: there, and not known to be settled */
    uint64_t sent_at;     /* producer that sends one at a time: when */
    char note[128];       /* of the protocol's own use: a text that it says again and again */
    void *state;          /* likewise: what it has to remember */
    unsigned step;        /* likewise: how far opening the connection has come */
};

struct protocol {
    const char *name;
    int confirms;     /* a publish is answered */
    int asks;         /* a consumer asks for what is there, instead of being sent it */
    int waits_closed; /* no answer to a publish: all is taken when the server closes what we have half closed */
    void (*open)(struct connection *);                    /* the first bytes; in the end somebody calls connection_ready */
    void (*input)(struct connection *);                   /* takes whole frames out of connection->in */
    void (*publish)(struct connection *, uint64_t number); /* one more message into connection->out */
    void (*receive)(struct connection *, uint32_t count);  /* requests this many */
    void (*read_done)(struct connection *);               /* after each read; may be NULL */
};

/* How much, of what, and how. */
struct options {
    const struct protocol *protocol;
    const char *host;
    unsigned port;
    unsigned producers, consumers, queues, idle;
    size_t size;
    uint64_t count, expect;
    double seconds, warm, timeout, connect_seconds;
    uint32_t unconfirmed, window;
    uint64_t in_flight;
    const char *queue, *variant;
    int first, both;
};

extern struct options options;
extern const struct protocol *const protocols[];

/* buffer.c */
void buffer_room(struct buffer *, size_t);
void buffer_add(struct buffer *, const void *, size_t);
void buffer_text(struct buffer *, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_take(struct buffer *, size_t);
static inline size_t buffer_size(const struct buffer *buffer) { return buffer->end - buffer->begin; }
static inline char *buffer_start(const struct buffer *buffer) { return buffer->data + buffer->begin; }
void fifo_put(struct fifo *, uint32_t);
uint32_t fifo_take(struct fifo *);
void put16(char *, uint32_t);
void put32(char *, uint32_t);
uint32_t get16(const char *);
uint32_t get32(const char *);

/* account.c: what protocols report, and what is made of it */
void connection_ready(struct connection *);
void published(struct connection *);
void confirmed(struct connection *, uint32_t count);
void unanswered(struct connection *, uint32_t count); /* asked for, and nothing was there */
void delivered(struct connection *, const char *payload, size_t size);
void settled(struct connection *, uint32_t count);
void message_add(struct buffer *, uint64_t number); /* the payload with this number */

struct account {
    uint64_t published, confirmed, delivered, distinct, repeated, settled;
    unsigned ready;
    uint64_t began, warmed, stopped, ended, first_delivery; /* nanoseconds of the monotonic clock */
    uint64_t done_when_warmed, done_when_stopped;
    double cpu_when_warmed, cpu_when_stopped;
    uint64_t reads, writes;
};
extern struct account account;

void account_open(void);
void account_step(uint64_t now);
int account_publishing(void);
int account_over(void);
void account_report(void);

/* loop.c */
extern struct connection *connections;
extern size_t connection_count;
uint64_t clock_now(void);
void connections_open(void);
void loop_run(void);
void touch(struct connection *);
void touch_queue(struct queue *);
void try_again(struct connection *); /* the server is not ready: close, and connect again */
void idle_open(void);
unsigned idle_lost(void);

/* fail.c */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void misuse(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
