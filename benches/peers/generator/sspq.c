/* SSPQ: docs/protocols/sspq.md. One message at a time on each consumer; a publish has no answer. */
#include "load.h"

enum { HEADER = 8, SEND = 0x5e, RECEIVE = 0xec, CONFIRM = 0xc0 };

static void package(struct buffer *out, int type, int retries, size_t size) {
    char header[HEADER] = {0x55, (char)0x99, (char)type, (char)retries};
    put32(header + 4, (uint32_t)size);
    buffer_add(out, header, HEADER);
}

static void open_(struct connection *connection) {
    if (connection->role & CONSUMER) package(&connection->out, RECEIVE, 0, 0);
    connection_ready(connection);
}

static void publish(struct connection *connection, uint64_t number) {
    package(&connection->out, SEND, 255, options.size);
    message_add(&connection->out, number);
}

static void input(struct connection *connection) {
    struct buffer *in = &connection->in;
    while (buffer_size(in) >= HEADER) {
        const char *at = buffer_start(in);
        size_t size = get32(at + 4);
        if ((unsigned char)at[2] != SEND) fail("SSPQ: the server sent a package of type %02x", (unsigned char)at[2]);
        if (buffer_size(in) < HEADER + size) return;
        delivered(connection, at + HEADER, size);
        buffer_take(in, HEADER + size);
        package(&connection->out, CONFIRM, 0, 0);
        package(&connection->out, RECEIVE, 0, 0);
        settled(connection, 1);
    }
}

const struct protocol sspq = {.name = "sspq", .waits_closed = 1, .open = open_, .input = input, .publish = publish};
