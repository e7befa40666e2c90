/* Redis Streams: XADD; XREADGROUP with COUNT, then XACK and XDEL of all that came in one reply. */
#include "redis.h"

#include <stdio.h>
#include <string.h>

static void open_(struct connection *connection) {
    snprintf(connection->note, sizeof connection->note, "c%u", connection->index);
    command(&connection->out, 6, "XGROUP", "CREATE", connection->queue->name, "g", "0", "MKSTREAM");
    expect(connection, SETUP, 0);
}

static void publish(struct connection *connection, uint64_t number) {
    command_head(&connection->out, 5);
    argument(&connection->out, "XADD", 4);
    argument(&connection->out, connection->queue->name, connection->queue->name_length);
    argument(&connection->out, "*", 1);
    argument(&connection->out, "m", 1);
    argument_message(&connection->out, number);
    expect(connection, PUBLISH, 1);
}

static void receive(struct connection *connection, uint32_t count) {
    char text[16];
    snprintf(text, sizeof text, "%u", count);
    command(&connection->out, 9, "XREADGROUP", "GROUP", "g", connection->note, "COUNT", text, "STREAMS",
            connection->queue->name, ">");
    expect(connection, RECEIVE, count);
}

/* XACK and XDEL of what a reply had: the entries are walked once for each, so nothing is kept of them. */
static void settle(struct connection *connection, const char *entries, uint32_t count) {
    static const struct { const char *name; unsigned before; } steps[] = {{"XACK", 3}, {"XDEL", 2}};
    for (int step = 0; step < 2; step++) {
        const char *at = entries;
        command_head(&connection->out, steps[step].before + count);
        argument(&connection->out, steps[step].name, 4);
        argument(&connection->out, connection->queue->name, connection->queue->name_length);
        if (step == 0) argument(&connection->out, "g", 1);
        for (uint32_t i = 0; i < count; i++) {
            struct reply entry, id, fields, skipped;
            at = reply_read(reply_read(reply_read(at, &entry), &id), &fields);
            for (long long j = 0; j < fields.number; j++) at = reply_read(at, &skipped);
            argument(&connection->out, id.text, id.size);
        }
        expect(connection, SETTLE, step == 0 ? 0 : count);
    }
}

/* *1 *2 $name *N then N times: *2 $id *2 $m $payload. */
static void came(struct connection *connection, const struct reply *reply, const char *at, uint32_t asked) {
    struct reply pair, name, list;
    if (reply->type != '*' || reply->number < 1) return unanswered(connection, asked);
    at = reply_read(reply_read(reply_read(at, &pair), &name), &list);
    const char *entries = at;
    for (long long i = 0; i < list.number; i++) {
        struct reply entry, id, fields, field, payload;
        at = reply_read(reply_read(reply_read(at, &entry), &id), &fields);
        at = reply_read(reply_read(at, &field), &payload);
        delivered(connection, payload.text, payload.size);
    }
    if (list.number < asked) unanswered(connection, asked - (uint32_t)list.number);
    settle(connection, entries, (uint32_t)list.number);
}

static void input(struct connection *connection) {
    struct reply reply;
    const char *at;
    while ((at = next_reply(connection, &reply))) {
        uint32_t count;
        enum expected what = expected(connection, &count);
        if (failed(connection, &reply, "BUSYGROUP")) return;
        if (what == SETUP) connection_ready(connection);
        if (what == PUBLISH) confirmed(connection, 1);
        if (what == RECEIVE) came(connection, &reply, at, count);
        if (what == SETTLE) settled(connection, count);
    }
}

const struct protocol redis_stream = {.name = "redis-stream", .confirms = 1, .asks = 1, .open = open_, .input = input,
                                      .publish = publish, .receive = receive};
