/* NATS JetStream: a work queue in files; publishes are answered, a durable consumer acknowledges each message. */
#define _GNU_SOURCE
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Subscriptions of a connection: answers of the API, answers to publishes, deliveries. */
enum { API = 1, ANSWERS = 2, DELIVERIES = 3 };

/* The inbox of a subscription: the connection's own. */
static const char *inbox(const struct connection *connection, int which) {
    static char text[64];
    snprintf(text, sizeof text, "_INBOX.%d.%td.%d", getpid(), connection - connections, which);
    return text;
}

static void subscribe(struct connection *connection, int which) {
    buffer_text(&connection->out, "SUB %s %d\r\n", inbox(connection, which), which);
}

static void ask(struct connection *connection, const char *subject, const char *json) {
    buffer_text(&connection->out, "PUB %s %s %zu\r\n%s\r\n", subject, inbox(connection, API), strlen(json), json);
}

static void create_stream(struct connection *connection) {
    char subject[128], json[512];
    const char *name = connection->queue->name;
    snprintf(subject, sizeof subject, "$JS.API.STREAM.CREATE.%s", name);
    snprintf(json, sizeof json,
             "{\"name\": \"%s\", \"subjects\": [\"%s\"], \"retention\": \"workqueue\", \"storage\": \"file\", "
             "\"num_replicas\": 1, \"max_consumers\": -1, \"max_msgs\": -1, \"max_bytes\": -1, \"max_age\": 0}",
             name, name);
    ask(connection, subject, json);
}

static void create_consumer(struct connection *connection) {
    char subject[128], json[512];
    const char *name = connection->queue->name;
    snprintf(subject, sizeof subject, "$JS.API.CONSUMER.DURABLE.CREATE.%s.c", name);
    snprintf(json, sizeof json,
             "{\"stream_name\": \"%s\", \"config\": {\"durable_name\": \"c\", \"deliver_subject\": \"%s\", "
             "\"deliver_policy\": \"all\", \"ack_policy\": \"explicit\", \"max_ack_pending\": %u}}",
             name, inbox(connection, DELIVERIES), options.window);
    ask(connection, subject, json);
}

static void open_(struct connection *connection) {
    connection->step = 0; /* how many answers of the API have come */
    buffer_text(&connection->out, "CONNECT {\"verbose\": false, \"pedantic\": false, \"echo\": true, \"lang\": \"c\", "
                                  "\"version\": \"1\", \"protocol\": 1}\r\n");
    subscribe(connection, API);
    subscribe(connection, connection->role & PRODUCER ? ANSWERS : DELIVERIES);
    create_stream(connection);
}

static void publish(struct connection *connection, uint64_t number) {
    if (connection->note[0] == 0)
        snprintf(connection->note, sizeof connection->note, "PUB %s %s %zu\r\n", connection->queue->name,
                 inbox(connection, ANSWERS), options.size);
    buffer_add(&connection->out, connection->note, strlen(connection->note));
    message_add(&connection->out, number);
    buffer_add(&connection->out, "\r\n", 2);
}

static void api_answered(struct connection *connection, const char *text, size_t size) {
    const char *error = memmem(text, size, "\"error\"", 7);
    /* 503: JetStream is not up yet. */
    if (error && memmem(text, size, "\"code\":503", 10)) return try_again(connection);
    if (error) fail("NATS: %.*s", (int)size, text);
    connection->step++;
    if (connection->step == 1 && connection->role & CONSUMER) return create_consumer(connection);
    connection_ready(connection);
}

static void came(struct connection *connection, const char *reply, size_t reply_size, const char *payload, size_t size) {
    delivered(connection, payload, size);
    buffer_add(&connection->out, "PUB ", 4);
    buffer_add(&connection->out, reply, reply_size);
    buffer_add(&connection->out, " 4\r\n+ACK\r\n", 10);
    settled(connection, 1);
}

static void answered(struct connection *connection, const char *text, size_t size) {
    if (memmem(text, size, "\"error\"", 7)) fail("NATS: %.*s", (int)size, text);
    confirmed(connection, 1);
}

/* MSG SUBJECT SID [REPLY] SIZE, then the payload. Returns the size of all, or 0 if it is not whole. */
static size_t message(struct connection *connection, const char *line, size_t length) {
    const char *words[8] = {0}, *end = line + length - 2;
    int count = 0;
    for (const char *at = line; at < end && count < 8; at++)
        if (*at != ' ' && (at == line || at[-1] == ' ')) words[count++] = at;
    if (count < 4) fail("NATS: %.*s", (int)length - 2, line);
    size_t size = strtoul(words[count - 1], NULL, 10), all = length + size + 2;
    if (buffer_size(&connection->in) < all) return 0;
    int which = atoi(words[2]);
    if (which == API) api_answered(connection, line + length, size);
    if (which == ANSWERS) answered(connection, line + length, size);
    if (which == DELIVERIES)
        came(connection, words[3], (size_t)(words[count - 1] - words[3]) - 1, line + length, size);
    return all;
}

static size_t handle(struct connection *connection, const char *line, size_t length) {
    if (strncmp(line, "MSG ", 4) == 0) return message(connection, line, length);
    if (strncmp(line, "PING", 4) == 0) buffer_add(&connection->out, "PONG\r\n", 6);
    if (strncmp(line, "-ERR", 4) == 0) fail("NATS: %.*s", (int)length - 2, line);
    touch(connection);
    return length;
}

static void input(struct connection *connection) {
    struct buffer *in = &connection->in;
    for (;;) {
        const char *line = buffer_start(in), *end = memchr(line, '\n', buffer_size(in));
        size_t size = end ? handle(connection, line, (size_t)(end + 1 - line)) : 0;
        if (size == 0 || buffer_size(in) < size) return; /* not whole; or the connection has begun anew */
        buffer_take(in, size);
    }
}

const struct protocol nats = {.name = "nats", .confirms = 1, .open = open_, .input = input, .publish = publish};
