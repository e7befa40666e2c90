/* AMQP 0-9-1, for RabbitMQ: publisher confirms, persistent messages; consumers acknowledge all of a read at once. */
#include "load.h"

#include <stdlib.h>
#include <string.h>

/* Bytes around a frame's content, and the largest content that we agree on. */
enum { HEAD = 7, AROUND = 8, FRAME_MAX = 131072, CHANNELS = 16 };
enum { METHOD = 1, CONTENT = 2, BODY = 3, HEARTBEAT = 8 };
#define CALL(class, method) ((class) << 16 | (method))
enum {
    START = CALL(10, 10),
    START_OK = CALL(10, 11),
    TUNE = CALL(10, 30),
    TUNE_OK = CALL(10, 31),
    OPEN = CALL(10, 40),
    OPEN_OK = CALL(10, 41),
    CLOSE = CALL(10, 50),
    CHANNEL_OPEN = CALL(20, 10),
    CHANNEL_OPEN_OK = CALL(20, 11),
    CHANNEL_CLOSE = CALL(20, 40),
    DECLARE = CALL(50, 10),
    DECLARE_OK = CALL(50, 11),
    SELECT = CALL(85, 10),
    SELECT_OK = CALL(85, 11),
    QOS = CALL(60, 10),
    QOS_OK = CALL(60, 11),
    CONSUME = CALL(60, 20),
    CONSUME_OK = CALL(60, 21),
    PUBLISH = CALL(60, 40),
    DELIVER = CALL(60, 60),
    ACK = CALL(60, 80),
    NACK = CALL(60, 120),
};

/* Confirms may overtake each other by as many as there may be between two of them. */
enum { EARLY = 1 << 20 };

/* Up to which tag everything was confirmed, or came; and which beyond it were confirmed alone, by tag modulo EARLY. */
struct tags {
    uint64_t last;
    unsigned char early[EARLY];
};

static struct tags *tags(struct connection *connection) { return connection->state; }

static void add8(struct buffer *out, int value) {
    char byte = (char)value;
    buffer_add(out, &byte, 1);
}

static void add16(struct buffer *out, uint32_t value) {
    char bytes[2];
    put16(bytes, value);
    buffer_add(out, bytes, 2);
}

static void add32(struct buffer *out, uint32_t value) {
    char bytes[4];
    put32(bytes, value);
    buffer_add(out, bytes, 4);
}

static void add64(struct buffer *out, uint64_t value) {
    add32(out, (uint32_t)(value >> 32));
    add32(out, (uint32_t)value);
}

static void add_short(struct buffer *out, const char *text, size_t size) {
    add8(out, (int)size);
    buffer_add(out, text, size);
}

static void add_long(struct buffer *out, const char *text, size_t size) {
    add32(out, (uint32_t)size);
    buffer_add(out, text, size);
}

/* Begins a frame; what it returns goes to frame_end, which fills in the size. */
static size_t frame(struct buffer *out, int type, int channel) {
    add8(out, type);
    add16(out, (uint32_t)channel);
    add32(out, 0);
    return buffer_size(out);
}

static void frame_end(struct buffer *out, size_t began) {
    put32(buffer_start(out) + began - 4, (uint32_t)(buffer_size(out) - began));
    add8(out, 0xce);
}

static size_t call(struct buffer *out, int channel, uint32_t method) {
    size_t began = frame(out, METHOD, channel);
    add32(out, method);
    return began;
}

static void open_(struct connection *connection) {
    free(connection->state); /* of an earlier attempt */
    connection->state = calloc(1, sizeof(struct tags));
    if (connection->state == NULL) fail("out of memory");
    buffer_add(&connection->out, "AMQP\0\0\x09\x01", 8);
}

static void start_ok(struct buffer *out) {
    size_t began = call(out, 0, START_OK);
    add32(out, 0); /* no properties */
    add_short(out, "PLAIN", 5);
    add_long(out, "\0guest\0guest", 12);
    add_short(out, "en_US", 5);
    frame_end(out, began);
}

static void tune_ok_and_open(struct buffer *out) {
    size_t began = call(out, 0, TUNE_OK);
    add16(out, CHANNELS);
    add32(out, FRAME_MAX);
    add16(out, 0); /* no heartbeats */
    frame_end(out, began);
    began = call(out, 0, OPEN);
    add_short(out, "/", 1);
    add_short(out, "", 0);
    add8(out, 0);
    frame_end(out, began);
}

static void channel_open(struct buffer *out) {
    size_t began = call(out, 1, CHANNEL_OPEN);
    add_short(out, "", 0);
    frame_end(out, began);
}

/* A durable queue of the kind that --variant names. */
static void declare(struct connection *connection) {
    struct buffer *out = &connection->out;
    size_t kind = strlen(options.variant), began = call(out, 1, DECLARE);
    add16(out, 0);
    add_short(out, connection->queue->name, connection->queue->name_length);
    add8(out, 2); /* durable */
    add32(out, (uint32_t)(1 + 12 + 1 + 4 + kind));
    add_short(out, "x-queue-type", 12);
    add8(out, 'S');
    add_long(out, options.variant, kind);
    frame_end(out, began);
}

static void select_confirms(struct buffer *out) {
    size_t began = call(out, 1, SELECT);
    add8(out, 0);
    frame_end(out, began);
}

static void consume(struct connection *connection) {
    struct buffer *out = &connection->out;
    size_t began = call(out, 1, QOS);
    add32(out, 0);
    add16(out, options.window);
    add8(out, 0);
    frame_end(out, began);
    began = call(out, 1, CONSUME);
    add16(out, 0);
    add_short(out, connection->queue->name, connection->queue->name_length);
    add_short(out, "c", 1);
    add8(out, 0); /* acknowledged, not exclusive */
    add32(out, 0);
    frame_end(out, began);
}

static void publish(struct connection *connection, uint64_t number) {
    struct buffer *out = &connection->out;
    size_t began = call(out, 1, PUBLISH);
    add16(out, 0);
    add_short(out, "", 0);
    add_short(out, connection->queue->name, connection->queue->name_length);
    add8(out, 0);
    frame_end(out, began);
    began = frame(out, CONTENT, 1);
    add32(out, 60 << 16);
    add64(out, options.size);
    add16(out, 0x1000); /* of the properties only this one: */
    add8(out, 2);       /* delivery mode, persistent */
    frame_end(out, began);
    began = frame(out, BODY, 1);
    message_add(out, number);
    frame_end(out, began);
}

static uint64_t get64(const char *at) { return (uint64_t)get32(at) << 32 | get32(at + 4); }

/* Goes on to the next tag; returns whether it was confirmed already. */
static int take_early(struct tags *known) {
    unsigned char *next = &known->early[++known->last % EARLY];
    int early = *next;
    *next = 0;
    return early;
}

static void acked(struct connection *connection, const char *at) {
    struct tags *known = tags(connection);
    uint64_t tag = get64(at);
    uint32_t count = 0;
    if (tag - known->last > EARLY) fail("RabbitMQ: a confirm is %u messages early", EARLY);
    if (at[8] & 1) { /* all up to this one */
        while (known->last < tag) count += !take_early(known);
    } else {
        known->early[tag % EARLY] = 1;
        count = 1;
        while (known->early[(known->last + 1) % EARLY]) take_early(known);
    }
    confirmed(connection, count);
}

static void said_no(const char *at, size_t size) {
    size_t text = (unsigned char)at[2];
    fail("RabbitMQ: %u %.*s", get16(at), (int)(text < size ? text : size), at + 3);
}

static void called(struct connection *connection, uint32_t method, const char *at, size_t size) {
    switch (method) {
    case START: start_ok(&connection->out); break;
    case TUNE: tune_ok_and_open(&connection->out); break;
    case OPEN_OK: channel_open(&connection->out); break;
    case CHANNEL_OPEN_OK: declare(connection); break;
    case DECLARE_OK:
        if (connection->role & PRODUCER) select_confirms(&connection->out);
        else consume(connection);
        break;
    case SELECT_OK:
    case CONSUME_OK: connection_ready(connection); break;
    case QOS_OK: break;
    case ACK: acked(connection, at); break;
    case DELIVER: tags(connection)->last = get64(at + 1 + (unsigned char)at[0]); break;
    case NACK: fail("RabbitMQ: a message was refused");
    case CLOSE:
    case CHANNEL_CLOSE: said_no(at, size); break;
    default: fail("RabbitMQ: method %u.%u was not expected", method >> 16, method & 0xffff);
    }
    touch(connection);
}

static void input(struct connection *connection) {
    struct buffer *in = &connection->in;
    while (buffer_size(in) >= HEAD) {
        const char *at = buffer_start(in);
        size_t size = get32(at + 3);
        if (at[0] == 'A') fail("RabbitMQ: another version of AMQP is spoken here");
        if (buffer_size(in) < size + AROUND) return;
        if (at[0] == METHOD) called(connection, get32(at + HEAD), at + HEAD + 4, size - 4);
        if (at[0] == BODY) delivered(connection, at + HEAD, size);
        buffer_take(in, size + AROUND);
    }
}

/* Everything that a read has brought is acknowledged at once. */
static void read_done(struct connection *connection) {
    struct buffer *out = &connection->out;
    if (!connection->held || connection->role & PRODUCER) return;
    size_t began = call(out, 1, ACK);
    add64(out, tags(connection)->last);
    add8(out, 1);
    frame_end(out, began);
    settled(connection, connection->held);
}

const struct protocol amqp = {.name = "amqp", .confirms = 1, .open = open_, .input = input, .publish = publish,
                              .read_done = read_done};
