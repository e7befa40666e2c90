/* Redis lists: LPUSH; LMOVE to a list of the consumer's own, LREM from it when the message is done with. */
#include "redis.h"

#include <stdio.h>
#include <string.h>

static void open_(struct connection *connection) {
    snprintf(connection->note, sizeof connection->note, "%s:taken:%u", connection->queue->name, connection->index);
    command(&connection->out, 1, "PING");
    expect(connection, SETUP, 0);
}

static void publish(struct connection *connection, uint64_t number) {
    command_head(&connection->out, 3);
    argument(&connection->out, "LPUSH", 5);
    argument(&connection->out, connection->queue->name, connection->queue->name_length);
    argument_message(&connection->out, number);
    expect(connection, PUBLISH, 1);
}

static void receive(struct connection *connection, uint32_t count) {
    for (; count > 0; count--) {
        command(&connection->out, 5, "LMOVE", connection->queue->name, connection->note, "RIGHT", "LEFT");
        expect(connection, RECEIVE, 1);
    }
}

static void settle(struct connection *connection, const struct reply *reply) {
    command_head(&connection->out, 4);
    argument(&connection->out, "LREM", 4);
    argument(&connection->out, connection->note, strlen(connection->note));
    argument(&connection->out, "-1", 2);
    argument(&connection->out, reply->text, reply->size);
    expect(connection, SETTLE, 1);
}

static void moved(struct connection *connection, const struct reply *reply) {
    if (reply->type != '$' || reply->number < 0) return unanswered(connection, 1);
    delivered(connection, reply->text, reply->size);
    settle(connection, reply);
}

static void removed(struct connection *connection, const struct reply *reply) {
    if (reply->number != 1) fail("Redis: LREM removed %lld messages instead of one", reply->number);
    settled(connection, 1);
}

static void input(struct connection *connection) {
    struct reply reply;
    while (next_reply(connection, &reply)) {
        uint32_t count;
        enum expected what = expected(connection, &count);
        if (failed(connection, &reply, NULL)) return;
        if (what == SETUP) connection_ready(connection);
        if (what == PUBLISH) confirmed(connection, 1);
        if (what == RECEIVE) moved(connection, &reply);
        if (what == SETTLE) removed(connection, &reply);
    }
}

const struct protocol redis_list = {.name = "redis-list", .confirms = 1, .asks = 1, .open = open_, .input = input,
                                    .publish = publish, .receive = receive};
