/* The import: which inputs are new, and their items in batches.
 *
 * While a changed file is taken anew, its old jobs stand with negative lines; each line of the new
 * file picks up its job by id and gives it a line again. What is still negative at the end is no
 * longer in the file: unfinished and failed jobs go, answers stay hidden in case the line returns.
 */
#include "jobs/import.h"

#include "src/os.h"

#include <inttypes.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_ROWS  1000
#define BATCH_BYTES (8u << 20)
#define ROUNDS      3 /* of reading again: what is read again may have changed as well */

struct import {
    struct db *db;
    const struct import_opts *o;
    struct import_counts *counts;
    char options_sha256[JOB_SHA_CHARS];
    /* the input at hand */
    struct row_place place;
    char *path; /* absolute */
    const char *kind;
    uint64_t bytes, done; /* done: items imported before */
    char sha256[JOB_SHA_CHARS];
    /* the batch */
    struct row *rows;
    uint64_t *item; /* of each row: which of the input's items it is, from 1 */
    size_t n, batch_bytes;
    bool again; /* other files may have what went with a changed one */
};

/* Everything beside the lines that shapes jobs. */
static enum status options_sha256(struct import *im, struct err *e)
{
    const struct import_opts *o = im->o;
    struct job empty = {.custom_id = "", .settings = o->row.settings};
    struct buf b = {0};
    enum status rc = job_spec(&empty, &b, e);
    if (!rc)
        rc = buf_addf(&b, e, "\n%s\n%s\n%s\n%u/%u %d", o->job.prompt ? o->job.prompt : "",
                      o->job.system ? o->job.system : "",
                      o->row.images.root ? o->row.images.root : "", o->shard, o->shards,
                      o->skip_duplicates);
    for (size_t i = 0; i < o->row.images.n_maps && !rc; i++)
        rc = buf_addf(&b, e, "\n%s=%s", o->row.images.maps[i].from, o->row.images.maps[i].to);
    if (!rc && o->max_line_bytes && o->max_line_bytes != INPUT_MAX_LINE_BYTES)
        rc = buf_addf(&b, e, "\n%" PRIu64, o->max_line_bytes);
    if (!rc) SHA256Data((const uint8_t *)b.data, b.len, im->options_sha256);
    buf_free(&b);
    return rc;
}

/* *mine: nobody else did at the same time. */
static enum status insert_input(struct import *im, bool *mine, struct err *e)
{
    db_point(im->db, "input:commit");
    enum status rc =
        db_run(im->db, e,
               "INSERT INTO inputs(path, kind, bytes, sha256, options_sha256, imported_at) "
               "VALUES(?1, ?2, ?3, ?4, ?5, unixepoch()) ON CONFLICT(path) DO NOTHING",
               "ssiss", im->path, im->kind, (int64_t)im->bytes, im->sha256, im->options_sha256);
    db_point(im->db, "input:done");
    *mine = db_changes(im->db) > 0;
    im->place.input_id = db_last_id(im->db);
    return rc;
}

/* Takes a changed file anew: its jobs have lines below 0 until they are met in it. Those that are
 * not stay there, if they have answers, at or below GONE. */
#define GONE (-((int64_t)1 << 40))

static enum status restart_input(struct import *im, struct err *e)
{
    int64_t id = im->place.input_id;
    enum status rc = db_begin(im->db, "changed", e);
    if (rc) return rc;
    rc = db_run(im->db, e,
                "DELETE FROM jobs WHERE input_id=?1 AND (spec IS NULL OR duplicate_of NOT NULL)",
                "i", id);
    if (!rc)
        rc = db_run(im->db, e, "UPDATE jobs SET line=-id WHERE input_id=?1 AND line>0", "i", id);
    if (!rc)
        rc = db_run(im->db, e,
                    "UPDATE inputs SET bytes=?2, sha256=?3, options_sha256=?4, items=0, mine=0, "
                    "complete=0, "
                    "imported_at=unixepoch() WHERE id=?1",
                    "iiss", id, (int64_t)im->bytes, im->sha256, im->options_sha256);
    if (!rc) rc = db_commit(im->db, e);
    if (rc) db_rollback(im->db);
    return rc;
}

/* Decides what to do with a file of lines. *skip: nothing. */
static enum status known_lines(struct import *im, sqlite3_stmt *s, bool *skip, struct err *e)
{
    im->place.input_id = sqlite3_column_int64(s, 0);
    bool same_bytes = !strcmp(im->sha256, (const char *)sqlite3_column_text(s, 1));
    bool same_options = !strcmp(im->options_sha256, (const char *)sqlite3_column_text(s, 2));
    im->done = (uint64_t)sqlite3_column_int64(s, 3);
    int complete = sqlite3_column_int(s, 4);
    sqlite3_reset(s);
    bool same = same_bytes && same_options;
    if (same && complete >= 0) {
        *skip = complete;
        if (complete) im->counts->outcome[ROW_KNOWN] += im->done;
        return OK;
    }
    if (!same && im->place.on_changed == ROW_ERROR)
        return err_set(e, E_INPUT,
                       "%s: %s since it was imported; --on-changed-input rerun takes what differs, "
                       "keep goes on with the jobs as imported",
                       im->path,
                       same_bytes ? "the options that shape its jobs changed" : "changed");
    *skip = !same && im->place.on_changed == ROW_KEEP;
    im->done = 0;
    return *skip ? OK : restart_input(im, e);
}

static enum status find_input(struct import *im, bool *skip, struct err *e)
{
    sqlite3_stmt *s;
    *skip = false;
    im->done = 0;
    enum status rc =
        db_stmt(im->db, &s,
                "SELECT id, sha256, options_sha256, items, complete FROM inputs WHERE path=?1", e);
    if (!rc) rc = db_bind(im->db, s, e, "s", im->path);
    bool row = false;
    if (!rc) rc = db_step(im->db, s, &row, e);
    if (rc) return rc;
    if (!row) {
        bool mine = true;
        rc = insert_input(im, &mine, e);
        return rc || mine ? rc : find_input(im, skip, e);
    }
    if (!im->place.by_id) return known_lines(im, s, skip, e);
    im->place.input_id = sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    return OK;
}

/* Drops jobs that are not in their changed file any more. Other files may have lines with their
 * ids, which were known or duplicates then: those that have more lines than jobs, or duplicates,
 * are to be read again. */
static enum status drop_gone(struct import *im, struct err *e)
{
    int64_t id = im->place.input_id;
    enum status rc = db_run(
        im->db, e, "DELETE FROM jobs WHERE input_id=?1 AND line<0 AND state<>'done'", "i", id);
    if (rc) return rc;
    uint64_t gone = (uint64_t)db_changes(im->db);
    im->counts->removed += gone;
    rc = db_run(im->db, e, "UPDATE jobs SET line=?2-id WHERE input_id=?1 AND line<0 AND line>?2",
                "ii", id, GONE);
    if (!rc) gone += (uint64_t)db_changes(im->db);
    if (rc || gone == 0) return rc;
    im->again = true;
    return db_run(im->db, e,
                  "UPDATE inputs SET complete=-1 WHERE id<>?1 AND kind='lines' AND items>0 AND "
                  "(mine>(SELECT count(*) FROM jobs WHERE input_id=inputs.id AND line>0) OR "
                  "EXISTS(SELECT 1 FROM jobs WHERE input_id=inputs.id AND duplicate_of NOT NULL))",
                  "i", id);
}

/* Another process may be at the same file: what it has stored meanwhile is known. */
static enum status flush(struct import *im, bool complete, uint64_t items, struct err *e)
{
    enum status rc = db_begin(im->db, "import", e);
    if (rc) return rc;
    int64_t last = 0, stored = 0, mine = 0;
    if (im->place.by_id)
        rc = db_int(im->db, &last, 0, e, "SELECT max(line) FROM jobs WHERE input_id=?1", "i",
                    im->place.input_id);
    else
        rc = db_int(im->db, &stored, 0, e, "SELECT items FROM inputs WHERE id=?1", "i",
                    im->place.input_id);
    for (size_t i = 0; i < im->n && !rc; i++) {
        enum row_outcome outcome;
        if (im->item[i] <= (uint64_t)stored) {
            im->counts->outcome[ROW_KNOWN]++;
            continue;
        }
        mine++;
        if (im->place.by_id) im->rows[i].line = (uint64_t)last + 1;
        rc = row_store(im->db, &im->rows[i], &im->place, &outcome, e);
        if (rc) break;
        last += outcome != ROW_KNOWN && outcome != ROW_REPLACED;
        im->counts->outcome[outcome]++;
        if (im->o->note && im->rows[i].code && outcome != ROW_KNOWN)
            im->o->note(im->o->user, im->place.path, &im->rows[i]);
    }
    if (!rc)
        rc = db_run(im->db, e,
                    "UPDATE inputs SET items=max(items, ?2), complete=max(complete, ?3), "
                    "mine=mine+?4 WHERE id=?1",
                    "iiii", im->place.input_id, (int64_t)items, (int64_t)complete, mine);
    if (!rc && complete) rc = drop_gone(im, e);
    if (!rc) rc = db_commit(im->db, e);
    if (rc) db_rollback(im->db);
    for (size_t i = 0; i < im->n; i++) row_free(&im->rows[i]);
    im->n = im->batch_bytes = 0;
    return rc;
}

/* Lines without a legible id belong to the first shard. */
static bool is_mine(const struct import_opts *o, const struct input_item *item)
{
    if (!o->shards) return true;
    uint64_t h = item->job && item->job->custom_id ? job_shard_hash(item->job) : 0;
    return h % o->shards == o->shard - 1;
}

static enum status take(struct import *im, const struct input_item *item, uint64_t seen,
                        struct err *e)
{
    im->counts->items++;
    if (!is_mine(im->o, item)) {
        im->counts->other_shard++;
        return OK;
    }
    enum status rc = row_make(&im->rows[im->n], &im->o->row, item, e);
    if (rc) return rc;
    im->item[im->n] = seen;
    im->batch_bytes += row_bytes(&im->rows[im->n++]);
    return OK;
}

static enum status items(struct import *im, struct input *in, struct err *e)
{
    const struct input_item *item;
    uint64_t seen = 0;
    enum status rc = OK;
    while (!(rc = input_next(in, &item, e)) && item) {
        if (++seen <= im->done) continue;
        rc = take(im, item, seen, e);
        if (!rc && (im->n == BATCH_ROWS || im->batch_bytes >= BATCH_BYTES))
            rc = flush(im, false, seen, e);
        if (!rc && im->o->go_on && !im->o->go_on(im->o->user, seen))
            rc = err_set(e, E_STOPPED, "%s: stopped after %llu jobs", im->path,
                         (unsigned long long)seen);
        if (rc) return rc;
    }
    if (rc) return rc;
    const struct input_source *src = input_source(in, 0);
    if (!im->place.by_id && strcmp(src->sha256, im->sha256) != 0)
        return err_set(e, E_INPUT, "%s changed while it was read", im->path);
    return flush(im, true, seen, e);
}

static enum status one_input(struct import *im, const char *path, struct err *e)
{
    struct input *in = NULL;
    struct input_opts io = {
        .paths = &path,
        .n_paths = 1,
        .job = im->o->job,
        .max_line_bytes = im->o->max_line_bytes,
        .hash = true,
    };
    enum status rc = input_open(&in, &io, e);
    if (rc) return rc;
    const struct input_source *src = input_source(in, 0);
    static const char *const kinds[] = {
        [INPUT_LINES] = "lines", [INPUT_PICTURE] = "picture", [INPUT_FOLDER] = "folder"};
    im->kind = kinds[src->kind];
    im->bytes = src->size;
    im->sha256[0] = 0;
    im->path = realpath(path, NULL);
    im->place = (struct row_place){
        .path = im->path,
        .by_id = src->kind != INPUT_LINES,
        .skip_duplicates = im->o->skip_duplicates,
        .on_changed = im->o->on_changed,
    };
    bool skip = false;
    if (!im->path) rc = err_set(e, E_USAGE, "%s: cannot be found", path);
    if (!rc && !im->place.by_id) rc = input_sha256(path, im->sha256, e);
    if (!rc) rc = find_input(im, &skip, e);
    if (!rc && !skip) rc = items(im, in, e);
    for (size_t i = 0; i < im->n; i++) row_free(&im->rows[i]);
    im->n = im->batch_bytes = 0;
    free(im->path);
    im->path = NULL;
    input_close(in);
    return rc;
}

/* Files that are to be read again, if they were read in the same way and are still there: the
 * others wait until they are named. What they are known to have is not counted again. */
static enum status read_again(struct import *im, struct err *e)
{
    struct import_counts before = *im->counts;
    im->again = false;
    int64_t after = 0;
    enum status rc;
    for (;;) {
        sqlite3_stmt *s;
        char *path = NULL;
        bool row = false;
        rc = db_stmt(im->db, &s,
                     "SELECT id, path FROM inputs WHERE id>?1 AND kind='lines' AND "
                     "complete=-1 AND options_sha256=?2 ORDER BY id LIMIT 1",
                     e);
        if (!rc) rc = db_bind(im->db, s, e, "is", after, im->options_sha256);
        if (!rc) rc = db_step(im->db, s, &row, e);
        if (rc || !row) break;
        after = sqlite3_column_int64(s, 0);
        rc = db_text(im->db, s, 1, &path, NULL, e);
        sqlite3_reset(s);
        if (!rc && os_exists(path)) rc = one_input(im, path, e);
        free(path);
        if (rc) break;
    }
    before.outcome[ROW_ADDED] = im->counts->outcome[ROW_ADDED];
    before.outcome[ROW_REPLACED] = im->counts->outcome[ROW_REPLACED];
    before.removed = im->counts->removed;
    *im->counts = before;
    return rc;
}

enum status import_files(struct db *db, const struct import_opts *o, struct import_counts *out,
                         struct err *e)
{
    *out = (struct import_counts){0};
    struct import im = {.db = db, .o = o, .counts = out};
    im.rows = calloc(BATCH_ROWS, sizeof *im.rows);
    im.item = calloc(BATCH_ROWS, sizeof *im.item);
    enum status rc =
        im.rows && im.item ? options_sha256(&im, e) : err_set(e, E_NOMEM, "import: no memory");
    for (size_t i = 0; i < o->n_paths && !rc; i++) rc = one_input(&im, o->paths[i], e);
    for (int i = 0; i < ROUNDS && im.again && !rc; i++) rc = read_again(&im, e);
    free(im.rows);
    free(im.item);
    return rc;
}
