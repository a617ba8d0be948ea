/* A window of the file moves forward; it grows when a line does not fit, up to the limit. The tail
 * of a longer line is read and dropped. */
#include "jobs/jsonl.h"

#include "src/os.h"

#include <sha256.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (256u << 10)

struct jsonl {
    struct os_file file;
    char *path;
    uint64_t max_line;
    uint64_t read;   /* bytes of the file read so far */
    uint64_t line;   /* lines given or skipped so far */
    uint64_t offset; /* first byte of the next line */
    char *data;
    size_t cap;
    size_t at, have; /* data[at, have): not yet given */
    bool hash;
    SHA2_CTX sha;
    char sha256[SHA256_DIGEST_STRING_LENGTH];
};

enum status jsonl_open(struct jsonl **out, const char *path, uint64_t max_line, bool hash,
                       struct err *e)
{
    *out = NULL;
    struct jsonl *r = calloc(1, sizeof *r);
    if (!r) return err_set(e, E_NOMEM, "%s: no memory", path);
    r->file.fd = -1;
    r->max_line = max_line;
    r->hash = hash;
    r->cap = BLOCK_BYTES;
    r->path = strdup(path);
    r->data = malloc(r->cap);
    enum status rc = r->path && r->data ? os_open(&r->file, path, false, e)
                                        : err_set(e, E_NOMEM, "%s: no memory", path);
    if (rc) {
        jsonl_close(r);
        return rc;
    }
    SHA256Init(&r->sha);
    *out = r;
    return OK;
}

/* More bytes behind data[have), after those before `at` were dropped; grows a full window. */
static enum status fill(struct jsonl *r, struct err *e)
{
    memmove(r->data, r->data + r->at, r->have - r->at);
    r->have -= r->at;
    r->at = 0;
    if (r->have == r->cap) {
        char *p = realloc(r->data, r->cap * 2);
        if (!p)
            return err_set(e, E_NOMEM, "%s: no memory for a line of %zu bytes", r->path, r->cap);
        r->data = p;
        r->cap *= 2;
    }
    uint64_t left = r->file.size - r->read;
    size_t n = r->cap - r->have;
    if (n > left) n = (size_t)left;
    enum status rc = os_read_at(&r->file, r->read, r->data + r->have, n, r->path, e);
    if (rc) return rc;
    if (r->hash) SHA256Update(&r->sha, (const uint8_t *)r->data + r->have, n);
    r->have += n;
    r->read += n;
    return OK;
}

/* Pass the next line: `len` bytes and its end, `total` bytes in all. They stand before data[at],
 * unless the line is over the limit. */
static enum status next_line(struct jsonl *r, uint64_t *len, uint64_t *total, struct err *e)
{
    size_t seen = 0;
    uint64_t dropped = 0;
    for (;;) {
        size_t have = r->have - r->at;
        char *nl = memchr(r->data + r->at + seen, '\n', have - seen);
        if (nl || r->read == r->file.size) {
            size_t n = nl ? (size_t)(nl - r->data) - r->at : have;
            *total = dropped + n + (nl != NULL);
            *len = dropped + n - (n && r->data[r->at + n - 1] == '\r');
            r->at += n + (nl != NULL);
            return OK;
        }
        seen = have;
        if (dropped + have > r->max_line + 1) {
            /* Keep the last byte: it may be the carriage return of the line's end. */
            dropped += have - 1;
            r->at += have - 1;
            seen = 1;
        }
        enum status rc = fill(r, e);
        if (rc) return rc;
    }
}

static bool blank(const char *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r') return false;
    return true;
}

static void finish_hash(struct jsonl *r)
{
    if (r->hash && !r->sha256[0]) SHA256End(&r->sha, r->sha256);
}

enum status jsonl_next(struct jsonl *r, struct jsonl_line *out, bool *more, struct err *e)
{
    *more = false;
    for (;;) {
        uint64_t len, total;
        enum status rc = next_line(r, &len, &total, e);
        if (rc) return rc;
        if (total == 0) {
            finish_hash(r);
            return OK;
        }
        const char *text = len <= r->max_line ? r->data + (r->at - total) : NULL;
        *out = (struct jsonl_line){++r->line, r->offset, len, text};
        r->offset += total;
        if (text && r->line == 1 && len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) {
            out->text += 3;
            out->len -= 3;
            out->offset += 3;
        }
        if (text && blank(out->text, out->len)) continue;
        *more = true;
        return OK;
    }
}

uint64_t jsonl_size(const struct jsonl *r)
{
    return r->file.size;
}

const char *jsonl_sha256(const struct jsonl *r)
{
    return r->sha256;
}

void jsonl_close(struct jsonl *r)
{
    if (!r) return;
    os_close(&r->file);
    free(r->path);
    free(r->data);
    free(r);
}
