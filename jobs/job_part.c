/* The parts of messages: text, and images as paths or inline, in the spellings of OpenAI
 * (image_url), Anthropic (image with source) and the short form ({"type": "image", "image": path}).
 *
 * Inline base64 is decoded here once, to check and hash it; its bytes are not kept. */
#include "jobs/job_build.h"

#include "jobs/base64.h"
#include "jobs/image_ref.h"

#include <inttypes.h>
#include <sha256.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MARKER       "<image>"
#define MAX_REF      4096
#define PREFIX_BYTES 256 /* of a data: URL, up to its comma */

/* Parts of one message while they are collected; they stay in place once it is complete. */
struct parts {
    struct chat_part *at;
    size_t n, cap;
};

static enum status add_part(struct job_builder *b, struct parts *p, const struct chat_part *part)
{
    void *at = p->at;
    enum status rc = job_grow(b->job, &(struct job_array){&at, p->n, &p->cap, sizeof *part}, b->e);
    if (rc) return rc;
    p->at = at;
    p->at[p->n++] = *part;
    return OK;
}

static enum status add_text(struct job_builder *b, struct parts *p, const char *text, size_t len)
{
    if (len == 0) return OK;
    return add_part(b, p, &(struct chat_part){.text = text, .len = len});
}

/* Decode the base64 text of an inline image for its size and hash. */
static enum status hash_inline(struct job_builder *b, struct job_image *image)
{
    struct base64 base64 = {0};
    unsigned char out[BASE64_ROOM(4096)];
    SHA2_CTX sha;
    SHA256Init(&sha);
    for (uint64_t done = 0; done < image->len;) {
        size_t n, step = image->len - done < 4096 ? (size_t)(image->len - done) : 4096;
        enum status rc = base64_push(&base64, b->doc->text + image->at + done, step, out, &n, b->e);
        if (rc) return rc;
        SHA256Update(&sha, out, n);
        image->bytes += n;
        done += step;
    }
    SHA256End(&sha, image->sha256);
    return base64_end(&base64, b->e);
}

static enum status read_inline(struct job_builder *b, struct job_image *image, const char *where)
{
    enum status rc = hash_inline(b, image);
    if (!rc && image->bytes == 0) rc = err_set(b->e, E_IMAGE_UNREADABLE, "inline image: no bytes");
    if (rc) err_wrap(b->e, "%s", where);
    return rc;
}

/* data:[type][;name=value...];base64,text */
static enum status read_data_url(struct job_builder *b, uint32_t v, const char *where,
                                 struct job_image *image)
{
    static const char expected[] = "a data: URL as data:image/...;base64,...";
    const struct jdoc_value *x = &b->doc->values[v];
    const char *text = b->doc->text + x->at;
    const char *comma = memchr(text, ',', x->len < PREFIX_BYTES ? x->len : PREFIX_BYTES);
    if (!comma) return job_bad(b, where, expected, v);

    /* The prefix alone, as a string of its own: it may have escapes. */
    struct jdoc_value prefix = *x;
    prefix.len = (uint32_t)(comma - text);
    struct jdoc one = {.text = b->doc->text, .values = &prefix, .n = 1};
    char buf[PREFIX_BYTES + 1];
    size_t n = jdoc_unescape(&one, 0, buf);
    if (n < 12 || strcasecmp(buf + n - 7, ";base64")) return job_bad(b, where, expected, v);
    const char *mime = buf + 5;
    enum status rc = job_copy(b->job, &image->mime, mime, strcspn(mime, ";"), b->e);
    if (rc) return rc;
    image->at = x->at + (uint64_t)(comma + 1 - text);
    image->len = x->len - (uint64_t)(comma + 1 - text);
    return read_inline(b, image, where);
}

static enum status add_image(struct job_builder *b, struct parts *p, const struct job_image *image,
                             const char *where)
{
    struct job *j = b->job;
    void *at = j->images;
    if (j->n_images == JOB_MAX_IMAGES)
        return err_set(b->e, E_INVALID_REQUEST, "%s: more than %d images in one job", where,
                       JOB_MAX_IMAGES);
    enum status rc =
        job_grow(j, &(struct job_array){&at, j->n_images, &b->images_cap, sizeof *image}, b->e);
    if (rc) return rc;
    j->images = at;
    j->images[j->n_images++] = *image;
    return add_part(b, p, &(struct chat_part){.image = true});
}

/* An image by a string: a data: URL or a path. */
static enum status add_image_string(struct job_builder *b, struct parts *p, uint32_t v,
                                    const char *where)
{
    struct job_image image = {.mime = ""};
    const struct jdoc_value *x = &b->doc->values[v];
    enum status rc;
    if (x->type == JDOC_STRING && x->len >= 5 && !strncasecmp(b->doc->text + x->at, "data:", 5)) {
        rc = read_data_url(b, v, where, &image);
    } else if (x->type == JDOC_STRING && x->len > MAX_REF) {
        return job_bad(b, where, "a path of at most 4096 bytes", v);
    } else {
        rc = job_string(b, v, where, &image.ref, NULL);
        if (!rc) rc = image_ref_check(image.ref, b->e);
        if (rc == E_INVALID_REQUEST && image.ref) err_wrap(b->e, "%s", where);
    }
    return rc ? rc : add_image(b, p, &image, where);
}

/* {"type": "base64", "media_type": ..., "data": ...} or {"type": "url", "url": ...} */
static enum status add_source(struct job_builder *b, struct parts *p, uint32_t v, const char *where)
{
    static const struct job_field fields[] = {
        {"type", JOB_TAKE}, {"media_type", JOB_TAKE}, {"data", JOB_TAKE}, {"url", JOB_TAKE}};
    uint32_t values[4] = {0};
    struct job_field_set set = {fields, 4, values};
    enum status rc = job_fields(b, v, where, &set, 1);
    if (rc) return rc;
    char path[JOB_PATH_CHARS];
    if (jdoc_is(b->doc, values[0], "url") && values[3]) {
        job_path(path, where, "url");
        return add_image_string(b, p, values[3], path);
    }
    if (!jdoc_is(b->doc, values[0], "base64") || !values[2])
        return job_bad(b, where, "a source of type base64 with data, or of type url with url", v);
    const struct jdoc_value *x = &b->doc->values[values[2]];
    job_path(path, where, "data");
    if (x->type != JDOC_STRING) return job_bad(b, path, "a string", values[2]);
    struct job_image image = {.at = x->at, .len = x->len, .mime = ""};
    if (values[1]) rc = job_string(b, values[1], where, &image.mime, NULL);
    if (!rc) rc = read_inline(b, &image, path);
    return rc ? rc : add_image(b, p, &image, where);
}

static enum status add_marked(struct job_builder *b, struct parts *p)
{
    uint32_t v = b->marked;
    b->n_markers++;
    if (!v) return OK; /* counted; job_add_messages compares */
    b->marked = b->doc->values[v].next;
    return add_image_string(b, p, v, b->images);
}

/* Text in which markers stand for images, when the form has them. */
static enum status add_marked_text(struct job_builder *b, struct parts *p, const char *text,
                                   size_t len)
{
    const char *end = text + len, *m;
    enum status rc = OK;
    while (!rc && b->has_markers && (m = strstr(text, MARKER))) {
        rc = add_text(b, p, text, (size_t)(m - text));
        if (!rc) rc = add_marked(b, p);
        text = m + strlen(MARKER);
    }
    return rc ? rc : add_text(b, p, text, (size_t)(end - text));
}

enum { PART_TYPE, PART_TEXT, PART_URL, PART_SOURCE, PART_IMAGE, PART_THINKING, PART_COUNT };
static const struct job_field part_fields[] = {
    [PART_TYPE] = {"type", JOB_TAKE},
    [PART_TEXT] = {"text", JOB_TAKE},
    [PART_URL] = {"image_url", JOB_TAKE},
    [PART_SOURCE] = {"source", JOB_TAKE},
    [PART_IMAGE] = {"image", JOB_TAKE},
    [PART_THINKING] = {"thinking", JOB_TAKE},
    {"cache_control", JOB_IGNORE},
    {"signature", JOB_IGNORE},
    {"citations", JOB_IGNORE},
    {"uuid", JOB_IGNORE},
};

static enum status add_image_url(struct job_builder *b, struct parts *p, uint32_t v,
                                 const char *where)
{
    static const struct job_field fields[] = {{"url", JOB_TAKE}, {"detail", JOB_IGNORE}};
    uint32_t values[2] = {0};
    char path[JOB_PATH_CHARS], inner[JOB_PATH_CHARS];
    job_path(path, where, "image_url");
    if (b->doc->values[v].type != JDOC_OBJECT) return add_image_string(b, p, v, path);
    struct job_field_set set = {fields, 2, values};
    enum status rc = job_fields(b, v, path, &set, 1);
    if (rc) return rc;
    if (!values[0]) return job_bad(b, path, "an object with url", v);
    job_path(inner, path, "url");
    return add_image_string(b, p, values[0], inner);
}

static enum status add_image_part(struct job_builder *b, struct parts *p, const uint32_t *values,
                                  const char *where)
{
    char path[JOB_PATH_CHARS];
    if (values[PART_SOURCE]) {
        job_path(path, where, "source");
        return add_source(b, p, values[PART_SOURCE], path);
    }
    if (values[PART_IMAGE]) {
        job_path(path, where, "image");
        return add_image_string(b, p, values[PART_IMAGE], path);
    }
    if (b->has_markers) return add_marked(b, p);
    return err_set(b->e, E_INVALID_REQUEST, "%s: an image part without source or image", where);
}

/* Earlier reasoning as a part of its own (Anthropic) joins the message's. */
static enum status add_thinking(struct job_builder *b, uint32_t v, const char *where,
                                struct chat_message *m)
{
    const char *text;
    size_t len, before = m->reasoning ? strlen(m->reasoning) : 0;
    enum status rc = job_string(b, v, where, &text, &len);
    if (rc || !before) {
        if (!rc) m->reasoning = text;
        return rc;
    }
    char *both;
    rc = job_alloc(b->job, &both, before + len + 1, b->e);
    if (rc) return rc;
    memcpy(both, m->reasoning, before);
    memcpy(both + before, text, len);
    m->reasoning = both;
    return OK;
}

static enum status read_part(struct job_builder *b, uint32_t v, const char *where,
                             struct chat_message *m, struct parts *p)
{
    uint32_t values[PART_COUNT] = {0};
    struct job_field_set set = {part_fields, sizeof part_fields / sizeof *part_fields, values};
    const struct jdoc *j = b->doc;
    uint32_t type = jdoc_member(j, v, "type");
    char path[JOB_PATH_CHARS];
    static const char *const known[] = {"text", "image_url", "image", "thinking"};
    bool is[4] = {false};
    for (int i = 0; i < 4 && type; i++) is[i] = jdoc_is(j, type, known[i]);
    job_path(path, where, "type");
    if (j->values[v].type != JDOC_OBJECT || !type || j->values[type].type != JDOC_STRING)
        return job_bad(b, where, "a part as an object with a type", v);
    if (!is[0] && !is[1] && !is[2] && !(is[3] && m->role == CHAT_ASSISTANT)) {
        return job_refuse(b, E_UNSUPPORTED_FIELD, path, "text, image_url or image", type);
    }
    enum status rc = job_fields(b, v, where, &set, 1);
    if (rc) return rc;
    if (is[2]) return add_image_part(b, p, values, where);
    uint32_t need = values[is[0] ? PART_TEXT : is[1] ? PART_URL : PART_THINKING];
    if (!need) return job_bad(b, where, "the field that its type names", v);
    if (is[1]) return add_image_url(b, p, need, where);
    job_path(path, where, is[0] ? "text" : "thinking");
    if (is[3]) return add_thinking(b, need, path, m);
    const char *text;
    size_t len;
    rc = job_string(b, need, path, &text, &len);
    return rc ? rc : add_marked_text(b, p, text, len);
}

static void finish_message(struct job_builder *b, struct chat_message *m, const struct parts *p,
                           size_t first_image)
{
    m->parts = p->at;
    m->n_parts = p->n;
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].image) b->job->images[first_image++].part = &p->at[i];
}

enum status job_add_content(struct job_builder *b, uint32_t content, const char *where,
                            struct chat_message *m)
{
    const struct jdoc *j = b->doc;
    struct parts p = {0};
    size_t first_image = b->job->n_images;
    enum status rc = OK;
    const char *text;
    size_t len, i = 0;
    if (j->values[content].type == JDOC_STRING) {
        rc = job_string(b, content, where, &text, &len);
        if (!rc) rc = add_marked_text(b, &p, text, len);
    } else if (j->values[content].type == JDOC_ARRAY) {
        for (uint32_t v = jdoc_first(j, content); v && !rc; v = j->values[v].next) {
            char path[JOB_PATH_CHARS];
            snprintf(path, sizeof path, "%s[%zu]", where, i++);
            rc = read_part(b, v, path, m, &p);
        }
    } else {
        rc = job_bad(b, where, "a string or an array of parts", content);
    }
    if (!rc) finish_message(b, m, &p, first_image);
    return rc;
}

enum status job_add_shown(struct job_builder *b, const struct job_shown *s)
{
    const struct jdoc *j = b->doc;
    struct chat_message *m;
    struct parts p = {0};
    enum status rc = job_add_message(b, CHAT_USER, &m);
    if (rc) return rc;
    if (s->ref) {
        rc = add_image(b, &p, &(struct job_image){.ref = s->ref, .mime = ""}, "image");
    } else if (s->images && j->values[s->images].type == JDOC_ARRAY) {
        size_t i = 0;
        for (uint32_t v = jdoc_first(j, s->images); v && !rc; v = j->values[v].next) {
            char path[JOB_PATH_CHARS];
            snprintf(path, sizeof path, "%s[%zu]", s->where, i++);
            rc = add_image_string(b, &p, v, path);
        }
    } else if (s->images) {
        rc = add_image_string(b, &p, s->images, s->where);
    }
    if (!rc) rc = add_text(b, &p, s->text, strlen(s->text));
    if (!rc) finish_message(b, m, &p, 0);
    return rc;
}
