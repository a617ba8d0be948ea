/* The other forms of results: one record a job, in input order. */
#ifndef NS_EXPORT_FORM_H
#define NS_EXPORT_FORM_H

#include "jobs/export_line.h"

enum export_format {
    EXPORT_OPENAI,
    EXPORT_METADATA, /* {"file_name", "text"} of each answer about a picture: ImageFolder */
    EXPORT_CSV,      /* RFC 4180, with a head line; failures too */
    EXPORT_TXT,      /* a file beside each picture: export_txt */
    EXPORT_SHAREGPT, /* conversations for training */
};

/* What stands before the first record; NULL: nothing. */
const char *export_form_head(enum export_format f);
/* As export_line_next, for metadata, csv and sharegpt. folder: names of pictures below it are given
 * from there; absolute, without its last slash. x->text is empty for a job that has no record. */
struct export_form {
    struct db *db;
    enum export_format format;
    const char *folder;
};
enum status export_form_next(struct export_lines *x, const struct export_form *f, bool *more,
                             struct err *e);

#endif
