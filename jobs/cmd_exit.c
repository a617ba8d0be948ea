/* How errors are told, and the exit codes that belong to them. */
#include "jobs/cmd.h"

#include <stdarg.h>
#include <stdio.h>

enum exit_code cmd_exit_code(enum status code)
{
    if (code == OK) return EXIT_DONE;
    if (code == E_INPUT) return EXIT_REJECTED;
    if (code == E_LOCKED) return EXIT_HELD;
    if (code == E_STOPPED) return EXIT_LIMIT;
    if (code == E_IO || code == E_NOSPACE) return EXIT_STORAGE;
    switch (status_fault(code)) {
    case FAULT_JOB:
        return EXIT_SOME_FAILED;
    case FAULT_USER:
        return EXIT_USAGE;
    default:
        return EXIT_UNUSABLE;
    }
}

int cmd_fail(const struct err *e)
{
    fflush(stdout);
    fprintf(stderr, "nightshift: %s\n", e->text);
    return cmd_exit_code(e->code);
}

int cmd_end(enum status rc, const struct err *e, int code)
{
    if (!rc) return code;
    int failed = cmd_fail(e);
    return rc == E_STOPPED && cmd_stop_exit() ? cmd_stop_exit() : failed;
}

int cmd_usage(const char *fmt, ...)
{
    struct err e;
    char text[ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(&e, E_USAGE, "%s", text);
    return cmd_fail(&e);
}
