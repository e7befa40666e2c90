/* How the generator ends when it can't go on: 1 when the server is at fault or away, 2 when it was called wrongly. */
#include "load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void say(const char *format, va_list arguments) {
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    exit(1);
}

void misuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    exit(2);
}
