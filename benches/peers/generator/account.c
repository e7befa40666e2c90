/* Counting: what was published, confirmed, delivered and settled, which numbers came, how long answers took. */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* A payload begins with its number in hexadecimal digits. */
enum { NUMBER = 16 };
/* Answer times beyond these are not kept: percentiles of four million say enough. */
enum { LATENCIES = 4000000 };
/* Bursts of answers that make a rate. */
enum { BURSTS = 10 };

struct account account;

static char *filler;
static unsigned char *seen; /* a bit for each number that came */
static uint64_t seen_room;
static uint32_t *latencies; /* tenths of a microsecond */
static size_t latency_count;
static int warm;

static double cpu_now(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* What the rate counts: messages that are done with. */
static uint64_t done(void) { return options.consumers ? account.settled : account.confirmed; }

void account_open(void) {
    filler = malloc(options.size);
    latencies = malloc(LATENCIES * sizeof *latencies);
    if (filler == NULL || latencies == NULL) fail("out of memory");
    memset(filler, 'x', options.size);
}

void message_add(struct buffer *buffer, uint64_t number) {
    static const char digits[] = "0123456789abcdef";
    for (int i = NUMBER - 1; i >= 0; i--, number >>= 4) filler[i] = digits[number & 15];
    buffer_add(buffer, filler, options.size);
}

void connection_ready(struct connection *connection) {
    connection->ready = 1;
    account.ready++;
    touch(connection);
}

void published(struct connection *connection) {
    account.published++;
    connection->queue->pending++;
    connection->unconfirmed++;
    if (!options.protocol->confirms) {
        connection->unconfirmed = 0;
        connection->queue->available++;
    }
}

void confirmed(struct connection *connection, uint32_t count) {
    if (count > connection->unconfirmed) fail("the server confirmed more than was published");
    connection->unconfirmed -= count;
    connection->queue->available += count;
    account.confirmed += count;
    if (options.unconfirmed == 1 && warm && latency_count < LATENCIES)
        latencies[latency_count++] = (uint32_t)((clock_now() - connection->sent_at) / 100);
    if (!options.consumers) {
        connection->queue->pending -= count;
        touch(connection);
    } else {
        touch_queue(connection->queue);
    }
}

void unanswered(struct connection *connection, uint32_t count) {
    connection->requested -= count;
    connection->queue->available += count;
    touch(connection);
}

static void grow_seen(uint64_t number) {
    uint64_t room = (number / 8 + 1) * 2;
    seen = realloc(seen, room);
    if (seen == NULL) fail("out of memory: %llu numbers of messages", (unsigned long long)room * 8);
    memset(seen + seen_room, 0, room - seen_room);
    seen_room = room;
}

static uint64_t number_of(const char *payload, size_t size) {
    uint64_t number = 0;
    if (size != options.size) fail("a message of %zu bytes came where all have %zu", size, options.size);
    for (int i = 0; i < NUMBER; i++) {
        char digit = payload[i];
        number = number << 4 | (uint64_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    if (number >= 1ULL << 40) fail("a message came that is none of ours");
    return number;
}

void delivered(struct connection *connection, const char *payload, size_t size) {
    uint64_t number = number_of(payload, size);
    if (number / 8 >= seen_room) grow_seen(number);
    int first = !(seen[number / 8] >> (number & 7) & 1);
    seen[number / 8] |= (unsigned char)(1 << (number & 7));
    account.distinct += (uint64_t)first;
    account.repeated += (uint64_t)!first;
    if (account.delivered++ == 0) account.first_delivery = clock_now();
    if (options.protocol->asks && connection->requested > 0) connection->requested--;
    connection->held++;
    touch(connection);
}

void settled(struct connection *connection, uint32_t count) {
    connection->held -= count;
    account.settled += count;
    connection->queue->pending -= count < connection->queue->pending ? count : connection->queue->pending;
    touch_queue(connection->queue);
}

static void note_warm(uint64_t now) {
    warm = 1;
    account.warmed = now;
    account.done_when_warmed = done();
    account.cpu_when_warmed = cpu_now();
}

static void note_stopped(uint64_t now) {
    account.stopped = now;
    account.done_when_stopped = done();
    account.cpu_when_stopped = cpu_now();
}

int account_publishing(void) {
    return options.producers && account.began && !account.stopped &&
           (options.count == 0 || account.published < options.count);
}

void account_step(uint64_t now) {
    if (!account.began) {
        account.began = now;
        if (options.count || options.expect) note_warm(now);
    }
    if (!warm && (double)(now - account.began) >= options.warm * 1e9) note_warm(now);
    if (!account.stopped && options.seconds > 0 && (double)(now - account.began) >= options.seconds * 1e9)
        note_stopped(now);
}

static int all_there(void) {
    if (options.first) return account.delivered > 0;
    if (options.expect) return account.distinct >= options.expect && account.settled >= options.expect;
    if (account.published > account.confirmed && options.protocol->confirms) return 0;
    return !options.consumers || (account.distinct >= account.published && account.settled >= account.published);
}

int account_over(void) {
    if (!account.began || account_publishing() || !all_there()) return 0;
    for (size_t i = 0; i < connection_count; i++) {
        if (buffer_size(&connections[i].out) && !options.first) return 0;
        if (!options.consumers && options.protocol->waits_closed && !connections[i].finished) return 0;
    }
    if (!options.protocol->confirms) account.confirmed = account.published;
    account.ended = clock_now();
    if (!account.stopped) note_stopped(account.ended);
    return 1;
}

static int by_size(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static double percentile(double share) {
    return latency_count ? latencies[(size_t)((double)(latency_count - 1) * share)] / 10.0 : 0.0;
}

/* Answers may come in bursts of all that is unconfirmed. Where there were only a few of these, the rate is that of the
   whole run instead: from the first publish to the last answer. */
static void count_the_whole(void) {
    uint64_t burst = (uint64_t)options.producers * options.unconfirmed;
    if (account.done_when_stopped - account.done_when_warmed >= BURSTS * burst || options.count || options.expect) return;
    account.warmed = account.began;
    account.done_when_warmed = 0;
    account.cpu_when_warmed = 0;
    note_stopped(account.ended);
}

void account_report(void) {
    count_the_whole();
    double seconds = (double)(account.stopped - account.warmed) / 1e9;
    uint64_t counted = account.done_when_stopped - account.done_when_warmed;
    qsort(latencies, latency_count, sizeof *latencies, by_size);
    printf("{\"published\": %llu, \"confirmed\": %llu, \"delivered\": %llu, \"distinct\": %llu, \"repeated\": %llu, "
           "\"settled\": %llu, ",
           (unsigned long long)account.published, (unsigned long long)account.confirmed,
           (unsigned long long)account.delivered, (unsigned long long)account.distinct,
           (unsigned long long)account.repeated, (unsigned long long)account.settled);
    printf("\"seconds\": %.6f, \"whole_seconds\": %.6f, \"rate\": %.1f, ", seconds,
           (double)(account.ended - account.began) / 1e9, seconds > 0 ? (double)counted / seconds : 0.0);
    printf("\"answers\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, ", latency_count, percentile(0.5), percentile(0.99));
    printf("\"cpu_share\": %.3f, \"first_delivery\": %.6f, \"reads\": %llu, \"writes\": %llu, \"idle_lost\": %u}\n",
           seconds > 0 ? (account.cpu_when_stopped - account.cpu_when_warmed) / seconds : 0.0,
           (double)account.first_delivery / 1e9, (unsigned long long)account.reads,
           (unsigned long long)account.writes, idle_lost());
}
