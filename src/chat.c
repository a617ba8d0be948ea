/* Renders a conversation. Every segment is appended to one text; markup segments are the only ones
 * in which specials count, so no text can forge structure. Empty segments are dropped and ordinary
 * neighbours never joined: both would change the ids. */
#include "src/chat.h"
#include "src/json.h"
#include "src/unicode.h"

#include <stdlib.h>
#include <string.h>

/* The first failure stays in rc; after it nothing is added. */
struct render {
    struct chat_prompt *out;
    enum status rc;
    struct err *e;
    int images;
};

static struct chat_segment *add(struct render *r, const char *s, size_t len, bool special)
{
    struct chat_prompt *p = r->out;
    if (r->rc || !len) return NULL;
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 64;
        struct chat_segment *at = realloc(p->segments, cap * sizeof *at);
        if (!at) {
            r->rc = err_set(r->e, E_NOMEM, "prompt: no memory for %zu segments", cap);
            return NULL;
        }
        p->segments = at;
        p->cap = cap;
    }
    struct chat_segment *seg = &p->segments[p->n];
    *seg = (struct chat_segment){.at = p->text.len, .len = len, .special = special, .image = -1};
    r->rc = buf_add(&p->text, s, len, r->e);
    if (r->rc) return NULL;
    p->n++;
    return seg;
}

static void mark(struct render *r, const char *s)
{
    add(r, s, strlen(s), true);
}

static void text(struct render *r, const char *s)
{
    add(r, s, strlen(s), false);
}

static void user_text(struct render *r, const char *s, size_t len)
{
    size_t valid = unicode_valid(s, len);
    if (valid < len && !r->rc)
        r->rc = err_set(r->e, E_INVALID_REQUEST, "message text: bad UTF-8 at byte %zu", valid);
    add(r, s, len, false);
}

static void attribute(struct render *r, const char *key, const char *value)
{
    struct buf escaped = {0};
    for (const char *s = value; *s && !r->rc; s++) {
        const char *as = *s == '&' ? "&amp;" : *s == '"' ? "&quot;" : NULL;
        r->rc = buf_add(&escaped, as ? as : s, as ? strlen(as) : 1, r->e);
    }
    text(r, key);
    text(r, "=\"");
    user_text(r, escaped.data, escaped.len);
    text(r, "\"");
    buf_free(&escaped);
}

static void open(struct render *r, const char *tag)
{
    mark(r, "<|open|>");
    text(r, tag);
}

static void sep(struct render *r)
{
    mark(r, "<|sep|>");
}

static void close(struct render *r, const char *tag)
{
    mark(r, "<|close|>");
    text(r, tag);
    sep(r);
}

static void close_message(struct render *r)
{
    close(r, "message");
    mark(r, "<|end_of_msg|>");
}

static void open_message(struct render *r, const char *role)
{
    open(r, "message");
    attribute(r, " role", role);
}

static void image(struct render *r, const struct chat_part *p)
{
    if (!r->rc && (!p->width || !p->height))
        r->rc = err_set(r->e, E_INVALID_REQUEST, "an image without size");
    struct buf b = {0};
    if (!r->rc)
        r->rc = buf_addf(&b, r->e,
                         "<|media_begin|>image %ux%u<|media_content|><|media_pad|><|media_end|>",
                         p->width, p->height);
    struct chat_segment *seg = add(r, b.data, b.len, true);
    if (seg) seg->image = r->images++;
    buf_free(&b);
}

static void parts(struct render *r, const struct chat_message *m)
{
    for (size_t i = 0; i < m->n_parts && !r->rc; i++) {
        if (m->parts[i].image)
            image(r, &m->parts[i]);
        else
            user_text(r, m->parts[i].text, m->parts[i].len);
    }
}

/* Nothing but white space; bad UTF-8 is not blank. */
static bool blank(const char *s)
{
    size_t n = strlen(s);
    for (uint32_t cp; n;) {
        int len = unicode_decode(s, n, &cp);
        if (len <= 0 || !unicode_py_space(cp)) return false;
        s += len;
        n -= (size_t)len;
    }
    return true;
}

static void answer(struct render *r, const struct chat_message *m, bool thinking)
{
    if (thinking) {
        open(r, "think");
        sep(r);
        if (m->reasoning && !blank(m->reasoning)) user_text(r, m->reasoning, strlen(m->reasoning));
        close(r, "think");
    }
    open(r, "response");
    sep(r);
    parts(r, m);
    close(r, "response");
}

static void message(struct render *r, const struct chat_message *m, bool thinking)
{
    static const char *const role[] = {
        [CHAT_SYSTEM] = "system", [CHAT_USER] = "user", [CHAT_ASSISTANT] = "assistant"};
    open_message(r, role[m->role]);
    if (m->name && *m->name) attribute(r, " name", m->name);
    sep(r);
    if (m->role == CHAT_ASSISTANT)
        answer(r, m, thinking);
    else
        parts(r, m);
    close_message(r);
}

/* A message of the system's own: body, then a value in it, then the rest. */
static void notice(struct render *r, const char *type, const char *const body[3])
{
    struct buf b = {0};
    open_message(r, "system");
    attribute(r, " type", type);
    sep(r);
    for (int i = 0; i < 3 && !r->rc; i++) r->rc = buf_add(&b, body[i], strlen(body[i]), r->e);
    user_text(r, b.data, b.len);
    close_message(r);
    buf_free(&b);
}

static void effort(struct render *r, const char *value)
{
    if (!r->rc && strcmp(value, "low") && strcmp(value, "high") && strcmp(value, "max"))
        r->rc = err_set(r->e, E_INVALID_REQUEST,
                        "reasoning effort \"%s\": low, high or max expected", value);
    notice(
        r, "thinking-effort",
        (const char *const[]){
            "`thinking_effort` guides on how much to think in your thinking channel (not including "
            "the response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
            "Now the system is invoked with `thinking_effort=",
            value, "`."});
}

static void format(struct render *r, const struct chat_options *o)
{
#define RAW_JSON                                                                                   \
    "Your response must be raw JSON data without markdown code blocks (```json) or any "           \
    "additional "                                                                                  \
    "formatting."
    if (o->format == CHAT_JSON_OBJECT) {
        notice(r, "response-format",
               (const char *const[]){"The system is invoked with `response_format=json_object`.\n",
                                     RAW_JSON, ""});
    } else if (o->format == CHAT_JSON_SCHEMA) {
        if (!r->rc && !o->schema) r->rc = err_set(r->e, E_INVALID_REQUEST, "no JSON schema");
        notice(r, "response-format",
               (const char *const[]){
                   "The system is invoked with `response_format=json_schema`.\n" RAW_JSON
                   "\nThe JSON data must match the following schema:\n```json\n",
                   o->schema, "\n```"});
    }
}

enum status chat_render(struct chat_prompt *out, const struct chat_message *messages, size_t n,
                        const struct chat_options *o, struct err *e)
{
    *out = (struct chat_prompt){0};
    struct render r = {.out = out, .e = e};
    if (o->thinking && o->effort) effort(&r, o->effort);
    for (size_t i = 0; i < n && !r.rc; i++) message(&r, &messages[i], o->thinking);
    format(&r, o);
    open_message(&r, "assistant");
    sep(&r);
    open(&r, o->thinking ? "think" : "response");
    sep(&r);
    if (r.rc) chat_prompt_free(out);
    return r.rc;
}

void chat_prompt_free(struct chat_prompt *p)
{
    buf_free(&p->text);
    free(p->segments);
    *p = (struct chat_prompt){0};
}

enum status chat_canonical_json(const char *json, struct buf *out, struct err *e)
{
    struct json j;
    enum status rc = json_parse(&j, json, strlen(json), e);
    if (rc) return rc;
    rc = json_write(&j, 0, out, e);
    json_free(&j);
    return rc;
}
