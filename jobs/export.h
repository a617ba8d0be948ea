/* Results as files, at any time, also while a run is under way. A file is always written whole, in
 * input order, and put in place by a rename; what finishes meanwhile may or may not be in it. */
#ifndef NS_EXPORT_H
#define NS_EXPORT_H

#include "jobs/export_form.h"

/* What to do with a sidecar text that is there already. */
enum export_existing { EXPORT_ERROR, EXPORT_SKIP, EXPORT_OVERWRITE, EXPORT_APPEND, EXPORT_PREPEND };

struct export_request {
    enum export_format format;
    const char *path;        /* NULL: only errors; not used by EXPORT_TXT */
    const char *errors_path; /* failures as OpenAI batch lines; or NULL */
    enum export_existing existing;
};

struct export_counts {
    uint64_t answers, failures; /* written */
};

enum status export_files(struct db *db, const struct export_request *r, struct export_counts *out,
                         struct err *e);

#endif
