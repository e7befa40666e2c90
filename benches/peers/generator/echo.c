/* Bytes that come back as they were: what a round trip costs without a broker behind it. */
#include "load.h"

static void open_(struct connection *connection) { connection_ready(connection); }

static void input(struct connection *connection) {
    size_t whole = buffer_size(&connection->in) / options.size;
    if (whole == 0) return;
    buffer_take(&connection->in, whole * options.size);
    confirmed(connection, (uint32_t)whole);
}

static void publish(struct connection *connection, uint64_t number) { message_add(&connection->out, number); }

const struct protocol echo = {.name = "echo", .confirms = 1, .open = open_, .input = input, .publish = publish};
