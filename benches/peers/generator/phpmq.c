/* PHPMQ: docs/protocols/phpmq.md, compact and 32 wide. A publish has no answer; a window of messages is sent to consumers. */
#include "load.h"

#include <string.h>

enum { HEADER = 8, PACKET = 32 };

static void packet(struct buffer *out, const char *kind, const char *content, size_t size) {
    char header[PACKET];
    memset(header, '0', PACKET);
    memcpy(header, kind, 3);
    for (size_t at = PACKET, rest = size; rest > 0; rest /= 10) header[--at] = (char)('0' + rest % 10);
    buffer_add(out, header, PACKET);
    if (content) buffer_add(out, content, size);
}

static void begin(struct connection *connection, const char *header) {
    buffer_add(&connection->out, header, HEADER);
    packet(&connection->out, "P01", connection->queue->name, connection->queue->name_length);
}

static void open_(struct connection *connection) {
    if (connection->role & CONSUMER) {
        struct buffer number = {0};
        buffer_text(&number, "%u", options.window);
        begin(connection, "H0100202");
        packet(&connection->out, "P04", number.data, buffer_size(&number));
    }
    connection_ready(connection);
}

static void publish(struct connection *connection, uint64_t number) {
    begin(connection, "H0100102");
    packet(&connection->out, "P02", NULL, options.size);
    message_add(&connection->out, number);
}

/* The size in a packet header. Only its last nine digits are looked at: nothing here is larger. */
static size_t size_at(const char *header) {
    size_t size = 0;
    for (int i = PACKET - 9; i < PACKET; i++) size = size * 10 + (size_t)(header[i] - '0');
    return size;
}

static void dispatched(struct connection *connection, const char *payload, size_t size, const char *id, size_t id_size) {
    if (payload == NULL || id == NULL) fail("PHPMQ: a dispatch without content or ID");
    delivered(connection, payload, size);
    begin(connection, "H0100402");
    packet(&connection->out, "P03", id, id_size);
    settled(connection, 1);
}

/* Takes one dispatch, or returns 0 if it is not whole. */
static int dispatch(struct connection *connection) {
    struct buffer *in = &connection->in;
    const char *start = buffer_start(in), *end = start + buffer_size(in), *at = start + HEADER;
    const char *payload = NULL, *id = NULL;
    size_t payload_size = 0, id_size = 0;
    if (end - start < HEADER) return 0;
    if (memcmp(start, "H01003", 6) != 0) fail("PHPMQ: the server sent %.8s", start);
    for (int packets = (start[6] - '0') * 10 + start[7] - '0'; packets > 0; packets--) {
        if (end - at < PACKET) return 0;
        size_t size = size_at(at);
        if ((size_t)(end - at) < PACKET + size) return 0;
        if (at[2] == '2') payload = at + PACKET, payload_size = size;
        if (at[2] == '3') id = at + PACKET, id_size = size;
        at += PACKET + size;
    }
    dispatched(connection, payload, payload_size, id, id_size);
    buffer_take(in, (size_t)(at - start));
    return 1;
}

static void input(struct connection *connection) {
    while (dispatch(connection)) continue;
}

const struct protocol phpmq = {.name = "phpmq", .waits_closed = 1, .open = open_, .input = input, .publish = publish};
