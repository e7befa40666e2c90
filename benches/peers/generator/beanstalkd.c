/* beanstalkd: put; reserve and delete, one job each. */
#include "load.h"

#include <stdlib.h>
#include <string.h>

/* The longest time a job may be out, in seconds. */
enum { TIME_TO_RUN = 120 };

static void open_(struct connection *connection) {
    const char *verb = connection->role & PRODUCER ? "use" : "watch";
    buffer_text(&connection->out, "%s %s\r\n", verb, connection->queue->name);
}

static void publish(struct connection *connection, uint64_t number) {
    buffer_text(&connection->out, "put 0 0 %d %zu\r\n", TIME_TO_RUN, options.size);
    message_add(&connection->out, number);
    buffer_add(&connection->out, "\r\n", 2);
}

static void receive(struct connection *connection, uint32_t count) {
    for (; count > 0; count--) buffer_add(&connection->out, "reserve\r\n", 9);
}

static int begins(const char *line, const char *word) { return strncmp(line, word, strlen(word)) == 0; }

/* RESERVED ID BYTES, then the job. Returns the size of all, or 0 if it is not whole. */
static size_t reserved(struct connection *connection, const char *line, size_t length) {
    char *after;
    unsigned long long id = strtoull(line + 9, &after, 10);
    size_t size = strtoul(after, NULL, 10), all = length + size + 2;
    if (buffer_size(&connection->in) < all) return 0;
    delivered(connection, line + length, size);
    buffer_text(&connection->out, "delete %llu\r\n", id);
    return all;
}

/* Handles one answer; returns its size, or 0 if it is not whole. */
static size_t answer(struct connection *connection, const char *line, size_t length) {
    if (begins(line, "RESERVED ")) return reserved(connection, line, length);
    if (begins(line, "INSERTED ")) confirmed(connection, 1);
    else if (begins(line, "DELETED")) settled(connection, 1);
    else if (begins(line, "USING ") || begins(line, "WATCHING ")) connection_ready(connection);
    else fail("beanstalkd: %.*s", (int)length - 2, line);
    return length;
}

static void input(struct connection *connection) {
    struct buffer *in = &connection->in;
    for (;;) {
        const char *line = buffer_start(in), *end = memchr(line, '\n', buffer_size(in));
        size_t size = end ? answer(connection, line, (size_t)(end + 1 - line)) : 0;
        if (size == 0) return;
        buffer_take(in, size);
    }
}

const struct protocol beanstalkd = {.name = "beanstalkd", .confirms = 1, .asks = 1, .open = open_, .input = input,
                                    .publish = publish, .receive = receive};
