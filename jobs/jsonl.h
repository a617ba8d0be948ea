/* The lines of a file, one at a time.
 *
 * A byte order mark, CRLF, blank lines and a missing last newline are fine. Memory is one line and
 * a block, whatever the size of the file. What is in a line is for others to check. */
#ifndef NS_JSONL_H
#define NS_JSONL_H

#include "src/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jsonl;

struct jsonl_line {
    uint64_t line;    /* 1-based; blank ones count */
    uint64_t offset;  /* of its first byte in the file */
    uint64_t len;     /* bytes without the line end */
    const char *text; /* until the next call; NULL when the line is over the limit */
};

/* max_line: bytes. hash: take the file's SHA-256 on the way. E_IO. */
enum status jsonl_open(struct jsonl **out, const char *path, uint64_t max_line, bool hash,
                       struct err *e);
/* The next line that is not blank; *more = false at the end. E_IO (also when the file shrinks),
 * E_NOMEM. */
enum status jsonl_next(struct jsonl *r, struct jsonl_line *out, bool *more, struct err *e);
uint64_t jsonl_size(const struct jsonl *r);
/* After the end: 64 hex digits and NUL; "" without hash. */
const char *jsonl_sha256(const struct jsonl *r);
void jsonl_close(struct jsonl *r);

#endif
