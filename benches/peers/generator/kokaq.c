/* Kokaq: docs/protocols/kokaq.md. Pushes are two-way; a consumer locks and deletes, or pops. */
#include "load.h"

#include <string.h>

enum { HEADER = 12, COMPONENT = 8, UUID = 16 };
enum { CREATE = 0x01, DELETE = 0x02, POP = 0x05, PUSH = 0x07, ACQUIRE = 0x08 };
enum { TAG_PAYLOAD = 1, TAG_METADATA = 2 };
enum { SUCCESS = 0x01, EMPTY = 0x11, EXISTS = 0x13 };

static void request(struct buffer *out, int opcode, int tag) {
    char header[HEADER] = {0x04, 0x20, 0x01, 0x40, 0, 0, 0, 0, (char)opcode, 2, 0, (char)tag};
    buffer_add(out, header, HEADER);
}

static void names(struct connection *connection, size_t payload) {
    char header[COMPONENT] = {0x01, 0x04, 0x20, 0, 0, (char)connection->queue->name_length};
    put16(header + 6, (uint32_t)payload);
    buffer_add(&connection->out, header, COMPONENT);
    buffer_add(&connection->out, connection->queue->name, connection->queue->name_length);
}

static void open_(struct connection *connection) {
    request(&connection->out, CREATE, TAG_PAYLOAD);
    names(connection, 0);
}

static void publish(struct connection *connection, uint64_t number) {
    request(&connection->out, PUSH, TAG_PAYLOAD);
    names(connection, options.size);
    message_add(&connection->out, number);
}

static void ask(struct connection *connection, int opcode, uint32_t count) {
    for (; count > 0; count--) {
        request(&connection->out, opcode, TAG_PAYLOAD);
        names(connection, 0);
    }
}

static void receive_locked(struct connection *connection, uint32_t count) { ask(connection, ACQUIRE, count); }

static void receive_popped(struct connection *connection, uint32_t count) { ask(connection, POP, count); }

static void delete_(struct connection *connection, const char *uuid) {
    static const char metadata[] = {0x02, 0x04, 0x20, 0, 0, 0, 0, 1, 0x05, UUID};
    request(&connection->out, DELETE, TAG_METADATA);
    buffer_add(&connection->out, metadata, sizeof metadata);
    buffer_add(&connection->out, uuid, UUID);
}

struct answer {
    int opcode, status;
    const char *uuid, *payload;
    size_t payload_size;
};

/* Reads the fields of a metadata component; returns where it ends, or NULL if it is not whole. */
static const char *metadata_end(const char *at, const char *end, struct answer *answer) {
    uint32_t fields = get32(at + 4);
    for (at += COMPONENT; fields > 0; fields--) {
        if (end - at < 2 || end - at < 2 + (unsigned char)at[1]) return NULL;
        if (at[0] == 0x05) answer->uuid = at + 2;
        at += 2 + (unsigned char)at[1];
    }
    return at;
}

static const char *payload_end(const char *at, const char *end, struct answer *answer) {
    size_t before = COMPONENT + (unsigned char)at[4] + (unsigned char)at[5];
    answer->payload_size = get16(at + 6);
    answer->payload = at + before;
    return (size_t)(end - at) < before + answer->payload_size ? NULL : at + before + answer->payload_size;
}

/* Reads one answer; returns where it ends, or NULL if it is not whole. */
static const char *answer_end(const char *at, const char *end, struct answer *answer) {
    if (end - at < HEADER) return NULL;
    if (at[0] != 0x04 || at[1] != 0x20) fail("Kokaq: an answer begins with %02x %02x", at[0], at[1]);
    int components = (at[11] & 1) + (at[11] >> 1 & 1);
    answer->opcode = at[8];
    answer->status = at[9];
    for (at += HEADER; components > 0 && at; components--) {
        if (end - at < COMPONENT) return NULL;
        at = at[4] || at[5] ? payload_end(at, end, answer) : metadata_end(at, end, answer);
    }
    return at;
}

static void came(struct connection *connection, const struct answer *answer) {
    if (answer->uuid == NULL || answer->payload == NULL) fail("Kokaq: a message without UUID or payload");
    delivered(connection, answer->payload, answer->payload_size);
    if (answer->opcode == POP) settled(connection, 1);
    else delete_(connection, answer->uuid);
}

static void handle(struct connection *connection, const struct answer *answer) {
    int asked = answer->opcode == ACQUIRE || answer->opcode == POP;
    if (asked && answer->status == EMPTY) return unanswered(connection, 1);
    if (answer->opcode == CREATE && answer->status == EXISTS) return connection_ready(connection);
    if (answer->status != SUCCESS)
        fail("Kokaq: the answer to request %02x is status %02x", answer->opcode, answer->status);
    if (answer->opcode == CREATE) connection_ready(connection);
    else if (answer->opcode == PUSH) confirmed(connection, 1);
    else if (answer->opcode == DELETE) settled(connection, 1);
    else came(connection, answer);
}

static void input(struct connection *connection) {
    for (;;) {
        struct buffer *in = &connection->in;
        struct answer answer = {0};
        const char *start = buffer_start(in), *end = answer_end(start, start + buffer_size(in), &answer);
        if (end == NULL) return;
        handle(connection, &answer);
        buffer_take(in, (size_t)(end - start));
    }
}

const struct protocol kokaq = {.name = "kokaq", .confirms = 1, .asks = 1, .open = open_, .input = input,
                               .publish = publish, .receive = receive_locked};
const struct protocol kokaq_pop = {.name = "kokaq-pop", .confirms = 1, .asks = 1, .open = open_, .input = input,
                                   .publish = publish, .receive = receive_popped};
