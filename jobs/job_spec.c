/* The canonical spec, in this order, fields that are not given left out:
 *
 *     {"custom_id":"...","form":"short","model":"...","messages":[{"role":"user","name":"...",
 *      "reasoning_content":"...","parts":["text",0]}],"images":[{"path":"..."},{"at":1,"len":2,
 *      "mime":"image/png","bytes":3,"sha256":"..."}],"max_tokens":1,"temperature":0,"top_p":1,
 *      "top_k":0,"seed":0,"stop":["..."],"reasoning_effort":"none","response_format":{...},
 *      "metadata":...,"priority":0,"timeout_s":1}
 *
 * A part is a string or the number of an image. Fields with the names of the input forms are read
 * by their reader. */
#include "jobs/job_build.h"

#include <inttypes.h>
#include <string.h>

#define SPEC_DEPTH (JDOC_MAX_DEPTH + 4) /* a schema may lie one level deeper than in its line */

static const char *const role_names[] = {"system", "user", "assistant"};

static enum status put_text(struct buf *out, const char *name, const char *text, struct err *e)
{
    if (!text) return OK;
    enum status rc = buf_addf(out, e, ",\"%s\":", name);
    return rc ? rc : jdoc_quote(out, text, strlen(text), e);
}

static enum status put_message(const struct chat_message *m, size_t *image, struct buf *out,
                               struct err *e)
{
    enum status rc = buf_addf(out, e, "{\"role\":\"%s\"", role_names[m->role]);
    if (!rc) rc = put_text(out, "name", m->name, e);
    if (!rc) rc = put_text(out, "reasoning_content", m->reasoning, e);
    if (!rc) rc = buf_addf(out, e, ",\"parts\":[");
    for (size_t i = 0; i < m->n_parts && !rc; i++) {
        const struct chat_part *p = &m->parts[i];
        if (i) rc = buf_add(out, ",", 1, e);
        if (rc) break;
        rc = p->image ? buf_addf(out, e, "%zu", (*image)++) : jdoc_quote(out, p->text, p->len, e);
    }
    return rc ? rc : buf_add(out, "]}", 2, e);
}

static enum status put_image(const struct job_image *image, struct buf *out, struct err *e)
{
    enum status rc;
    if (image->ref) {
        rc = buf_addf(out, e, "{\"path\":");
        if (!rc) rc = jdoc_quote(out, image->ref, strlen(image->ref), e);
        return rc ? rc : buf_add(out, "}", 1, e);
    }
    rc = buf_addf(out, e, "{\"at\":%" PRIu64 ",\"len\":%" PRIu64, image->at, image->len);
    if (!rc) rc = put_text(out, "mime", image->mime, e);
    return rc ? rc
              : buf_addf(out, e, ",\"bytes\":%" PRIu64 ",\"sha256\":\"%s\"}", image->bytes,
                         image->sha256);
}

static enum status put_content(const struct job *j, struct buf *out, struct err *e)
{
    size_t image = 0;
    enum status rc = buf_addf(out, e, ",\"messages\":[");
    for (size_t i = 0; i < j->n_messages && !rc; i++) {
        if (i) rc = buf_add(out, ",", 1, e);
        if (!rc) rc = put_message(&j->messages[i], &image, out, e);
    }
    if (!rc) rc = buf_addf(out, e, "],\"images\":[");
    for (size_t i = 0; i < j->n_images && !rc; i++) {
        if (i) rc = buf_add(out, ",", 1, e);
        if (!rc) rc = put_image(&j->images[i], out, e);
    }
    return rc ? rc : buf_add(out, "]", 1, e);
}

static enum status put_real(struct buf *out, const char *name, double x, struct err *e)
{
    enum status rc = buf_addf(out, e, ",\"%s\":", name);
    return rc ? rc : jdoc_number(out, x, e);
}

static enum status put_stops(const struct job_settings *s, struct buf *out, struct err *e)
{
    enum status rc = buf_addf(out, e, ",\"stop\":[");
    for (size_t i = 0; i < s->n_stops && !rc; i++) {
        if (i) rc = buf_add(out, ",", 1, e);
        if (!rc) rc = jdoc_quote(out, s->stops[i], strlen(s->stops[i]), e);
    }
    return rc ? rc : buf_add(out, "]", 1, e);
}

static enum status put_settings(const struct job_settings *s, struct buf *out, struct err *e)
{
    enum status rc = OK;
    if (s->has & JOB_HAS_MAX_TOKENS)
        rc = buf_addf(out, e, ",\"max_tokens\":%" PRIu64, s->max_tokens);
    if (s->has & JOB_HAS_TEMPERATURE && !rc) rc = put_real(out, "temperature", s->temperature, e);
    if (s->has & JOB_HAS_TOP_P && !rc) rc = put_real(out, "top_p", s->top_p, e);
    if (s->has & JOB_HAS_TOP_K && !rc) rc = buf_addf(out, e, ",\"top_k\":%" PRIu32, s->top_k);
    if (s->has & JOB_HAS_SEED && !rc) rc = buf_addf(out, e, ",\"seed\":%" PRIu64, s->seed);
    if (s->has & JOB_HAS_STOP && !rc) rc = put_stops(s, out, e);
    if (s->has & JOB_HAS_EFFORT && !rc)
        rc = put_text(out, "reasoning_effort", s->effort ? s->effort : "none", e);
    return rc;
}

enum status job_spec(const struct job *j, struct buf *out, struct err *e)
{
    const struct job_settings *s = &j->settings;
    enum status rc = buf_addf(out, e, "{\"custom_id\":");
    if (!rc) rc = jdoc_quote(out, j->custom_id, strlen(j->custom_id), e);
    if (!rc) rc = put_text(out, "form", job_form_name(j->form), e);
    if (!rc) rc = put_text(out, "model", j->model, e);
    if (!rc) rc = put_content(j, out, e);
    if (!rc) rc = put_settings(s, out, e);
    if (j->format == CHAT_JSON_OBJECT && !rc)
        rc = buf_addf(out, e, ",\"response_format\":{\"type\":\"json_object\"}");
    if (j->format == CHAT_JSON_SCHEMA && !rc)
        rc = buf_addf(out, e,
                      ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
                      "{\"schema\":%s}}",
                      j->schema);
    if (j->metadata && !rc) rc = buf_addf(out, e, ",\"metadata\":%s", j->metadata);
    if (s->has & JOB_HAS_PRIORITY && !rc)
        rc = buf_addf(out, e, ",\"priority\":%" PRId64, s->priority);
    if (s->has & JOB_HAS_TIMEOUT && !rc) rc = put_real(out, "timeout_s", s->timeout_s, e);
    return rc ? rc : buf_add(out, "}", 1, e);
}

enum { SPEC_ID, SPEC_FORM, SPEC_MESSAGES, SPEC_IMAGES, SPEC_COUNT };
static const struct job_field spec_fields[SPEC_COUNT] = {
    [SPEC_ID] = {"custom_id", JOB_TAKE},
    [SPEC_FORM] = {"form", JOB_TAKE},
    [SPEC_MESSAGES] = {"messages", JOB_TAKE},
    [SPEC_IMAGES] = {"images", JOB_TAKE},
};

static enum status read_form(struct job_builder *b, uint32_t v)
{
    for (int i = 0; i < JOB_FORMS; i++) {
        if (!jdoc_is(b->doc, v, job_form_name((enum job_form)i))) continue;
        b->job->form = (enum job_form)i;
        return OK;
    }
    return job_bad(b, "form", "the name of a form", v);
}

static enum status read_inline(struct job_builder *b, const uint32_t *values, uint32_t v,
                               struct job_image *image)
{
    const char *sha = NULL;
    const struct jdoc *j = b->doc;
    size_t n = 0;
    if (!jdoc_u64(j, values[1], &image->at) || !jdoc_u64(j, values[2], &image->len) ||
        !jdoc_u64(j, values[4], &image->bytes))
        return job_bad(b, "images", "at, len and bytes", v);
    enum status rc = job_string(b, values[3], "images.mime", &image->mime, NULL);
    if (!rc) rc = job_string(b, values[5], "images.sha256", &sha, &n);
    if (rc) return rc;
    if (n != JOB_SHA_CHARS - 1 || strspn(sha, "0123456789abcdef") != n)
        return job_bad(b, "images.sha256", "64 hex digits", values[5]);
    memcpy(image->sha256, sha, JOB_SHA_CHARS);
    return OK;
}

static enum status read_image(struct job_builder *b, uint32_t v, struct job_image *image)
{
    static const struct job_field fields[] = {{"path", JOB_TAKE},  {"at", JOB_TAKE},
                                              {"len", JOB_TAKE},   {"mime", JOB_TAKE},
                                              {"bytes", JOB_TAKE}, {"sha256", JOB_TAKE}};
    uint32_t values[6] = {0};
    struct job_field_set set = {fields, 6, values};
    enum status rc = job_fields(b, v, "images", &set, 1);
    if (rc) return rc;
    if (!values[0]) return read_inline(b, values, v, image);
    image->mime = "";
    return job_string(b, values[0], "images.path", &image->ref, NULL);
}

static enum status read_images(struct job_builder *b, uint32_t v)
{
    struct job *job = b->job;
    if (b->doc->values[v].type != JDOC_ARRAY || b->doc->values[v].count > JOB_MAX_IMAGES)
        return job_bad(b, "images", "an array of images", v);
    enum status rc =
        job_alloc(job, &job->images, b->doc->values[v].count * sizeof *job->images, b->e);
    for (v = jdoc_first(b->doc, v); v && !rc; v = b->doc->values[v].next)
        rc = read_image(b, v, &job->images[job->n_images++]);
    return rc;
}

static enum status read_parts(struct job_builder *b, uint32_t v, struct chat_message *m,
                              size_t *image)
{
    const struct jdoc *j = b->doc;
    struct chat_part *part;
    if (j->values[v].type != JDOC_ARRAY) return job_bad(b, "parts", "an array", v);
    enum status rc = job_alloc(b->job, &part, j->values[v].count * sizeof *part, b->e);
    if (rc) return rc;
    m->parts = part;
    m->n_parts = j->values[v].count;
    for (v = jdoc_first(j, v); v && !rc; v = j->values[v].next, part++) {
        uint64_t n;
        part->image = jdoc_u64(j, v, &n);
        if (!part->image) {
            rc = job_string(b, v, "parts", &part->text, &part->len);
        } else if (n != *image || n >= b->job->n_images) {
            rc = job_bad(b, "parts", "images in order", v);
        } else {
            b->job->images[(*image)++].part = part;
        }
    }
    return rc;
}

static enum status read_message(struct job_builder *b, uint32_t v, size_t *image)
{
    static const struct job_field fields[] = {{"role", JOB_TAKE},
                                              {"name", JOB_TAKE},
                                              {"reasoning_content", JOB_TAKE},
                                              {"parts", JOB_TAKE}};
    uint32_t values[4] = {0};
    struct job_field_set set = {fields, 4, values};
    struct chat_message *m;
    enum status rc = job_fields(b, v, "messages", &set, 1);
    if (rc) return rc;
    int role = 0;
    while (role < 3 && !jdoc_is(b->doc, values[0], role_names[role])) role++;
    if (role == 3) return job_bad(b, "messages.role", "a role", v);
    rc = job_add_message(b, (enum chat_role)role, &m);
    if (values[1] && !rc) rc = job_string(b, values[1], "name", &m->name, NULL);
    if (values[2] && !rc) rc = job_string(b, values[2], "reasoning_content", &m->reasoning, NULL);
    return rc ? rc : read_parts(b, values[3], m, image);
}

static enum status read_messages(struct job_builder *b, uint32_t v)
{
    size_t image = 0;
    enum status rc = OK;
    if (b->doc->values[v].type != JDOC_ARRAY) return job_bad(b, "messages", "an array", v);
    for (v = jdoc_first(b->doc, v); v && !rc; v = b->doc->values[v].next)
        rc = read_message(b, v, &image);
    if (!rc && image != b->job->n_images)
        rc = err_set(b->e, E_INVALID_REQUEST, "%zu images, but the messages show %zu",
                     b->job->n_images, image);
    return rc;
}

static enum status read_spec(struct job_builder *b)
{
    uint32_t own[SPEC_COUNT] = {0}, settings[SET_COUNT] = {0}, line[LINE_COUNT] = {0};
    struct job_field_set sets[] = {{spec_fields, SPEC_COUNT, own},
                                   {job_setting_fields, SET_COUNT, settings},
                                   {job_line_fields, LINE_COUNT, line}};
    enum status rc = job_fields(b, 0, "", sets, 3);
    if (!rc) rc = job_string(b, own[SPEC_ID], "custom_id", &b->job->custom_id, NULL);
    if (!rc) rc = read_form(b, own[SPEC_FORM]);
    if (!rc) rc = read_images(b, own[SPEC_IMAGES]);
    if (!rc) rc = read_messages(b, own[SPEC_MESSAGES]);
    if (!rc) rc = job_read_settings(b, "", settings);
    if (!rc) rc = job_read_line_settings(b, "", line);
    return rc;
}

enum status job_from_spec(struct job *out, const char *spec, size_t len, struct err *e)
{
    struct jdoc doc = {.depth = SPEC_DEPTH};
    struct job_builder b = {.job = out, .doc = &doc, .e = e};
    *out = (struct job){0};
    enum status rc = jdoc_parse(&doc, spec, len, e);
    if (!rc) rc = read_spec(&b);
    jdoc_free(&doc);
    if (!rc || rc == E_NOMEM) return rc;
    err_wrap(e, "job spec");
    if (e) e->code = E_DB;
    return E_DB;
}
