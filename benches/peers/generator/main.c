/* The load generator: reads its options, runs, prints one line of JSON. */
#include "load.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

struct options options = {
    .host = "127.0.0.1",
    .queues = 1,
    .size = 100,
    .timeout = 60,
    .unconfirmed = 1000,
    .window = 500,
    .in_flight = 10000,
    .queue = "load",
    .variant = "",
};

extern const struct protocol phpmq, kokaq, kokaq_pop, sspq, redis_list, redis_stream, amqp, nats, beanstalkd, echo;
const struct protocol *const protocols[] = {
    &phpmq, &kokaq, &kokaq_pop, &sspq, &redis_list, &redis_stream, &amqp, &nats, &beanstalkd, &echo, NULL,
};

static const struct option flags[] = {
    {"host", 1, NULL, 'h'},        {"port", 1, NULL, 'p'},    {"producers", 1, NULL, 'P'}, {"consumers", 1, NULL, 'C'},
    {"queues", 1, NULL, 'q'},      {"idle", 1, NULL, 'i'},    {"size", 1, NULL, 's'},      {"count", 1, NULL, 'n'},
    {"expect", 1, NULL, 'e'},      {"seconds", 1, NULL, 't'}, {"warm", 1, NULL, 'w'},      {"timeout", 1, NULL, 'T'},
    {"unconfirmed", 1, NULL, 'u'}, {"window", 1, NULL, 'W'},  {"in-flight", 1, NULL, 'f'}, {"queue", 1, NULL, 'Q'},
    {"variant", 1, NULL, 'v'},     {"first", 0, NULL, '1'},   {"both", 0, NULL, 'b'},      {"connect-seconds", 1, NULL, 'c'},
    {NULL, 0, NULL, 0},
};

static const char *flag_name(int letter) {
    for (const struct option *flag = flags; flag->name; flag++)
        if (flag->val == letter) return flag->name;
    return "?";
}

static double number(int letter, const char *text, double least, double most) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most))
        misuse("--%s is a number from %.0f to %.0f, not %s", flag_name(letter), least, most, text);
    return value;
}

static void option(int letter, const char *text) {
    switch (letter) {
    case 'h': options.host = text; break;
    case 'p': options.port = (unsigned)number(letter, text, 1, 65535); break;
    case 'P': options.producers = (unsigned)number(letter, text, 0, 10000); break;
    case 'C': options.consumers = (unsigned)number(letter, text, 0, 10000); break;
    case 'q': options.queues = (unsigned)number(letter, text, 1, 10000); break;
    case 'i': options.idle = (unsigned)number(letter, text, 0, 50000); break;
    case 's': options.size = (size_t)number(letter, text, 16, 60000); break;
    case 'n': options.count = (uint64_t)number(letter, text, 1, 1e9); break;
    case 'e': options.expect = (uint64_t)number(letter, text, 1, 1e9); break;
    case 't': options.seconds = number(letter, text, 0, 86400); break;
    case 'w': options.warm = number(letter, text, 0, 86400); break;
    case 'T': options.timeout = number(letter, text, 0, 86400); break;
    case 'c': options.connect_seconds = number(letter, text, 0, 86400); break;
    case 'u': options.unconfirmed = (uint32_t)number(letter, text, 1, 1e6); break;
    case 'W': options.window = (uint32_t)number(letter, text, 1, 65535); break;
    case 'f': options.in_flight = (uint64_t)number(letter, text, 1, 1e9); break;
    case 'Q': options.queue = text; break;
    case 'v': options.variant = text; break;
    case '1': options.first = 1; break;
    case 'b': options.both = 1; break;
    default: misuse("see the list of flags in main.c");
    }
}

static void choose(const char *name) {
    for (const struct protocol *const *each = protocols; *each; each++)
        if (strcmp((*each)->name, name) == 0) options.protocol = *each;
    if (options.protocol) return;
    fprintf(stderr, "load: there is no protocol %s; there are:", name);
    for (const struct protocol *const *each = protocols; *each; each++) fprintf(stderr, " %s", (*each)->name);
    fputc('\n', stderr);
    exit(2);
}

static void check(void) {
    if (options.port == 0) misuse("--port is missing");
    if (strlen(options.queue) > 20) misuse("--queue has at most 20 characters");
    if (options.producers + options.consumers == 0) misuse("neither --producers nor --consumers");
    if (options.producers && !options.count && options.seconds <= 0) misuse("--count or --seconds says when to stop");
    if (!options.producers && !options.expect) misuse("without --producers, --expect says how many messages there are");
    if (options.producers && options.expect) misuse("--expect is for runs without --producers");
    if (options.queues > 1 && options.expect) misuse("--expect is of one queue");
    if (options.both && options.producers != options.consumers) misuse("--both: as many --producers as --consumers");
    if (options.in_flight < options.queues) misuse("--in-flight is of all queues: at least one for each");
    if (options.seconds > 0 && options.warm >= options.seconds) misuse("--warm is less than --seconds");
}

static void raise_files(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < options.producers + options.consumers + options.idle + 16)
        fail("%llu files may be open here (ulimit -Hn), too few", (unsigned long long)limit.rlim_max);
}

int main(int count, char **arguments) {
    int letter;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever started us has gone: so do we */
    if (count < 2 || arguments[1][0] == '-') misuse("usage: load PROTOCOL --port N --producers N --consumers N …");
    choose(arguments[1]);
    while ((letter = getopt_long(count - 1, arguments + 1, "", flags, NULL)) != -1) {
        if (letter == '?') return 2;
        option(letter, optarg);
    }
    check();
    raise_files();
    account_open();
    connections_open();
    idle_open();
    loop_run();
    account_report();
    return 0;
}
