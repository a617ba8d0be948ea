/* Output files, each written whole and put in place. */
#include "jobs/export.h"

#include "jobs/export_txt.h"
#include "src/os.h"

#include <stdlib.h>
#include <string.h>

static enum status commit(struct db *db, struct os_publish *p, struct err *e)
{
    db_point(db, "export:commit");
    enum status rc = os_publish_commit(p, e);
    if (!rc) db_point(db, "export:done");
    return rc;
}

/* only_failures: the others are left out. */
static enum status lines(struct db *db, const char *path, bool only_failures,
                         struct export_counts *out, struct err *e)
{
    struct export_lines x = {0};
    struct os_publish p;
    bool more = true;
    enum status rc = os_publish_begin(&p, path, e);
    if (rc) return rc;
    while (!rc && more) {
        rc = export_line_next(&x, db, &more, e);
        if (rc || !more || (only_failures && !x.failed)) continue;
        *(x.failed ? &out->failures : &out->answers) += 1;
        os_publish_write(&p, x.text.data, x.text.len);
    }
    buf_free(&x.text);
    if (!rc) return commit(db, &p, e);
    os_publish_abort(&p);
    return rc;
}

/* The absolute folder of a file that need not exist yet, malloc'ed. */
static enum status folder_of(const char *path, char **out, struct err *e)
{
    char *copy = strdup(path), *slash = copy ? strrchr(copy, '/') : NULL;
    if (slash) slash[slash == copy] = 0;
    *out = copy ? realpath(slash ? copy : ".", NULL) : NULL;
    free(copy);
    return *out ? OK : err_set(e, E_IO, "the folder of %s cannot be found", path);
}

static enum status records(struct db *db, const struct export_request *r, struct export_counts *out,
                           struct err *e)
{
    struct export_lines x = {0};
    struct os_publish p;
    char *folder;
    bool more = true;
    enum status rc = folder_of(r->path, &folder, e);
    if (rc) return rc;
    struct export_form f = {db, r->format, folder};
    const char *head = export_form_head(r->format);
    rc = os_publish_begin(&p, r->path, e);
    if (rc) goto out;
    if (head) os_publish_write(&p, head, strlen(head));
    while (!rc && more) {
        rc = export_form_next(&x, &f, &more, e);
        if (rc || !more || x.text.len == 0) continue;
        *(x.failed ? &out->failures : &out->answers) += 1;
        os_publish_write(&p, x.text.data, x.text.len);
    }
    if (rc)
        os_publish_abort(&p);
    else
        rc = commit(db, &p, e);
out:
    buf_free(&x.text);
    free(folder);
    return rc;
}

enum status export_files(struct db *db, const struct export_request *r, struct export_counts *out,
                         struct err *e)
{
    struct export_counts errors = {0};
    *out = errors;
    enum status rc = OK;
    if (r->format == EXPORT_TXT)
        rc = export_txt(db, r->existing, out, e);
    else if (r->path)
        rc =
            r->format == EXPORT_OPENAI ? lines(db, r->path, false, out, e) : records(db, r, out, e);
    if (!rc && r->errors_path) rc = lines(db, r->errors_path, true, &errors, e);
    return rc;
}
