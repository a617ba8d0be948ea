/* The forms of a line: which one it is, what its fields are, and the job they make.
 *
 * The id is read first, so that a bad job can still be named. */
#include "jobs/job_build.h"

#include <sha2.h>
#include <string.h>

#define N(fields) (sizeof(fields) / sizeof *(fields))

static enum status read_id(struct job_builder *b)
{
    const struct jdoc *j = b->doc;
    uint32_t custom = jdoc_member(j, 0, "custom_id"), id = jdoc_member(j, 0, "id");
    if (custom && j->values[custom].type == JDOC_NULL) custom = 0;
    if (id && j->values[id].type == JDOC_NULL) id = 0;
    if (custom && id) return job_bad(b, "id", "only one of id and custom_id", id);
    uint32_t v = custom ? custom : id;
    const char *name = custom ? "custom_id" : "id";
    if (!v) return err_set(b->e, E_INVALID_REQUEST, "custom_id is missing");
    const struct jdoc_value *x = &j->values[v];
    if (x->type == JDOC_NUMBER && x->len <= JOB_ID_MAX)
        return job_copy(b->job, &b->job->custom_id, j->text + x->at, x->len, b->e);
    if (x->type != JDOC_STRING || x->len == 0)
        return job_bad(b, name, "a string that is not empty, or a number", v);
    const char *text;
    size_t len;
    enum status rc = job_string(b, v, name, &text, &len);
    if (rc) return rc;
    if (len > JOB_ID_MAX)
        return err_set(b->e, E_INVALID_REQUEST, "%s: expected at most %d bytes, found %zu", name,
                       JOB_ID_MAX, len);
    b->job->custom_id = text;
    return OK;
}

static bool has_system(const struct jdoc *j, uint32_t messages)
{
    if (j->values[messages].type != JDOC_ARRAY) return false;
    for (uint32_t m = jdoc_first(j, messages); m; m = j->values[m].next) {
        uint32_t role = jdoc_member(j, m, "role");
        if (role && (jdoc_is(j, role, "system") || jdoc_is(j, role, "developer"))) return true;
    }
    return false;
}

/* The system message from a field of the form, else from the options unless messages has one. */
static enum status add_system(struct job_builder *b, uint32_t v, const char *where,
                              uint32_t messages)
{
    struct chat_message *m;
    const char *text = b->opts ? b->opts->system : NULL;
    bool given = messages && has_system(b->doc, messages);
    if (v && given) return job_bad(b, where, "no system message in messages beside it", v);
    if (!v && (given || !text || !*text)) return OK;
    enum status rc = job_add_message(b, CHAT_SYSTEM, &m);
    if (rc || v) return rc ? rc : job_add_content(b, v, where, m);
    struct chat_part *part;
    rc = job_alloc(b->job, &part, sizeof *part, b->e);
    if (rc) return rc;
    part->len = strlen(text);
    m->parts = part;
    m->n_parts = 1;
    return job_copy(b->job, &part->text, text, part->len, b->e);
}

enum {
    IN_MESSAGES,
    IN_SYSTEM,
    IN_IMAGES,
    IN_IMAGE,
    IN_FILE_NAME,
    IN_PROMPT,
    IN_QUESTION,
    IN_COUNT
};
static const struct job_field content_fields[IN_COUNT] = {
    [IN_MESSAGES] = {"messages", JOB_TAKE},   [IN_SYSTEM] = {"system", JOB_TAKE},
    [IN_IMAGES] = {"images", JOB_TAKE},       [IN_IMAGE] = {"image", JOB_TAKE},
    [IN_FILE_NAME] = {"file_name", JOB_TAKE}, [IN_PROMPT] = {"prompt", JOB_TAKE},
    [IN_QUESTION] = {"question", JOB_TAKE},
};
/* How many of them, from the first, the form has. */
enum {
    OPENAI_FIELDS = IN_MESSAGES + 1,
    ANTHROPIC_FIELDS = IN_SYSTEM + 1,
    LINE_FIELDS = IN_IMAGES + 1
};

static const struct job_field id_fields[] = {{"custom_id", JOB_IGNORE}, {"id", JOB_IGNORE}};

/* Settings and content of one object: a body, or a whole line. */
static enum status read_object(struct job_builder *b, uint32_t v, const char *where,
                               const struct job_field_set *content, bool is_line)
{
    uint32_t settings[SET_COUNT] = {0}, line[LINE_COUNT] = {0};
    struct job_field_set sets[] = {
        *content,
        {job_setting_fields, SET_COUNT, settings},
        {job_line_fields, LINE_COUNT, line},
        {job_other_fields, job_n_other_fields, NULL},
        {id_fields, N(id_fields), NULL},
    };
    enum status rc = job_fields(b, v, where, sets, is_line ? N(sets) : N(sets) - 1);
    if (!rc) rc = job_read_settings(b, where, settings);
    if (!rc) rc = job_read_line_settings(b, where, line);
    return rc;
}

static enum status read_batch(struct job_builder *b, const char *where, size_t n_fields)
{
    enum { BODY, METHOD, URL, COUNT };
    const struct job_field fields[COUNT] = {
        [BODY] = {where, JOB_TAKE}, [METHOD] = {"method", JOB_TAKE}, [URL] = {"url", JOB_TAKE}};
    uint32_t outer[COUNT] = {0}, line[LINE_COUNT] = {0}, in[IN_COUNT] = {0};
    bool openai = b->job->form == JOB_OPENAI;
    struct job_field_set sets[] = {{fields, openai ? COUNT : 1, outer},
                                   {job_line_fields, LINE_COUNT, line},
                                   {id_fields, N(id_fields), NULL}};
    enum status rc = job_fields(b, 0, "", sets, N(sets));
    if (rc) return rc;
    if (!outer[BODY]) return err_set(b->e, E_INVALID_REQUEST, "%s: expected an object", where);
    if (outer[METHOD] && !jdoc_is(b->doc, outer[METHOD], "POST"))
        return job_bad(b, "method", "\"POST\"", outer[METHOD]);
    if (outer[URL] && !jdoc_is(b->doc, outer[URL], "/v1/chat/completions"))
        return job_bad(b, "url", "\"/v1/chat/completions\"", outer[URL]);
    rc = job_read_line_settings(b, "", line);
    struct job_field_set content = {content_fields, n_fields, in};
    if (!rc) rc = read_object(b, outer[BODY], where, &content, false);
    if (rc) return rc;
    char path[JOB_PATH_CHARS];
    job_path(path, where, "system");
    rc = add_system(b, in[IN_SYSTEM], path, in[IN_MESSAGES]);
    job_path(path, where, "messages");
    if (!rc && !in[IN_MESSAGES])
        rc = err_set(b->e, E_INVALID_REQUEST, "%s: expected an array of messages", path);
    return rc ? rc : job_add_messages(b, in[IN_MESSAGES], path);
}

static enum status read_messages(struct job_builder *b)
{
    uint32_t in[IN_COUNT] = {0};
    struct job_field_set content = {content_fields, LINE_FIELDS, in};
    enum status rc = read_object(b, 0, "", &content, true);
    if (rc) return rc;
    if (!in[IN_MESSAGES]) return err_set(b->e, E_INVALID_REQUEST, "messages: expected an array");
    uint32_t images = in[IN_IMAGES];
    if (images) {
        const struct jdoc_value *x = &b->doc->values[images];
        if (x->type != JDOC_ARRAY && x->type != JDOC_STRING)
            return job_bad(b, "images", "an array of paths", images);
        b->has_markers = true;
        b->n_marked = x->type == JDOC_ARRAY ? x->count : 1;
        b->marked = x->type == JDOC_ARRAY ? jdoc_first(b->doc, images) : images;
    }
    rc = add_system(b, in[IN_SYSTEM], "system", in[IN_MESSAGES]);
    return rc ? rc : job_add_messages(b, in[IN_MESSAGES], "messages");
}

/* The one of several fields that is given; E_INVALID_REQUEST when more are. */
static enum status one_of(struct job_builder *b, const uint32_t *in, int first, int last, int *out)
{
    *out = -1;
    for (int i = first; i <= last; i++) {
        if (!in[i]) continue;
        if (*out >= 0)
            return err_set(b->e, E_INVALID_REQUEST, "%s: expected only one of %s and %s",
                           content_fields[i].name, content_fields[*out].name,
                           content_fields[i].name);
        *out = i;
    }
    return OK;
}

static enum status read_short(struct job_builder *b)
{
    uint32_t in[IN_COUNT] = {0};
    struct job_field_set content = {content_fields, IN_COUNT, in};
    enum status rc = read_object(b, 0, "", &content, true);
    int image, prompt;
    if (!rc) rc = one_of(b, in, IN_IMAGES, IN_FILE_NAME, &image);
    if (!rc) rc = one_of(b, in, IN_PROMPT, IN_QUESTION, &prompt);
    if (rc) return rc;
    struct job_shown s = {.text = b->opts ? b->opts->prompt : NULL};
    if (image >= 0) {
        s.images = in[image];
        s.where = content_fields[image].name;
    }
    if (prompt >= 0) rc = job_string(b, in[prompt], content_fields[prompt].name, &s.text, NULL);
    if (!rc && (!s.text || !*s.text))
        rc = err_set(b->e, E_INVALID_REQUEST,
                     "prompt: expected a text that is not empty (or --prompt)");
    if (!rc) rc = add_system(b, in[IN_SYSTEM], "system", 0);
    return rc ? rc : job_add_shown(b, &s);
}

static enum status read_form(struct job_builder *b)
{
    const struct jdoc *j = b->doc;
    bool is_short = b->opts && b->opts->prompt;
    for (int i = IN_IMAGES; i < IN_COUNT; i++)
        if (jdoc_member(j, 0, content_fields[i].name)) is_short = true;
    if (jdoc_member(j, 0, "body")) {
        b->job->form = JOB_OPENAI;
        return read_batch(b, "body", OPENAI_FIELDS);
    }
    if (jdoc_member(j, 0, "params")) {
        b->job->form = JOB_ANTHROPIC;
        return read_batch(b, "params", ANTHROPIC_FIELDS);
    }
    if (jdoc_member(j, 0, "messages")) {
        b->job->form = JOB_MESSAGES;
        return read_messages(b);
    }
    b->job->form = JOB_SHORT;
    if (is_short) return read_short(b);
    return err_set(b->e, E_INVALID_REQUEST,
                   "unknown form: expected one of body, params, messages, or prompt / question "
                   "with image / images / file_name");
}

enum status job_parse(struct job *out, const char *line, size_t len, const struct job_opts *o,
                      struct err *e)
{
    struct jdoc doc = {0};
    struct job_builder b = {.job = out, .doc = &doc, .opts = o, .e = e, .images = "images"};
    *out = (struct job){0};
    enum status rc = jdoc_parse(&doc, line, len, e);
    if (!rc && doc.values[0].type != JDOC_OBJECT)
        rc = err_set(e, E_INVALID_JSON, "expected one JSON object a line, found %s",
                     jdoc_type_name(doc.values[0].type));
    if (!rc && doc.n > JOB_MAX_VALUES)
        rc = err_set(e, E_INVALID_JSON, "more than %u values in one line", JOB_MAX_VALUES);
    if (!rc) rc = read_id(&b);
    if (!rc) rc = read_form(&b);
    jdoc_free(&doc);
    return rc;
}

/* An id for a path that cannot be one, so that its job is known again: bytes that are no UTF-8 are
 * written \xff; the hash of a path that is too long. */
static enum status other_id(struct job *j, const char *path, struct err *e)
{
    struct buf b = {0};
    size_t len = strlen(path);
    enum status rc = OK;
    for (size_t i = 0, n; i < len && !rc; i += n ? n : 1) {
        n = jdoc_utf8(path + i, len - i);
        rc = n ? buf_add(&b, path + i, n, e) : buf_addf(&b, e, "\\x%02x", (unsigned char)path[i]);
    }
    if (b.len > JOB_ID_MAX && !rc) {
        char sha256[JOB_SHA_CHARS];
        SHA256Data((const uint8_t *)path, len, sha256);
        b.len = 0;
        rc = buf_addf(&b, e, "sha256:%s", sha256);
    }
    if (!rc) rc = job_copy(j, &j->custom_id, b.data, b.len, e);
    buf_free(&b);
    return rc;
}

enum status job_from_file(struct job *out, const char *path, const struct job_opts *o,
                          struct err *e)
{
    struct jdoc none = {0};
    struct job_builder b = {.job = out, .doc = &none, .opts = o, .e = e};
    struct job_shown s = {.text = o ? o->prompt : NULL};
    *out = (struct job){.form = JOB_FILE};
    if (!s.text || !*s.text)
        return err_set(e, E_USAGE, "%s: a picture needs a question: --prompt TEXT", path);
    bool legible = jdoc_is_utf8(path, strlen(path));
    if (!legible || strlen(path) > JOB_ID_MAX) {
        enum status rc = other_id(out, path, e);
        if (rc) return rc;
        if (!legible) return err_set(e, E_INVALID_REQUEST, "the file's name is not UTF-8");
        return err_set(e, E_INVALID_REQUEST, "%s: the path has over %d bytes", path, JOB_ID_MAX);
    }
    enum status rc = job_copy(out, &out->custom_id, path, strlen(path), e);
    s.ref = out->custom_id;
    if (!rc) rc = job_copy(out, &s.text, s.text, strlen(s.text), e);
    if (!rc) rc = add_system(&b, 0, "system", 0);
    return rc ? rc : job_add_shown(&b, &s);
}
