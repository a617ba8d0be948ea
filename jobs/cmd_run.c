/* `run`: import, work, export; run again it goes on where it was. */
#include "jobs/cmd_queue.h"

#include "jobs/queue.h"
#include "jobs/schema.h"
#include "src/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The queue's name: --db, else the output's with ".db". */
static enum status db_name(const struct cmd_options *o, struct buf *name, struct err *e)
{
    if (o->db) return buf_addf(name, e, "%s", o->db);
    if (o->output) return buf_addf(name, e, "%s.db", o->output);
    return err_set(e, E_USAGE, "run: needs --output FILE, or --db FILE for a queue alone");
}

/* Is it empty, or a database with our mark (in its header: https://www.sqlite.org/fileformat.html)?
 */
static bool is_queue(const char *db)
{
    static const char start[16] = "SQLite format 3";
    unsigned char head[72];
    FILE *f = fopen(db, "rbe");
    if (!f) return !os_exists(db);
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    uint32_t id = 0;
    for (int i = 68; i < 72 && n == sizeof head; i++) id = id << 8 | head[i];
    return n == 0 || (id == SCHEMA_APPLICATION_ID && !memcmp(head, start, sizeof start));
}

/* --fresh: the queue goes, with what SQLite keeps beside it; a link to it stays. The lock is held.
 */
static enum status forget(const char *db, struct err *e)
{
    static const char *const ends[] = {DB_FILES};
    if (!is_queue(db))
        return err_set(e, E_USAGE, "%s is not a queue of nightshift; --fresh leaves it alone", db);
    char *file = os_follow(db);
    if (!file) return err_errno(e, errno, "%s", db);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct buf b = {0};
        if (!buf_addf(&b, NULL, "%s%s", file, ends[i])) remove(b.data);
        buf_free(&b);
    }
    free(file);
    return OK;
}

static enum status work_queue(const struct cmd_options *o, struct cmd_model *m, const char *name,
                              int *code, struct err *e)
{
    struct cmd_queue q;
    struct import_counts c = {0};
    int64_t again = 0;
    int lock = -1;
    enum status rc = OK;
    if (o->fresh) {
        rc = queue_lock(&lock, name, false, e);
        if (!rc) rc = forget(name, e);
        queue_unlock(&lock);
        if (rc) return rc;
    }
    rc = cmd_queue_open(&q, name, o->operands.n == 0, LOCK_ALONE, e);
    if (rc) return rc;
    rc = cmd_check_inputs(q.db, o, e);
    if (!rc) rc = cmd_import(q.db, o, m, &c, e);
    if (!rc) cmd_tell_import(o, &c);
    if (!rc && o->retry_failed)
        rc = queue_retry(q.db, &(struct queue_filter){.state = "failed"}, &again, e);
    if (!rc) rc = cmd_night(&q, o, m, code, e);
    if (!rc) rc = cmd_write_results(q.db, o, e);
    cmd_queue_close(&q);
    return rc;
}

int cmd_run(const struct cmd_options *o)
{
    struct err e;
    struct buf name = {0};
    struct cmd_model m = {0};
    int code = EXIT_DONE;
    cmd_catch_signals();
    enum status rc = db_name(o, &name, &e);
    if (!rc) rc = cmd_check_names(o, name.data, &e);
    if (!rc) rc = cmd_check_outputs(o, &e);
    if (!rc) rc = cmd_model_begin(&m, o, &e);
    if (!rc && (o->strict || o->dry_run)) rc = cmd_look_first(o, &m, name.data, &e);
    if (!rc && !o->dry_run) rc = work_queue(o, &m, name.data, &code, &e);
    cmd_model_close(&m);
    buf_free(&name);
    return cmd_end(rc, &e, code);
}
