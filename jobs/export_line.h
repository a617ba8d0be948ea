/* The finished jobs of a queue as OpenAI batch output lines, one after the other, in input order.
 */
#ifndef NS_EXPORT_LINE_H
#define NS_EXPORT_LINE_H

#include "jobs/db.h"
#include "src/mem.h"

/* Begin with zeros. After each call: the line, with its end, and where it is from. Free text. */
struct export_lines {
    int64_t input, line;
    bool failed;
    struct buf text;
};

/* The next finished job after (input, line); *more = false at the end. */
enum status export_line_next(struct export_lines *x, struct db *db, bool *more, struct err *e);

/* Append text as a JSON string; bytes that are no UTF-8 (names of files) become U+FFFD. NULL: null.
 */
enum status export_quote(struct buf *out, const char *text, size_t len, struct err *e);

#endif
