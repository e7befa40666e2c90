/* RESP, the protocol of Redis. */
#include "redis.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void line(struct buffer *out, char type, size_t number) {
    char text[32];
    size_t at = sizeof text;
    text[--at] = '\n';
    text[--at] = '\r';
    do text[--at] = (char)('0' + number % 10);
    while (number /= 10);
    text[--at] = type;
    buffer_add(out, text + at, sizeof text - at);
}

void command_head(struct buffer *out, unsigned count) { line(out, '*', count); }

void argument(struct buffer *out, const char *bytes, size_t size) {
    line(out, '$', size);
    buffer_add(out, bytes, size);
    buffer_add(out, "\r\n", 2);
}

void argument_message(struct buffer *out, uint64_t number) {
    line(out, '$', options.size);
    message_add(out, number);
    buffer_add(out, "\r\n", 2);
}

void command(struct buffer *out, unsigned count, ...) {
    va_list texts;
    va_start(texts, count);
    command_head(out, count);
    for (; count > 0; count--) {
        const char *text = va_arg(texts, const char *);
        argument(out, text, strlen(text));
    }
    va_end(texts);
}

static const char *line_end(const char *at, const char *end) {
    const char *found = memchr(at, '\n', (size_t)(end - at));
    return found ? found + 1 : NULL;
}

const char *reply_end(const char *at, const char *end) {
    const char *next = line_end(at, end);
    if (next == NULL) return NULL;
    long long number = at[0] == '$' || at[0] == '*' ? strtoll(at + 1, NULL, 10) : 0;
    if (at[0] == '$') {
        if (number < 0) return next;
        return end - next < number + 2 ? NULL : next + number + 2;
    }
    for (; at[0] == '*' && number > 0 && next; number--) next = next < end ? reply_end(next, end) : NULL;
    return next;
}

const char *reply_read(const char *at, struct reply *reply) {
    const char *next = strchr(at, '\n') + 1;
    reply->type = at[0];
    reply->text = at + 1;
    reply->size = (size_t)(next - at) - 3;
    reply->number = reply->type == '+' || reply->type == '-' ? 0 : strtoll(at + 1, NULL, 10);
    if (reply->type != '$' || reply->number < 0) return next;
    reply->text = next;
    reply->size = (size_t)reply->number;
    return next + reply->size + 2;
}

const char *next_reply(struct connection *connection, struct reply *reply) {
    struct buffer *in = &connection->in;
    if (buffer_size(in) == 0) return NULL;
    const char *start = buffer_start(in), *end = reply_end(start, start + buffer_size(in));
    if (end == NULL) return NULL;
    buffer_take(in, (size_t)(end - start));
    return reply_read(start, reply);
}

/* Two bits for what it is, the rest for how many messages it is about. */
void expect(struct connection *connection, enum expected what, uint32_t count) {
    fifo_put(&connection->expected, count << 2 | what);
}

enum expected expected(struct connection *connection, uint32_t *count) {
    uint32_t item = fifo_take(&connection->expected);
    *count = item >> 2;
    return item & 3;
}

int failed(struct connection *connection, const struct reply *reply, const char *harmless) {
    if (reply->type != '-') return 0;
    if (strncmp(reply->text, "LOADING", 7) == 0) return try_again(connection), 1;
    if (harmless && strncmp(reply->text, harmless, strlen(harmless)) == 0) return 0;
    fail("Redis: %.*s", (int)reply->size, reply->text);
}
