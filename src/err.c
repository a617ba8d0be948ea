/* The one list of codes, and the writing of messages. */
#include "src/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[STATUS_COUNT] = {
#define X(code, name, fault) [code] = name,
    STATUS_LIST(X)
#undef X
};

static const enum fault faults[STATUS_COUNT] = {
#define X(code, name, fault) [code] = fault,
    STATUS_LIST(X)
#undef X
};

/* A message that was too long ends with a whole character. */
static void one_line(struct err *e)
{
    char *s = e->text;
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) *s = ' ';
    if (s < e->text + sizeof e->text - 1) return;
    char *last = s - 1;
    while (last > s - 4 && (*last & 0xc0) == 0x80) last--;
    unsigned lead = (unsigned char)*last;
    if (lead >= 0xc0 && s - last < (lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2)) *last = 0;
}

enum status err_set(struct err *e, enum status code, const char *fmt, ...)
{
    if (!e) return code;
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    one_line(e);
    return code;
}

enum status err_errno(struct err *e, int errnum, const char *fmt, ...)
{
    enum status code = errnum == ENOSPC || errnum == EDQUOT ? E_NOSPACE
                       : errnum == ENOMEM                   ? E_NOMEM
                                                            : E_IO;
    if (!e) return code;
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    int n = vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->text)
        snprintf(e->text + n, sizeof e->text - (size_t)n, ": %s", strerror(errnum));
    one_line(e);
    return code;
}

void err_wrap(struct err *e, const char *fmt, ...)
{
    if (!e) return;
    char old[ERR_TEXT_BYTES];
    memcpy(old, e->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->text)
        snprintf(e->text + n, sizeof e->text - (size_t)n, ": %s", old);
    one_line(e);
}

const char *status_name(enum status code)
{
    return (unsigned)code < STATUS_COUNT ? names[code] : "unknown";
}

enum status status_by_name(const char *name)
{
    for (int i = 0; i < STATUS_COUNT; i++)
        if (!strcmp(names[i], name)) return (enum status)i;
    return STATUS_COUNT;
}

enum fault status_fault(enum status code)
{
    return (unsigned)code < STATUS_COUNT ? faults[code] : FAULT_OURS;
}
