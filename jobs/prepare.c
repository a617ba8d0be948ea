/* What is done to a job before the engine sees it. */
#include "jobs/prepare.h"

#include "jobs/jdoc.h"
#include "jobs/share.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct prepare {
    struct prepare_opts o;
    struct image_store *store;
    atomic_bool stopping;
};

enum status prepare_open(struct prepare **out, const struct prepare_opts *o, struct err *e)
{
    struct prepare *p = *out = calloc(1, sizeof *p);
    if (!p) return err_set(e, E_NOMEM, "preparing: no memory");
    p->o = *o;
    enum status rc = image_store_open(&p->store, o->mem, o->image_bytes, e);
    if (rc) {
        free(p);
        *out = NULL;
    }
    return rc;
}

void prepare_close(struct prepare *p)
{
    if (!p) return;
    image_store_close(p->store);
    free(p);
}

void prepare_stop(struct prepare *p)
{
    atomic_store(&p->stopping, true);
    image_store_wake(p->store);
}

bool prepare_full(const struct prepare *p)
{
    return image_store_full(p->store);
}

void prepare_times(const struct prepare *p, struct vision_times *out)
{
    *out = (struct vision_times){0};
    if (p->o.times) p->o.times(p->o.vision, out);
}

static size_t borrowed_by(const struct ready *r)
{
    size_t bytes = 0;
    for (size_t i = 0; i < r->n_images; i++)
        if (r->rows[i]) bytes += r->rows[i]->bytes;
    return bytes;
}

/* After E_BUDGET: true when other jobs' pictures were given back meanwhile, so that another try
 * makes sense; else the picture alone is too large for this run. */
static bool try_again(struct prepare *p, const struct ready *r, enum status *rc, struct err *e)
{
    if (*rc != E_BUDGET) return false;
    if (atomic_load(&p->stopping)) {
        *rc = err_set(e, E_STOPPED, "stopped");
        return false;
    }
    if (image_store_relieve(p->store, borrowed_by(r))) return true;
    struct err why = *e;
    *rc = err_set(e, E_IMAGE_TOO_LARGE, "%s", why.text);
    return false;
}

/* With how much more memory the plan would have set aside what this picture needs. */
static void tell_ram(const struct prepare *p, uint64_t need, struct err *e)
{
    uint64_t have = p->o.picture_bytes;
    if (!p->o.ram_bytes || need <= have) return;
    err_set(e, E_IMAGE_TOO_LARGE,
            "the picture needs %" PRIu64 " MB to be decoded, %" PRIu64
            " MB are set aside for that; --ram %" PRIu64 "M has room for it",
            (need >> 20) + 1, have >> 20, ((p->o.ram_bytes + need - have) >> 20) + 1);
}

static enum status encode(struct prepare *p, struct ready *r, size_t i,
                          const struct image_ref_bytes *b, struct err *e)
{
    struct picture_info info = {0};
    float *rows;
    enum status rc;
    struct spool *spool = i < r->from->n_images && r->from->images[i].shared ? p->o.spool : NULL;
    image_store_room(p->store, 0, borrowed_by(r));
    do {
        rows = NULL;
        rc = spool ? spool_get(spool, b->sha256, p->o.mem, &info, &rows, e) : OK;
        if (rc || rows) continue;
        rc = p->o.encode(p->o.vision, b->at, b->len, &info, &rows, e);
        if (!rc && spool) spool_put(spool, b->sha256, &info, rows);
    } while (try_again(p, r, &rc, e));
    if (rc == E_IMAGE_TOO_LARGE && info.decode_bytes) tell_ram(p, b->len + info.decode_bytes, e);
    if (rc) return rc;
    size_t bytes = info.rows * p->o.config->hidden * sizeof *rows;
    return image_store_put(p->store, &r->rows[i], b->sha256, &info, rows, bytes, e);
}

static enum status warnings_json(char **out, const struct picture_info *info, struct err *e)
{
    struct buf b = {0};
    enum status rc = buf_addf(&b, e, "[");
    for (unsigned k = 0; k < info->n_warnings && !rc; k++) {
        if (k) rc = buf_addf(&b, e, ",");
        if (!rc) rc = jdoc_quote(&b, info->warnings[k], strlen(info->warnings[k]), e);
    }
    if (!rc) rc = buf_addf(&b, e, "]");
    if (rc) buf_free(&b);
    *out = b.data;
    return rc;
}

/* By size and time: is the file that of the import? Then its hash is known without reading it. */
static enum status check_stat(const struct queue_image *known, struct image_ref_bytes *b,
                              struct err *e)
{
    uint64_t bytes;
    int64_t mtime_ns;
    enum status rc = image_ref_stat(known->path, &bytes, &mtime_ns, e);
    if (rc) return rc;
    if (bytes != (uint64_t)known->bytes)
        return err_set(e, E_IMAGE_CHANGED,
                       "%s changed since it was imported: it had %" PRId64
                       " bytes and has %" PRIu64,
                       known->path, known->bytes, bytes);
    if (mtime_ns != known->mtime_ns)
        return err_set(e, E_IMAGE_CHANGED,
                       "%s was written to since it was imported; --verify-images content compares "
                       "the bytes instead",
                       known->path);
    b->trusted = true;
    memcpy(b->sha256, known->sha256, sizeof b->sha256);
    return OK;
}

/* The bytes, and that they are those of the import. */
static enum status load(struct prepare *p, struct ready *r, size_t i, struct image_ref_bytes *b,
                        struct err *e)
{
    const struct queue_job *q = r->from;
    const struct queue_image *known = i < q->n_images ? &q->images[i] : NULL;
    struct image_ref_source source = {.path = q->source, .line_offset = (uint64_t)q->offset};
    const struct job_image *image = &r->job.images[i];
    char *found = NULL;
    const char *path = known ? known->path : NULL;
    enum status rc = OK;
    if (image->ref && !path) {
        rc = image_ref_resolve(&p->o.images, &source, image->ref, &found, e);
        path = found;
    }
    if (!rc) {
        do {
            rc = image_ref_load(b, &p->o.images, &source, image, path, e);
        } while (try_again(p, r, &rc, e));
        r->transient = rc == E_IMAGE_UNREADABLE;
    }
    if (!rc && known && known->sha256[0] && strcmp(known->sha256, b->sha256) != 0 &&
        !p->o.keep_changed)
        rc = err_set(e, E_IMAGE_CHANGED, "%s changed since it was imported",
                     image->ref ? image->ref : "the inline image");
    r->facts[i].path = found;
    return rc;
}

static enum status note_facts(struct ready *r, size_t i, struct err *e)
{
    const struct picture_info *info = &r->rows[i]->info;
    char *warnings;
    enum status rc = warnings_json(&warnings, info, e);
    if (rc) return rc;
    struct result_image *f = &r->facts[i];
    *f = (struct result_image){.width = info->width,
                               .height = info->height,
                               .orientation = info->orientation,
                               .tokens = info->rows,
                               .warnings = warnings,
                               .path = f->path};
    memcpy(f->sha256, r->rows[i]->sha256, sizeof f->sha256);
    r->n_facts = i + 1;
    job_set_image_size(&r->job, i, info->width, info->height);
    return OK;
}

static enum status image(struct prepare *p, struct ready *r, size_t i, struct err *e)
{
    struct image_ref_bytes b = {.mem = p->o.mem};
    const struct queue_image *known = i < r->from->n_images ? &r->from->images[i] : NULL;
    enum status rc = OK;
    if (p->o.verify_stat && !p->o.keep_changed && known && known->path && known->sha256[0] &&
        known->mtime_ns)
        rc = check_stat(known, &b, e);
    if (!rc && b.trusted) r->rows[i] = image_store_get(p->store, b.sha256);
    if (!rc && !r->rows[i]) {
        rc = load(p, r, i, &b, e);
        if (!rc) r->rows[i] = image_store_get(p->store, b.sha256);
        if (!rc && !r->rows[i]) rc = encode(p, r, i, &b, e);
    }
    if (!rc) rc = note_facts(r, i, e);
    if (rc && status_fault(rc) == FAULT_JOB && r->job.n_images > 1) err_wrap(e, "image %zu", i + 1);
    if (b.at) mem_free(p->o.mem, b.at);
    return rc;
}

static enum status images(struct prepare *p, struct ready *r, struct err *e)
{
    size_t n = r->job.n_images;
    if (n == 0) return OK;
    if (!p->o.encode)
        return err_set(e, E_INVALID_REQUEST, "the job has %zu images, the model takes none", n);
    r->images = calloc(n, sizeof *r->images);
    r->rows = calloc(n, sizeof *r->rows);
    r->facts = calloc(n, sizeof *r->facts);
    if (!r->images || !r->rows || !r->facts)
        return err_set(e, E_NOMEM, "no memory for the pictures of a job");
    r->n_images = n;
    enum status rc = OK;
    for (size_t i = 0; i < n && !rc; i++) rc = image(p, r, i, e);
    return rc;
}

static enum status hash_rows(struct ready *r, struct err *e)
{
    const struct ids *ids = &r->prompt.ids;
    r->row_hash = calloc(ids->n + 1, sizeof *r->row_hash);
    if (!r->row_hash) return err_set(e, E_NOMEM, "no memory for a prompt");
    for (size_t i = 0; i < ids->n; i++) r->row_hash[i] = share_token(ids->at[i]);
    for (size_t i = 0; i < r->n_images; i++)
        for (size_t k = 0; k < r->images[i].n; k++)
            r->row_hash[r->images[i].first + k] = share_picture(r->facts[i].sha256, k);
    return OK;
}

enum status prepare_prompt(const struct prepare_opts *o, const struct job *j, const unsigned *rows,
                           struct prompt *out, struct err *e)
{
    struct chat_options c = {
        .thinking = j->settings.effort != NULL,
        .effort = j->settings.effort,
        .format = j->format,
        .schema = j->schema,
    };
    struct chat_prompt chat = {0};
    enum status rc = chat_render(&chat, j->messages, j->n_messages, &c, e);
    if (!rc) rc = prompt_build(out, o->tok, &chat, o->config->media_pad, rows, j->n_images, e);
    chat_prompt_free(&chat);
    return rc;
}

static enum status prompt(struct prepare *p, struct ready *r, struct err *e)
{
    unsigned *rows = calloc(r->n_images + 1, sizeof *rows);
    if (!rows) return err_set(e, E_NOMEM, "no memory for a prompt");
    for (size_t i = 0; i < r->n_images; i++) rows[i] = r->rows[i]->info.rows;
    enum status rc = prepare_prompt(&p->o, &r->job, rows, &r->prompt, e);
    for (size_t i = 0; i < r->n_images && !rc; i++)
        r->images[i] = (struct engine_image){
            .first = r->prompt.images[i].first, .n = rows[i], .rows = r->rows[i]->rows};
    if (!rc) rc = hash_rows(r, e);
    free(rows);
    return rc;
}

/* "kimi-k3", "moonshotai/kimi-k3" and "Kimi-K3" all mean a model folder kimi-k3. */
enum status prepare_model(const struct prepare_opts *o, const struct job *j, struct err *e)
{
    if (!j->model || !o->model_name) return OK;
    const char *slash = strrchr(j->model, '/');
    const char *asked = slash ? slash + 1 : j->model;
    if (!strcasecmp(asked, o->model_name) || !strcasecmp(asked, o->config->model_type) ||
        !strcasecmp(asked, o->config->architecture))
        return OK;
    return err_set(e, E_INVALID_REQUEST, "the job asks for model \"%.100s\", loaded is \"%.100s\"",
                   j->model, o->model_name);
}

/* A spec that cannot be read is its job's fault: the others have theirs. */
static enum status read_spec(struct ready *r, struct err *e)
{
    enum status rc = job_from_spec(&r->job, r->from->spec, r->from->spec_len, e);
    if (rc == E_DB) rc = e->code = E_INVALID_REQUEST;
    return rc;
}

void prepare_job(struct prepare *p, struct ready *r)
{
    *r = (struct ready){.from = r->from};
    struct err *e = &r->err;
    enum status rc = read_spec(r, e);
    if (!rc) rc = prepare_model(&p->o, &r->job, e);
    if (!rc) rc = images(p, r, e);
    if (!rc) rc = prompt(p, r, e);
    e->code = rc;
    if (rc) ready_drop_rows(p, r);
}

void ready_drop_rows(struct prepare *p, struct ready *r)
{
    for (size_t i = 0; i < r->n_images; i++) {
        image_store_release(p->store, r->rows[i]);
        r->rows[i] = NULL;
    }
}

void ready_free(struct prepare *p, struct ready *r)
{
    ready_drop_rows(p, r);
    for (size_t i = 0; i < r->n_images; i++) {
        free((char *)(uintptr_t)r->facts[i].warnings);
        free((char *)(uintptr_t)r->facts[i].path);
    }
    free(r->row_hash);
    free(r->facts);
    free(r->rows);
    free(r->images);
    prompt_free(&r->prompt);
    job_free(&r->job);
    *r = (struct ready){0};
}
