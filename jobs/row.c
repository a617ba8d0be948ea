/* Items of an input into rows of the queue. */
#include "jobs/row.h"

#include "jobs/place.h"

#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t row_seed(uint64_t base, const char *custom_id)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    char number[32];
    SHA2_CTX c;
    SHA256Init(&c);
    int n = snprintf(number, sizeof number, "seed %llu ", (unsigned long long)base);
    SHA256Update(&c, (const uint8_t *)number, (size_t)n);
    SHA256Update(&c, (const uint8_t *)custom_id, strlen(custom_id));
    SHA256Final(digest, &c);
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v = v << 8 | digest[i];
    return v >> 11;
}

static void fill(struct job *j, const struct job_settings *given)
{
    if (!(j->settings.has & JOB_HAS_SEED)) {
        uint64_t base = given->has & JOB_HAS_SEED ? given->seed : 0;
        j->settings.seed = row_seed(base, j->custom_id);
        j->settings.has |= JOB_HAS_SEED;
    }
    job_settings_fill(&j->settings, given);
    struct job_settings defaults = job_default_settings;
    defaults.has &= ~(unsigned)JOB_HAS_TIMEOUT;
    job_settings_fill(&j->settings, &defaults);
}

static uint64_t text_bytes(const struct job *j)
{
    uint64_t n = j->schema ? strlen(j->schema) : 0;
    for (size_t i = 0; i < j->n_messages; i++)
        for (size_t k = 0; k < j->messages[i].n_parts; k++)
            if (!j->messages[i].parts[k].image) n += j->messages[i].parts[k].len;
    return n;
}

static enum status copy(char **out, const char *s, struct err *e)
{
    *out = s ? strdup(s) : NULL;
    return s && !*out ? err_set(e, E_NOMEM, "no memory for a job") : OK;
}

/* Find, hash, and look at the header. */
static enum status look(struct row_image *m, const struct row_opts *o,
                        const struct image_ref_source *s, const struct job_image *image,
                        struct err *e)
{
    struct image_ref_bytes b = {.mem = o->mem};
    enum status rc = copy(&m->ref, image->ref, e);
    if (!rc && image->ref) rc = image_ref_resolve(&o->images, s, image->ref, &m->path, e);
    if (rc) return rc;
    rc = image_ref_load(&b, &o->images, s, image, m->path, e);
    if (rc == E_BUDGET) {
        struct err why = *e;
        return err_set(e, E_IMAGE_TOO_LARGE, "%s", why.text);
    }
    if (rc) return rc;
    memcpy(m->sha256, b.sha256, sizeof m->sha256);
    m->bytes = b.len;
    m->mtime_ns = b.mtime_ns;
    if (o->probe) rc = o->probe(o->processor, o->limits, b.at, b.len, &m->info, e);
    mem_free(b.mem, b.at);
    return rc;
}

static enum status add_images(struct row *r, const struct row_opts *o,
                              const struct input_item *item, struct err *e)
{
    const struct job *j = item->job;
    struct image_ref_source s = {.path = item->line ? item->path : NULL,
                                 .line_offset = item->offset};
    r->images = calloc(j->n_images + 1, sizeof *r->images);
    if (!r->images) return err_set(e, E_NOMEM, "no memory for the pictures of a job");
    r->n_images = j->n_images;
    for (size_t i = 0; i < j->n_images; i++) {
        struct err why;
        enum status rc = look(&r->images[i], o, &s, &j->images[i], &why);
        if (!rc) continue;
        if (status_fault(rc) != FAULT_JOB) {
            *e = why;
            return rc;
        }
        if (r->code) continue; /* the first fault speaks for the job */
        r->code = rc;
        memcpy(r->message, why.text, sizeof r->message);
    }
    return OK;
}

static enum status find_place(struct row *r, const struct job *j, struct err *e)
{
    const char **sha = calloc(r->n_images + 1, sizeof *sha);
    if (!sha) return err_set(e, E_NOMEM, "no memory for the pictures of a job");
    for (size_t i = 0; i < r->n_images; i++) sha[i] = r->images[i].sha256;
    r->place = place_of(j, sha);
    free(sha);
    return OK;
}

enum status row_make(struct row *r, const struct row_opts *o, const struct input_item *item,
                     struct err *e)
{
    struct job *j = item->job;
    *r = (struct row){.line = item->line, .offset = item->offset, .len = item->len};
    enum status rc = copy(&r->custom_id, j->custom_id, e);
    if (rc) goto out;
    if (item->status) {
        r->code = item->status;
        memcpy(r->message, item->err.text, sizeof r->message);
        return OK;
    }
    fill(j, &o->settings);
    rc = job_spec(j, &r->spec, e);
    if (rc) goto out;
    SHA256Data((const uint8_t *)r->spec.data, r->spec.len, r->params_sha256);
    r->text_bytes = text_bytes(j);
    r->max_tokens = j->settings.max_tokens;
    r->priority = j->settings.priority;
    rc = add_images(r, o, item, e);
    if (!rc) rc = find_place(r, j, e);
out:
    if (rc) row_free(r);
    return rc;
}

void row_free(struct row *r)
{
    for (size_t i = 0; i < r->n_images; i++) {
        free(r->images[i].ref);
        free(r->images[i].path);
    }
    free(r->images);
    free(r->custom_id);
    buf_free(&r->spec);
    *r = (struct row){0};
}

size_t row_bytes(const struct row *r)
{
    return sizeof *r + r->spec.cap + r->n_images * (sizeof *r->images + 256);
}

/* The job that has this custom_id. */
struct known {
    int64_t id, input_id, line;
    bool same; /* the same spec */
    bool bad;  /* without a spec */
    bool gone; /* it is not in its file any more, and that was read whole */
    char *path;
};

static enum status find(struct db *db, const struct row *r, struct known *k, struct err *e)
{
    *k = (struct known){0};
    if (!r->custom_id) return OK;
    sqlite3_stmt *s;
    enum status rc = db_stmt(db, &s,
                             "SELECT j.id, j.input_id, j.line, j.params_sha256, i.path, j.line<0 "
                             "AND i.complete FROM jobs j JOIN inputs i "
                             "ON i.id=j.input_id WHERE j.custom_id=?1 AND j.duplicate_of IS NULL",
                             e);
    if (!rc) rc = db_bind(db, s, e, "s", r->custom_id);
    bool row = false;
    if (!rc) rc = db_step(db, s, &row, e);
    if (rc || !row) return rc;
    k->id = sqlite3_column_int64(s, 0);
    k->input_id = sqlite3_column_int64(s, 1);
    k->line = sqlite3_column_int64(s, 2);
    const char *sha256 = (const char *)sqlite3_column_text(s, 3);
    k->same = r->spec.len && !strcmp(r->params_sha256, sha256);
    k->bad = !*sha256;
    k->gone = sqlite3_column_int(s, 5);
    rc = db_text(db, s, 4, &k->path, NULL, e);
    sqlite3_reset(s);
    return rc;
}

static enum status insert_images(struct db *db, int64_t job, const struct row *r, struct err *e)
{
    enum status rc = OK;
    for (size_t i = 0; i < r->n_images && !rc; i++) {
        const struct row_image *m = &r->images[i];
        rc = db_run(db, e,
                    "INSERT INTO job_images(job_id, n, ref, path, sha256, width, height, "
                    "orientation, tokens, bytes, decode_bytes, mtime_ns) VALUES(?1, ?2, ?3, ?4, "
                    "nullif(?5, ''), nullif(?6, 0), nullif(?7, 0), nullif(?8, 0), nullif(?9, 0), "
                    "nullif(?10, 0), nullif(?11, 0), nullif(?12, 0))",
                    "iisssiiiiiii", job, (int64_t)i, m->ref, m->path, m->sha256,
                    (int64_t)m->info.width, (int64_t)m->info.height, (int64_t)m->info.orientation,
                    (int64_t)m->info.rows, (int64_t)m->bytes, (int64_t)m->info.decode_bytes,
                    m->mtime_ns);
    }
    return rc;
}

static enum status insert_failure(struct db *db, int64_t job, const struct row *r, struct err *e)
{
    if (!r->code) return OK;
    return db_run(db, e,
                  "INSERT INTO results(job_id, attempt, code, message, prompt_tokens, "
                  "completion_tokens, prefill_s, decode_s, finished_at) "
                  "VALUES(?1, 0, ?2, ?3, 0, 0, 0, 0, unixepoch())",
                  "iss", job, status_name(r->code), r->message);
}

/* Attempts outlive their jobs: a new job gets a number that none of them has. */
static enum status insert(struct db *db, const struct row *r, const struct row_place *p,
                          int64_t duplicate_of, struct err *e)
{
    enum status rc =
        db_run(db, e,
               "INSERT INTO jobs(id, input_id, line, byte_offset, byte_length, custom_id, "
               "duplicate_of, spec, params_sha256, text_bytes, n_images, max_tokens, priority, "
               "state, place) VALUES(1+max((SELECT coalesce(max(id), 0) FROM jobs), (SELECT "
               "coalesce(max(job_id), 0) FROM attempts)), ?1, ?2, ?3, ?4, ?5, nullif(?6, 0), ?7, "
               "?8, ?9, ?10, ?11, ?12, ?13, ?14)",
               "iiiisitsiiiisi", p->input_id, (int64_t)r->line, (int64_t)r->offset, (int64_t)r->len,
               r->custom_id, duplicate_of, (const char *)r->spec.data, r->spec.len,
               r->params_sha256, (int64_t)r->text_bytes, (int64_t)r->n_images,
               (int64_t)r->max_tokens, r->priority, r->code ? "failed" : "pending", r->place);
    if (rc) return rc;
    int64_t id = db_last_id(db);
    rc = insert_images(db, id, r, e);
    return rc ? rc : insert_failure(db, id, r, e);
}

/* The same job, perhaps on another line or in another file: whatever is known about it stays. */
static enum status keep(struct db *db, const struct row *r, const struct row_place *p, int64_t id,
                        struct err *e)
{
    return db_run(
        db, e, "UPDATE jobs SET input_id=?2, line=?3, byte_offset=?4, byte_length=?5 WHERE id=?1",
        "iiiii", id, p->input_id, (int64_t)r->line, (int64_t)r->offset, (int64_t)r->len);
}

/* Another job under the same id: what is known about the old one goes, its attempts stay. */
static enum status replace(struct db *db, const struct row *r, const struct row_place *p,
                           int64_t id, struct err *e)
{
    static const char *const gone[] = {
        "DELETE FROM results WHERE job_id=?1",
        "DELETE FROM partial WHERE job_id=?1",
        "DELETE FROM job_images WHERE job_id=?1",
    };
    enum status rc = OK;
    for (size_t i = 0; i < sizeof gone / sizeof *gone && !rc; i++)
        rc = db_run(db, e, gone[i], "i", id);
    if (!rc)
        rc = db_run(db, e,
                    "UPDATE jobs SET line=?2, byte_offset=?3, byte_length=?4, spec=?5, "
                    "params_sha256=?6, text_bytes=?7, n_images=?8, max_tokens=?9, priority=?10, "
                    "state=?11, attempt=0, fence=fence+1, worker=NULL, lease_until_ms=NULL, "
                    "due_ms=NULL, place=?12, input_id=?13 WHERE id=?1",
                    "iiiitsiiiisii", id, (int64_t)r->line, (int64_t)r->offset, (int64_t)r->len,
                    (const char *)r->spec.data, r->spec.len, r->params_sha256,
                    (int64_t)r->text_bytes, (int64_t)r->n_images, (int64_t)r->max_tokens,
                    r->priority, r->code ? "failed" : "pending", r->place, p->input_id);
    if (!rc) rc = insert_images(db, id, r, e);
    return rc ? rc : insert_failure(db, id, r, e);
}

static enum status duplicate(struct db *db, struct row *r, const struct row_place *p,
                             const struct known *k, struct err *e)
{
    struct err why;
    if (k->input_id == p->input_id)
        err_set(&why, E_DUPLICATE_ID, "the id \"%.200s\" is on line %lld and again on line %lld",
                r->custom_id, (long long)k->line, (long long)r->line);
    else
        err_set(&why, E_DUPLICATE_ID,
                "the id \"%.200s\" is on line %lld of %s and again on line %lld of %s",
                r->custom_id, (long long)k->line, k->path, (long long)r->line, p->path);
    r->code = why.code;
    memcpy(r->message, why.text, sizeof r->message);
    return insert(db, r, p, k->id, e);
}

static enum status changed(struct db *db, struct row *r, const struct row_place *p,
                           const struct known *k, enum row_outcome *outcome, struct err *e)
{
    if (p->on_changed == ROW_KEEP) return OK;
    if (p->on_changed == ROW_ERROR)
        return err_set(e, E_INPUT, "%s is in the queue with another prompt or other settings",
                       r->custom_id);
    *outcome = ROW_REPLACED;
    r->line = (uint64_t)k->line;
    return replace(db, r, p, k->id, e);
}

enum status row_store(struct db *db, struct row *r, const struct row_place *p,
                      enum row_outcome *outcome, struct err *e)
{
    struct known k;
    enum status rc = find(db, r, &k, e);
    bool mine = k.id && k.input_id == p->input_id;
    *outcome = ROW_KNOWN;
    if (rc) goto out;
    if (!k.id) {
        *outcome = r->code ? ROW_BAD : ROW_ADDED;
        rc = insert(db, r, p, 0, e);
    } else if ((mine && k.line < 0) || (k.gone && !p->by_id)) {
        /* Of the file as it was before, or of another that lost it: see import.c. */
        *outcome = k.same ? ROW_KNOWN : ROW_REPLACED;
        rc = k.same ? keep(db, r, p, k.id, e) : replace(db, r, p, k.id, e);
    } else if (mine && p->by_id) {
        bool still_bad = k.bad && !r->spec.len;
        if (!k.same && !still_bad) rc = changed(db, r, p, &k, outcome, e);
    } else if (!mine && k.same) {
    } else if (!p->skip_duplicates) {
        *outcome = ROW_DUPLICATE;
        rc = duplicate(db, r, p, &k, e);
    }
out:
    free(k.path);
    return rc;
}
