/* A file of lines is split as by the simplest reader there is. So that small inputs reach over the
 * reader's window, a byte 0xFE and a number n stand for n * 4096 letters. The first byte sets the
 * limit of a line. */
#include "jobs/jsonl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_BYTES (3u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
    if (!good) abort();
}

static size_t expand(char *to, const uint8_t *data, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size && n < MOST_BYTES; i++) {
        size_t run = data[i] == 0xfe && i + 1 < size ? data[++i] * 4096u : 0;
        if (run > MOST_BYTES - n) run = MOST_BYTES - n;
        if (run)
            memset(to + n, 'a', run);
        else
            to[n] = (char)data[i];
        n += run ? run : 1;
    }
    return n;
}

/* The line that begins at *at, without its end; false when there is none. */
static bool split(const char *text, size_t n, size_t *at, const char **line, size_t *len)
{
    if (*at == n) return false;
    const char *end = memchr(text + *at, '\n', n - *at);
    *line = text + *at;
    *len = end ? (size_t)(end - *line) : n - *at;
    *at += *len + (end != NULL);
    if (*len && (*line)[*len - 1] == '\r') --*len;
    return true;
}

static void compare(struct jsonl *r, const char *text, size_t n, uint64_t most)
{
    struct jsonl_line got;
    const char *line;
    size_t at = 0, len;
    bool more;
    for (uint64_t k = 1; split(text, n, &at, &line, &len); k++) {
        bool whole = len <= most;
        if (whole && k == 1 && len >= 3 && !memcmp(line, "\xef\xbb\xbf", 3)) line += 3, len -= 3;
        size_t i = 0;
        while (whole && i < len && strchr(" \t\r", line[i]) && line[i]) i++;
        if (whole && i == len) continue;
        check(jsonl_next(r, &got, &more, NULL) == OK && more);
        check(got.line == k && got.offset == (uint64_t)(line - text) && got.len == len);
        check(whole == (got.text != NULL) && (!whole || !memcmp(got.text, line, len)));
    }
    check(jsonl_next(r, &got, &more, NULL) == OK && !more);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[MOST_BYTES];
    char path[32];
    struct jsonl *r;
    if (!size) return 0;
    uint64_t most = data[0] & 1 ? data[0] : (uint64_t)data[0] * 4096;
    size_t n = expand(text, data + 1, size - 1);
    int fd = memfd_create("lines", MFD_CLOEXEC);
    check(fd >= 0 && write(fd, text, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    check(jsonl_open(&r, path, most, size & 1, NULL) == OK);
    compare(r, text, n, most);
    jsonl_close(r);
    close(fd);
    return 0;
}
