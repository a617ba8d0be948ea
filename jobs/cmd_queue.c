/* Queue files on behalf of commands. */
#include "jobs/cmd_queue.h"

#include "jobs/export.h"
#include "jobs/queue.h"
#include "jobs/schema.h"
#include "src/os.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NOTES  20
#define WAIT_TELL_S 60.0
#define WAIT_STOP_S 5.0 /* so long a stop still waits, to keep what was computed */

/* Tests of crashes: NIGHTSHIFT_CRASH_AT=NAME:N kills the process when the point NAME is passed for
 * the N-th time. */
static struct {
    char name[64];
    long left;
} crash;

static void on_point(void *user, const char *name)
{
    (void)user;
    if (!strcmp(name, crash.name) && --crash.left == 0) raise(SIGKILL);
}

static void set_crash(struct db_opts *o)
{
    const char *at = getenv("NIGHTSHIFT_CRASH_AT"), *colon = at ? strrchr(at, ':') : NULL;
    if (!colon || (size_t)(colon - at) >= sizeof crash.name) return;
    memcpy(crash.name, at, (size_t)(colon - at));
    crash.name[colon - at] = 0;
    crash.left = strtol(colon + 1, NULL, 10);
    o->point = on_point;
}

/* A program that reads, or an import, must not end a night. */
static bool go_on_waiting(void *user, double waited_s)
{
    struct cmd_queue *q = user;
    if (waited_s <= 0) q->wait.told = false, q->wait.before_stop_s = 0;
    if (waited_s >= WAIT_TELL_S && !q->wait.told) {
        fprintf(stderr, "nightshift: waiting for another program that uses %s\n", q->wait.path);
        q->wait.told = true;
    }
    if (!cmd_stop_wanted()) q->wait.before_stop_s = waited_s;
    return waited_s - q->wait.before_stop_s < WAIT_STOP_S;
}

int64_t cmd_queue_lease_ms(void)
{
    const char *ms = getenv("NIGHTSHIFT_LEASE_MS");
    return ms ? strtol(ms, NULL, 10) : 0;
}

enum status cmd_queue_open(struct cmd_queue *q, const char *path, bool must_exist,
                           enum cmd_lock lock, struct err *e)
{
    struct db_opts o = {.must_exist = must_exist, .wait_user = q};
    *q = (struct cmd_queue){.lock = -1, .wait.path = path};
    if (lock) o.wait = go_on_waiting;
    set_crash(&o);
    enum status rc = OK;
    if (must_exist && !os_exists(path))
        rc = err_set(e, E_USAGE, "%s: there is no such queue", path);
    if (!rc && lock) rc = queue_lock(&q->lock, path, lock == LOCK_SHARED, e);
    if (!rc && lock && os_is_remote(path))
        fprintf(stderr, "nightshift: %s is on a network file system; its locks must work\n", path);
    if (!rc) rc = db_open(&q->db, path, &o, e);
    if (!rc) rc = schema_apply(q->db, e);
    if (rc) cmd_queue_close(q);
    return rc;
}

void cmd_queue_close(struct cmd_queue *q)
{
    db_close(q->db);
    queue_unlock(&q->lock);
    q->db = NULL;
}

/* ---- names ---- */

/* Is path the queue, or a file beside it that goes with it? */
static bool of_queue(const char *path, const char *db)
{
    static const char *const ends[] = {DB_FILES, ".lock"};
    bool same = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !same; i++) {
        struct buf b = {0};
        same = !buf_addf(&b, NULL, "%s%s", db, ends[i]) && os_same_file(path, b.data);
        buf_free(&b);
    }
    return same;
}

/* A slip of the hand must not replace what was typed by hand. */
enum status cmd_check_names(const struct cmd_options *o, const char *db, struct err *e)
{
    const char *outs[] = {o->output, o->errors_file, db};
    for (size_t i = 0; i < 3; i++) {
        if (!outs[i]) continue;
        for (size_t k = 0; k < o->operands.n; k++)
            if (os_same_file(outs[i], o->operands.at[k]))
                return err_set(e, E_USAGE, "%s: %s is an input", o->command, outs[i]);
        for (size_t k = 0; k < i; k++)
            if (outs[k] && os_same_file(outs[i], outs[k]))
                return err_set(e, E_USAGE, "%s: %s is to be written twice", o->command, outs[i]);
        if (db && i < 2 && of_queue(outs[i], db))
            return err_set(e, E_USAGE, "%s: %s belongs to the queue %s", o->command, outs[i], db);
    }
    return OK;
}

enum status cmd_check_inputs(struct db *db, const struct cmd_options *o, struct err *e)
{
    const char *outs[] = {o->output, o->errors_file};
    sqlite3_stmt *s;
    bool row = true;
    enum status rc = db_stmt(db, &s, "SELECT path FROM inputs", e);
    while (!rc) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        const char *path = (const char *)sqlite3_column_text(s, 0);
        for (size_t i = 0; i < 2 && !rc; i++)
            if (outs[i] && path && os_same_file(outs[i], path))
                rc = err_set(e, E_USAGE, "%s: %s is an input of %s", o->command, outs[i],
                             db_path(db));
        if (rc) sqlite3_reset(s);
    }
    return rc;
}

enum status cmd_check_outputs(const struct cmd_options *o, struct err *e)
{
    const char *outs[] = {o->output, o->errors_file};
    enum status rc = OK;
    for (size_t i = 0; i < 2 && !rc; i++) {
        struct os_publish p;
        if (!outs[i]) continue;
        rc = os_publish_begin(&p, outs[i], e);
        if (!rc) os_publish_abort(&p);
    }
    return rc;
}

/* ---- import ---- */

static void tell_bad(void *user, const char *path, const struct row *r)
{
    uint64_t *told = user;
    if (++*told > MOST_NOTES) return;
    fprintf(stderr, "%s:", path);
    if (r->len) fprintf(stderr, "%llu:", (unsigned long long)r->line);
    fprintf(stderr, " %s: %s\n", status_name(r->code), r->message);
}

static bool go_on(void *user, uint64_t items)
{
    (void)user;
    (void)items;
    return cmd_stop_wanted() == 0;
}

enum status cmd_import(struct db *db, const struct cmd_options *o, const struct cmd_model *m,
                       struct import_counts *c, struct err *e)
{
    static const enum row_changed changed[] = {
        [CHANGED_ERROR] = ROW_ERROR, [CHANGED_RERUN] = ROW_RERUN, [CHANGED_KEEP] = ROW_KEEP};
    struct mem mem;
    uint64_t told = 0;
    struct import_opts i = {
        .paths = o->operands.at,
        .n_paths = o->operands.n,
        .job = {.prompt = o->prompt, .system = o->system},
        .row = {.mem = &mem, .settings = o->job, .images = o->images},
        .max_line_bytes = o->max_line_bytes,
        .on_changed = changed[o->on_changed_input],
        .skip_duplicates = o->on_duplicate == DUPLICATE_SKIP,
        .shard = o->shard,
        .shards = o->shards,
        .note = o->quiet ? NULL : tell_bad,
        .go_on = go_on,
        .user = &told,
    };
    i.row.settings.has &= ~(unsigned)JOB_HAS_TIMEOUT;
    if (m) {
        i.row.probe = vision_probe;
        i.row.processor = &m->processor;
        i.row.limits = &m->limits;
    }
    mem_init(&mem, cmd_ram(o));
    enum status rc = import_files(db, &i, c, e);
    mem_close(&mem);
    if (told > MOST_NOTES)
        fprintf(stderr, "... and %llu more; see nightshift errors\n",
                (unsigned long long)(told - MOST_NOTES));
    return rc;
}

/* Into a queue that is thrown away. need: what its jobs are like, or NULL. */
/* A copy of the queue in db; queues of earlier versions stay as they are. */
static enum status copy_queue(struct db *db, const char *queue, struct err *e)
{
    struct db *from;
    enum status rc = db_open(&from, queue, &(struct db_opts){.must_exist = true}, e);
    if (rc) return rc;
    rc = db_copy(from, db, e);
    db_close(from);
    return rc;
}

/* queue: what the import is to find, or NULL. */
static enum status import_dry(const struct cmd_options *o, const struct cmd_model *m,
                              const char *queue, struct import_counts *c, struct measure *need,
                              struct err *e)
{
    struct db *db;
    enum status rc = db_open(&db, "", &(struct db_opts){.must_exist = false}, e);
    if (rc) return rc;
    if (queue) rc = copy_queue(db, queue, e);
    if (!rc) rc = schema_apply(db, e);
    if (!rc) rc = cmd_import(db, o, m, c, e);
    if (!rc && need) rc = measure_queue(db, &m->config, m->tok, cmd_model_image_rows(m), need, e);
    db_close(db);
    return rc;
}

static uint64_t rejected(const struct import_counts *c)
{
    return c->outcome[ROW_BAD] + c->outcome[ROW_DUPLICATE];
}

void cmd_tell_import(const struct cmd_options *o, const struct import_counts *c)
{
    if (o->quiet || o->operands.n == 0) return;
    fprintf(stderr, "%llu jobs read: %llu new, %llu known", (unsigned long long)c->items,
            (unsigned long long)c->outcome[ROW_ADDED], (unsigned long long)c->outcome[ROW_KNOWN]);
    if (c->outcome[ROW_REPLACED])
        fprintf(stderr, ", %llu changed", (unsigned long long)c->outcome[ROW_REPLACED]);
    if (c->removed) fprintf(stderr, ", %llu gone", (unsigned long long)c->removed);
    if (rejected(c)) fprintf(stderr, ", %llu cannot run", (unsigned long long)rejected(c));
    if (c->other_shard)
        fprintf(stderr, ", %llu of other shards", (unsigned long long)c->other_shard);
    fprintf(stderr, "\n");
}

static enum status check_strict(const struct cmd_options *o, const struct import_counts *c,
                                struct err *e)
{
    if (!o->strict || !rejected(c)) return OK;
    return err_set(e, E_INPUT, "%llu of %llu jobs cannot run; with --strict none does",
                   (unsigned long long)rejected(c), (unsigned long long)c->items);
}

enum status cmd_measure_first(const struct cmd_options *o, const struct cmd_model *m,
                              struct measure *need, struct err *e)
{
    struct import_counts c;
    enum status rc = import_dry(o, m, NULL, &c, need, e);
    if (!rc) rc = check_strict(o, &c, e);
    if (rc || need->jobs) return rc;
    return err_set(e, E_INPUT, "plan: there is no job that can run");
}

enum status cmd_look_first(const struct cmd_options *o, const struct cmd_model *m,
                           const char *queue, struct err *e)
{
    struct import_counts c;
    enum status rc = OK;
    if (o->fresh || !os_exists(queue)) queue = NULL;
    /* Bad lines that the queue knows already are bad as well. */
    if (queue && o->strict) {
        rc = import_dry(o, m, NULL, &c, NULL, e);
        if (!rc) rc = check_strict(o, &c, e);
    }
    if (!rc) rc = import_dry(o, m, queue, &c, NULL, e);
    if (rc) return rc;
    if (o->dry_run) cmd_tell_import(o, &c);
    return check_strict(o, &c, e);
}

enum status cmd_write_results(struct db *db, const struct cmd_options *o, struct err *e)
{
    static const enum export_format formats[] = {[FORMAT_OPENAI] = EXPORT_OPENAI,
                                                 [FORMAT_METADATA] = EXPORT_METADATA,
                                                 [FORMAT_CSV] = EXPORT_CSV,
                                                 [FORMAT_TXT] = EXPORT_TXT,
                                                 [FORMAT_SHAREGPT] = EXPORT_SHAREGPT};
    static const enum export_existing existing[] = {[EXISTING_ERROR] = EXPORT_ERROR,
                                                    [EXISTING_SKIP] = EXPORT_SKIP,
                                                    [EXISTING_OVERWRITE] = EXPORT_OVERWRITE,
                                                    [EXISTING_APPEND] = EXPORT_APPEND,
                                                    [EXISTING_PREPEND] = EXPORT_PREPEND};
    struct export_counts c;
    struct export_request r = {.format = formats[o->format],
                               .path = o->output,
                               .errors_path = o->errors_file,
                               .existing = existing[o->on_existing]};
    return export_files(db, &r, &c, e);
}
