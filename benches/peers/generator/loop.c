/* One thread, one epoll: connections are opened, fed, flushed and read. */
#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A read takes up to this, and a producer is not filled beyond it. */
enum { CHUNK = 256 * 1024 };
enum { EVENTS = 1024 };
/* Loopback has a whole network of addresses: connections are spread over them, as if they came from many machines. */
enum { PER_ADDRESS = 100 };
/* A server that is not there yet is asked again after so many microseconds. */
enum { AGAIN = 2000 };

struct connection *connections;
size_t connection_count;

static struct queue *queues;
static struct connection **dirty;
static size_t dirty_count;
static int *idle;
static int poller;
static uint64_t deadline;

uint64_t clock_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
}

void touch(struct connection *connection) {
    if (connection->dirty) return;
    connection->dirty = 1;
    dirty[dirty_count++] = connection;
}

void touch_queue(struct queue *queue) {
    for (size_t i = 0; i < queue->member_count; i++) touch(queue->members[i]);
}

static int dial(size_t number) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("no socket for connection %zu: %s (see ulimit -n)", number, strerror(errno));
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    if (inet_pton(AF_INET, options.host, &to.sin_addr) != 1) misuse("--host %s is no IPv4 address", options.host);
    if (to.sin_addr.s_addr == htonl(INADDR_LOOPBACK)) {
        struct sockaddr_in from = {.sin_family = AF_INET};
        from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)(number / PER_ADDRESS));
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        if (bind(fd, (struct sockaddr *)&from, sizeof from) < 0) fail("can't bind: %s", strerror(errno));
    }
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Connects, and goes on trying for --connect-seconds. */
static int dial_patiently(size_t number) {
    uint64_t until = clock_now() + (uint64_t)(options.connect_seconds * 1e9);
    for (;;) {
        int fd = dial(number);
        if (fd >= 0) return fd;
        if (clock_now() >= until)
            fail("can't connect to %s:%u: %s", options.host, options.port, strerror(errno));
        usleep(AGAIN);
    }
}

static void watch(struct connection *connection, int operation) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (connection->writable_wanted) event.events |= EPOLLOUT;
    if (epoll_ctl(poller, operation, connection->fd, &event) < 0) fail("epoll_ctl: %s", strerror(errno));
}

static void start(struct connection *connection) {
    connection->fd = dial_patiently((size_t)(connection - connections));
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    watch(connection, EPOLL_CTL_ADD);
    options.protocol->open(connection);
    touch(connection);
}

void try_again(struct connection *connection) {
    if (clock_now() > deadline) fail("the server did not become ready");
    close(connection->fd);
    connection->in.begin = connection->in.end = connection->out.begin = connection->out.end = 0;
    connection->expected.count = 0;
    connection->ready = 0;
    usleep(AGAIN);
    start(connection);
}

static void queues_open(void) {
    queues = calloc(options.queues, sizeof *queues);
    if (queues == NULL) fail("out of memory");
    for (unsigned i = 0; i < options.queues; i++) {
        int size = options.queues == 1 ? snprintf(queues[i].name, sizeof queues[i].name, "%s", options.queue)
                                       : snprintf(queues[i].name, sizeof queues[i].name, "%s%05u", options.queue, i);
        queues[i].name_length = (size_t)size;
        queues[i].available = options.expect / options.queues;
    }
    queues[0].available += options.expect % options.queues;
}

static void join(struct connection *connection, struct queue *queue) {
    connection->queue = queue;
    queue->members = realloc(queue->members, (queue->member_count + 1) * sizeof *queue->members);
    if (queue->members == NULL) fail("out of memory");
    queue->members[queue->member_count++] = connection;
}

void connections_open(void) {
    connection_count = options.both ? options.producers : options.producers + options.consumers;
    connections = calloc(connection_count, sizeof *connections);
    dirty = calloc(connection_count, sizeof *dirty);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (connections == NULL || dirty == NULL || poller < 0) fail("out of memory");
    deadline = clock_now() + (uint64_t)((options.timeout + options.connect_seconds) * 1e9);
    queues_open();
    for (size_t i = 0; i < connection_count; i++) {
        struct connection *connection = &connections[i];
        connection->role = options.both ? PRODUCER | CONSUMER : i < options.producers ? PRODUCER : CONSUMER;
        connection->index = (unsigned)(i < options.producers ? i : i - options.producers);
        join(connection, &queues[connection->index % options.queues]);
        start(connection);
    }
}

void idle_open(void) {
    idle = calloc(options.idle + 1, sizeof *idle);
    if (idle == NULL) fail("out of memory");
    for (unsigned i = 0; i < options.idle; i++) idle[i] = dial_patiently(connection_count + i);
}

unsigned idle_lost(void) {
    unsigned lost = 0;
    char byte;
    for (unsigned i = 0; i < options.idle; i++)
        lost += recv(idle[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || errno != EAGAIN;
    return lost;
}

static int may_publish(const struct connection *connection) {
    return account_publishing() && connection->unconfirmed < options.unconfirmed &&
           (!options.consumers || connection->queue->pending < options.in_flight / options.queues) &&
           buffer_size(&connection->out) < CHUNK;
}

static void produce(struct connection *connection) {
    while (may_publish(connection)) {
        options.protocol->publish(connection, account.published);
        published(connection);
    }
    connection->sent_at = clock_now();
    int over = account.began && !account_publishing();
    if (over && !options.consumers && options.protocol->waits_closed && !connection->closing &&
        buffer_size(&connection->out) == 0) {
        connection->closing = 1;
        shutdown(connection->fd, SHUT_WR);
    }
}

static void consume(struct connection *connection) {
    struct queue *queue = connection->queue;
    if (!options.protocol->asks) return;
    uint32_t busy = connection->requested + connection->held;
    uint64_t count = busy < options.window ? options.window - busy : 0;
    if (count > queue->available) count = queue->available;
    if (count == 0) return;
    queue->available -= count;
    connection->requested += (uint32_t)count;
    options.protocol->receive(connection, (uint32_t)count);
}

static void flush(struct connection *connection) {
    struct buffer *out = &connection->out;
    while (buffer_size(out)) {
        ssize_t sent = send(connection->fd, buffer_start(out), buffer_size(out), MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) break;
        if (sent < 0) fail("the server is gone: %s", strerror(errno));
        account.writes++;
        buffer_take(out, (size_t)sent);
    }
    int wanted = buffer_size(out) > 0;
    if (wanted != connection->writable_wanted) {
        connection->writable_wanted = wanted;
        watch(connection, EPOLL_CTL_MOD);
    }
}

static void work(struct connection *connection) {
    if (connection->role & PRODUCER) produce(connection);
    if (connection->role & CONSUMER) consume(connection);
}

static void feed(void) {
    for (size_t i = 0; i < dirty_count; i++) { /* grows while it is walked */
        struct connection *connection = dirty[i];
        connection->dirty = 0;
        if (connection->finished) continue;
        if (connection->ready && account.began) work(connection);
        flush(connection);
        if (connection->role & PRODUCER && may_publish(connection) && connection->ready &&
            !connection->writable_wanted)
            i--, connection->dirty = 1; /* the buffer was full, and is not any more */
    }
    dirty_count = 0;
}

static void ended(struct connection *connection) {
    if (!connection->closing) fail("the server closed connection %zu", (size_t)(connection - connections));
    connection->finished = 1;
    close(connection->fd);
}

static void take(struct connection *connection) {
    buffer_room(&connection->in, CHUNK);
    ssize_t got = recv(connection->fd, connection->in.data + connection->in.end, CHUNK, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0 && !connection->ready && options.connect_seconds > 0) return try_again(connection);
    if (got < 0) fail("the server is gone: %s", strerror(errno));
    if (got == 0) return ended(connection);
    account.reads++;
    connection->in.end += (size_t)got;
    options.protocol->input(connection);
    if (options.protocol->read_done && connection->ready) options.protocol->read_done(connection);
}

static void begin_when_ready(uint64_t now) {
    if (account.ready < connection_count) return;
    int first = !account.began;
    account_step(now);
    for (size_t i = 0; first && i < connection_count; i++) touch(&connections[i]);
}

void loop_run(void) {
    struct epoll_event events[EVENTS];
    for (;;) {
        uint64_t now = clock_now();
        begin_when_ready(now);
        if (account_over()) return;
        feed();
        if (account_over()) return;
        if (now > deadline)
            fail("stalled after %.0f s: %llu published, %llu confirmed, %llu delivered, %llu settled", options.timeout,
                 (unsigned long long)account.published, (unsigned long long)account.confirmed,
                 (unsigned long long)account.distinct, (unsigned long long)account.settled);
        int count = epoll_wait(poller, events, EVENTS, 10);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) touch(connection);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) take(connection);
        }
        if (account.stopped || count == 0)
            for (size_t i = 0; i < options.producers; i++) touch(&connections[i]);
    }
}
