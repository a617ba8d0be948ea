/* Results as files, at any time, also while a run is under way.
 *
 * A file is always written whole, in input order, and put in place by a rename. Rows are read in
 * pages, so that no read keeps a run from committing; what finishes meanwhile may or may not be in
 * the file. */
#ifndef NS_EXPORT_H
#define NS_EXPORT_H

#include "jobs/db.h"
#include "src/mem.h"

struct export_counts {
    uint64_t answers, failures;
};

/* OpenAI batch output, one line a finished job. errors_path: the failures once more, on their own;
 * either may be NULL. */
enum status export_openai(struct db *db, const char *path, const char *errors_path,
                          struct export_counts *out, struct err *e);

/* Append text as a JSON string; bytes that are no UTF-8 (names of files) become U+FFFD. NULL: null.
 */
enum status export_quote(struct buf *out, const char *text, size_t len, struct err *e);

#endif
