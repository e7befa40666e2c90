/* Growing buffers, queues of small numbers, and big-endian numbers. */
#include "load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_room(struct buffer *buffer, size_t size) {
    if (buffer->begin == buffer->end) buffer->begin = buffer->end = 0;
    if (buffer->room - buffer->end >= size) return;
    if (buffer->begin > 0) {
        memmove(buffer->data, buffer_start(buffer), buffer_size(buffer));
        buffer->end -= buffer->begin;
        buffer->begin = 0;
    }
    if (buffer->room - buffer->end >= size) return;
    buffer->room = (buffer->end + size) * 2;
    buffer->data = realloc(buffer->data, buffer->room);
    if (buffer->data == NULL) fail("out of memory: %zu bytes for a buffer", buffer->room);
}

void buffer_add(struct buffer *buffer, const void *bytes, size_t size) {
    buffer_room(buffer, size);
    memcpy(buffer->data + buffer->end, bytes, size);
    buffer->end += size;
}

void buffer_text(struct buffer *buffer, const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= sizeof text) fail("a request is too long");
    buffer_add(buffer, text, (size_t)size);
}

void buffer_take(struct buffer *buffer, size_t size) { buffer->begin += size; }

void fifo_put(struct fifo *fifo, uint32_t item) {
    if (fifo->count == fifo->room) {
        size_t room = fifo->room ? fifo->room * 2 : 64;
        uint32_t *items = malloc(room * sizeof *items);
        if (items == NULL) fail("out of memory: %zu answers to wait for", room);
        for (size_t i = 0; i < fifo->count; i++) items[i] = fifo->items[(fifo->first + i) % fifo->room];
        free(fifo->items);
        fifo->items = items;
        fifo->first = 0;
        fifo->room = room;
    }
    fifo->items[(fifo->first + fifo->count++) % fifo->room] = item;
}

uint32_t fifo_take(struct fifo *fifo) {
    if (fifo->count == 0) fail("the server answered something that was not asked");
    uint32_t item = fifo->items[fifo->first];
    fifo->first = (fifo->first + 1) % fifo->room;
    fifo->count--;
    return item;
}

void put16(char *at, uint32_t value) {
    at[0] = (char)(value >> 8);
    at[1] = (char)value;
}

void put32(char *at, uint32_t value) {
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

uint32_t get16(const char *at) { return (uint32_t)(unsigned char)at[0] << 8 | (unsigned char)at[1]; }

uint32_t get32(const char *at) { return get16(at) << 16 | get16(at + 2); }
