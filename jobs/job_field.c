/* Reading JSON objects by tables of fields, and the settings that all forms share. */
#include "jobs/job_build.h"

#include "jobs/suggest.h"
#include "src/json_grammar.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const struct job_field job_setting_fields[SET_COUNT] = {
    [SET_MODEL] = {"model", JOB_TAKE},
    [SET_MAX_TOKENS] = {"max_tokens", JOB_TAKE},
    [SET_MAX_COMPLETION_TOKENS] = {"max_completion_tokens", JOB_TAKE},
    [SET_TEMPERATURE] = {"temperature", JOB_TAKE},
    [SET_TOP_P] = {"top_p", JOB_TAKE},
    [SET_TOP_K] = {"top_k", JOB_TAKE},
    [SET_SEED] = {"seed", JOB_TAKE},
    [SET_STOP] = {"stop", JOB_TAKE},
    [SET_STOP_SEQUENCES] = {"stop_sequences", JOB_TAKE},
    [SET_FORMAT] = {"response_format", JOB_TAKE},
    [SET_EFFORT] = {"reasoning_effort", JOB_TAKE},
    [SET_THINKING] = {"thinking", JOB_TAKE},
    [SET_TEMPLATE] = {"chat_template_kwargs", JOB_TAKE},
};

const struct job_field job_line_fields[LINE_COUNT] = {
    [LINE_METADATA] = {"metadata", JOB_TAKE},
    [LINE_PRIORITY] = {"priority", JOB_TAKE},
    [LINE_TIMEOUT] = {"timeout_s", JOB_TAKE},
};

const struct job_field job_other_fields[] = {
    {"user", JOB_IGNORE},
    {"store", JOB_IGNORE},
    {"service_tier", JOB_IGNORE},
    {"safety_identifier", JOB_IGNORE},
    {"prompt_cache_key", JOB_IGNORE},
    {"prompt_cache_retention", JOB_IGNORE},
    {"parallel_tool_calls", JOB_IGNORE}, /* without tools there is nothing to call */
    {"stream_options", JOB_IGNORE},
    {"skip_special_tokens", JOB_TRUE},
    {"spaces_between_special_tokens", JOB_IGNORE},
    {"stream", JOB_FALSE},
    {"n", JOB_ONE},
    {"best_of", JOB_ONE},
    {"logprobs", JOB_FALSE},
    {"top_logprobs", JOB_ZERO},
    {"prompt_logprobs", JOB_ZERO},
    {"logit_bias", JOB_EMPTY},
    {"frequency_penalty", JOB_ZERO},
    {"presence_penalty", JOB_ZERO},
    {"repetition_penalty", JOB_ONE},
    {"length_penalty", JOB_ONE},
    {"min_p", JOB_ZERO},
    {"min_tokens", JOB_ZERO},
    {"use_beam_search", JOB_FALSE},
    {"ignore_eos", JOB_FALSE},
    {"echo", JOB_FALSE},
    {"add_generation_prompt", JOB_TRUE},
    {"continue_final_message", JOB_FALSE},
    {"add_special_tokens", JOB_FALSE},
    {"include_stop_str_in_output", JOB_FALSE},
    {"stop_token_ids", JOB_EMPTY},
    {"bad_words", JOB_EMPTY},
    {"tools", JOB_EMPTY},
    {"functions", JOB_EMPTY},
    {"tool_choice", JOB_OFF},
    {"function_call", JOB_OFF},
    {"mcp_servers", JOB_EMPTY},
    {"documents", JOB_EMPTY},
    {"modalities", JOB_NEVER},
    {"audio", JOB_NEVER},
    {"prediction", JOB_NEVER},
    {"web_search_options", JOB_NEVER},
    {"verbosity", JOB_NEVER},
    {"container", JOB_NEVER},
    {"context_management", JOB_NEVER},
    {"output_config", JOB_NEVER},
    {"guided_json", JOB_NEVER},
    {"guided_regex", JOB_NEVER},
    {"guided_choice", JOB_NEVER},
    {"guided_grammar", JOB_NEVER},
    {"structured_outputs", JOB_NEVER},
    {"chat_template", JOB_NEVER},
};
const size_t job_n_other_fields = sizeof job_other_fields / sizeof *job_other_fields;

void job_path(char out[JOB_PATH_CHARS], const char *where, const char *name)
{
    snprintf(out, JOB_PATH_CHARS, "%s%s%s", where, *where ? "." : "", name);
}

/* A value for a message: its spelling when short, else its kind. */
static void describe(const struct jdoc *j, uint32_t v, char out[80])
{
    const struct jdoc_value *x = &j->values[v];
    const char *quote = x->type == JDOC_STRING ? "\"" : "";
    if (x->type >= JDOC_ARRAY && x->count == 0)
        snprintf(out, 80, "%s", x->type == JDOC_ARRAY ? "[]" : "{}");
    else if (x->type >= JDOC_ARRAY || x->len > 60)
        snprintf(out, 80, "%s", jdoc_type_name(x->type));
    else
        snprintf(out, 80, "%s%.*s%s", quote, (int)x->len, j->text + x->at, quote);
}

enum status job_refuse(const struct job_builder *b, enum status code, const char *where,
                       const char *expected, uint32_t found)
{
    char text[80];
    describe(b->doc, found, text);
    return err_set(b->e, code, "%s: expected %s, found %s", where, expected, text);
}

enum status job_bad(const struct job_builder *b, const char *where, const char *expected,
                    uint32_t found)
{
    return job_refuse(b, E_INVALID_REQUEST, where, expected, found);
}

enum status job_string(struct job_builder *b, uint32_t v, const char *where, const char **out,
                       size_t *len)
{
    const struct jdoc_value *x = &b->doc->values[v];
    if (x->type != JDOC_STRING) return job_bad(b, where, "a string", v);
    char *p;
    enum status rc = job_alloc(b->job, &p, x->len + 1, b->e);
    if (rc) return rc;
    size_t n = jdoc_unescape(b->doc, v, p);
    if (len) *len = n;
    *out = p;
    return OK;
}

static bool real_is(const struct jdoc *j, uint32_t v, double want)
{
    double x;
    return jdoc_real(j, v, &x) && x == want;
}

/* Whether v is a value that a field of this rule accepts, and in words what that is. */
static bool accepts(const struct jdoc *j, uint32_t v, enum job_rule rule, const char **only)
{
    const struct jdoc_value *x = &j->values[v];
    switch (rule) {
    case JOB_TAKE:
    case JOB_IGNORE:
        return true;
    case JOB_FALSE:
        *only = "false";
        return x->type == JDOC_BOOL && !jdoc_true(j, v);
    case JOB_TRUE:
        *only = "true";
        return jdoc_true(j, v);
    case JOB_ZERO:
        *only = "0";
        return real_is(j, v, 0);
    case JOB_ONE:
        *only = "1";
        return real_is(j, v, 1);
    case JOB_EMPTY:
        *only = "an empty value";
        return x->type >= JDOC_ARRAY ? x->count == 0 : x->type == JDOC_STRING && x->len == 0;
    case JOB_OFF:
        *only = "\"none\" or \"auto\"";
        return jdoc_is(j, v, "none") || jdoc_is(j, v, "auto");
    case JOB_NEVER:
        break;
    }
    return false;
}

static enum status unknown_field(struct job_builder *b, uint32_t key, const char *where,
                                 const struct job_field_set *sets, size_t n_sets)
{
    char name[64] = "", path[JOB_PATH_CHARS];
    const struct jdoc_value *x = &b->doc->values[key];
    if (x->len >= sizeof name)
        return err_set(b->e, E_UNSUPPORTED_FIELD, "%s: unknown field with a name of %u bytes",
                       *where ? where : "line", (unsigned)x->len);
    jdoc_unescape(b->doc, key, name);
    struct suggest s = {.word = name};
    for (size_t i = 0; i < n_sets; i++)
        for (size_t k = 0; k < sets[i].n; k++)
            if (sets[i].fields[k].rule == JOB_TAKE) suggest_offer(&s, sets[i].fields[k].name);
    job_path(path, where, name);
    if (s.best)
        return err_set(b->e, E_UNSUPPORTED_FIELD, "%s: unknown field; did you mean \"%s\"?", path,
                       s.best);
    return err_set(b->e, E_UNSUPPORTED_FIELD, "%s: unknown field", path);
}

static enum status read_field(struct job_builder *b, uint32_t key, const char *where,
                              const struct job_field_set *sets, size_t n_sets)
{
    uint32_t v = key + 1;
    bool null = b->doc->values[v].type == JDOC_NULL;
    for (size_t i = 0; i < n_sets; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            const struct job_field *f = &sets[i].fields[k];
            if (!jdoc_is(b->doc, key, f->name)) continue;
            const char *only = "";
            char path[JOB_PATH_CHARS], found[80];
            if (null) return OK;
            if (f->rule == JOB_TAKE) sets[i].values[k] = v;
            if (accepts(b->doc, v, f->rule, &only)) return OK;
            job_path(path, where, f->name);
            describe(b->doc, v, found);
            return err_set(b->e, E_UNSUPPORTED_FIELD, "%s: %s is not supported%s%s", path, found,
                           *only ? ", only " : "", only);
        }
    }
    return unknown_field(b, key, where, sets, n_sets);
}

enum status job_fields(struct job_builder *b, uint32_t object, const char *where,
                       const struct job_field_set *sets, size_t n_sets)
{
    if (b->doc->values[object].type != JDOC_OBJECT)
        return job_bad(b, *where ? where : "line", "an object", object);
    for (uint32_t k = jdoc_first(b->doc, object); k; k = b->doc->values[k].next) {
        enum status rc = read_field(b, k, where, sets, n_sets);
        if (rc) return rc;
    }
    return OK;
}

/* Shared by the settings below: b, the path of the object, and the values of its fields. */
struct reading {
    struct job_builder *b;
    const char *where;
    const uint32_t *values;
    const struct job_field *fields;
};

static const char *path_of(const struct reading *r, int field, char out[JOB_PATH_CHARS])
{
    job_path(out, r->where, r->fields[field].name);
    return out;
}

static enum status bad_setting(const struct reading *r, int field, const char *expected)
{
    char path[JOB_PATH_CHARS];
    return job_bad(r->b, path_of(r, field, path), expected, r->values[field]);
}

static enum status read_max_tokens(const struct reading *r, struct job_settings *s)
{
    static const int fields[] = {SET_MAX_TOKENS, SET_MAX_COMPLETION_TOKENS};
    for (int i = 0; i < 2; i++) {
        uint64_t n;
        uint32_t v = r->values[fields[i]];
        if (!v) continue;
        if (!jdoc_u64(r->b->doc, v, &n) || n < 1 || n > INT32_MAX)
            return bad_setting(r, fields[i], "an integer of at least 1");
        if (s->has & JOB_HAS_MAX_TOKENS && s->max_tokens != n)
            return bad_setting(r, fields[i], "the same as max_tokens");
        s->max_tokens = n;
        s->has |= JOB_HAS_MAX_TOKENS;
    }
    return OK;
}

static enum status read_sampling(const struct reading *r, struct job_settings *s)
{
    const struct jdoc *j = r->b->doc;
    const uint32_t *v = r->values;
    int64_t k;
    if (v[SET_TEMPERATURE]) {
        if (!jdoc_real(j, v[SET_TEMPERATURE], &s->temperature) || !(s->temperature >= 0) ||
            s->temperature > 2)
            return bad_setting(r, SET_TEMPERATURE, "a number from 0 to 2");
        s->temperature += 0.0; /* -0 is 0 */
        s->has |= JOB_HAS_TEMPERATURE;
    }
    if (v[SET_TOP_P]) {
        if (!jdoc_real(j, v[SET_TOP_P], &s->top_p) || !(s->top_p > 0) || s->top_p > 1)
            return bad_setting(r, SET_TOP_P, "a number over 0, at most 1");
        s->has |= JOB_HAS_TOP_P;
    }
    if (v[SET_TOP_K]) {
        if (!jdoc_i64(j, v[SET_TOP_K], &k) || k < -1 || k > INT32_MAX)
            return bad_setting(r, SET_TOP_K, "an integer of at least 0, or -1 for off");
        s->top_k = k < 0 ? 0 : (uint32_t)k;
        s->has |= JOB_HAS_TOP_K;
    }
    if (v[SET_SEED]) {
        if (!jdoc_u64(j, v[SET_SEED], &s->seed))
            return bad_setting(r, SET_SEED, "an integer from 0 to 18446744073709551615");
        s->has |= JOB_HAS_SEED;
    }
    return OK;
}

static enum status add_stop(const struct reading *r, int field, uint32_t v, const char **out)
{
    char path[JOB_PATH_CHARS];
    if (r->b->doc->values[v].type != JDOC_STRING || r->b->doc->values[v].len == 0)
        return job_bad(r->b, path_of(r, field, path), "a string that is not empty", v);
    return job_string(r->b, v, "", out, NULL);
}

static enum status read_stops(const struct reading *r, struct job_settings *s)
{
    const struct jdoc *j = r->b->doc;
    int field = r->values[SET_STOP] ? SET_STOP : SET_STOP_SEQUENCES;
    uint32_t v = r->values[field];
    if (!v) return OK;
    if (field == SET_STOP && r->values[SET_STOP_SEQUENCES])
        return bad_setting(r, SET_STOP_SEQUENCES, "nothing beside stop");
    bool array = j->values[v].type == JDOC_ARRAY;
    size_t n = array ? j->values[v].count : 1;
    if (n > JOB_MAX_STOPS) return bad_setting(r, field, "at most 64 strings");
    const char **stops;
    enum status rc = job_alloc(r->b->job, &stops, n * sizeof *stops, r->b->e);
    size_t i = 0;
    for (uint32_t x = array ? jdoc_first(j, v) : v; x && !rc; x = array ? j->values[x].next : 0)
        rc = add_stop(r, field, x, &stops[i++]);
    s->stops = stops;
    s->n_stops = n;
    s->has |= JOB_HAS_STOP;
    return rc;
}

static enum status read_effort(const struct reading *r, struct job_settings *s)
{
    static const char *const names[] = {"low", "high", "max"};
    uint32_t v = r->values[SET_EFFORT];
    if (!v) return OK;
    s->has |= JOB_HAS_EFFORT;
    if (jdoc_is(r->b->doc, v, "none") || jdoc_is(r->b->doc, v, "off")) return OK;
    for (size_t i = 0; i < 3; i++)
        if (jdoc_is(r->b->doc, v, names[i])) s->effort = names[i];
    return s->effort ? OK : bad_setting(r, SET_EFFORT, "none, off, low, high or max");
}

/* Other spellings of the switch for thinking, accepted where they say off. */
static enum status read_thinking(const struct reading *r)
{
    static const struct job_field switches[] = {{"thinking", JOB_FALSE},
                                                {"enable_thinking", JOB_FALSE}};
    const struct jdoc *j = r->b->doc;
    char path[JOB_PATH_CHARS];
    uint32_t v = r->values[SET_THINKING];
    if (v && !jdoc_is(j, jdoc_member(j, v, "type"), "disabled"))
        return err_set(r->b->e, E_UNSUPPORTED_FIELD,
                       "%s: only {\"type\": \"disabled\"} is supported; reasoning_effort (low, "
                       "high, max) turns thinking on",
                       path_of(r, SET_THINKING, path));
    v = r->values[SET_TEMPLATE];
    if (!v) return OK;
    struct job_field_set set = {switches, 2, NULL};
    return job_fields(r->b, v, path_of(r, SET_TEMPLATE, path), &set, 1);
}

static enum status read_schema(const struct reading *r, uint32_t format)
{
    const struct jdoc *j = r->b->doc;
    uint32_t outer = jdoc_member(j, format, "json_schema");
    if (!outer || j->values[outer].type != JDOC_OBJECT)
        return bad_setting(r, SET_FORMAT, "an object with json_schema, itself an object");
    uint32_t v = jdoc_member(j, outer, "schema");
    if (!v) v = jdoc_member(j, outer, "json_schema");
    if (!v) v = outer;
    if (j->values[v].type != JDOC_OBJECT)
        return bad_setting(r, SET_FORMAT, "json_schema.schema to be an object");

    struct buf raw = {0}, out = {0};
    enum status rc = buf_add(&raw, j->text + j->values[v].at, j->values[v].len, r->b->e);
    if (!rc) rc = chat_canonical_json(raw.data, &out, r->b->e);
    if (!rc) rc = job_copy(r->b->job, &r->b->job->schema, out.data, out.len, r->b->e);
    /* What cannot be enforced is refused here, not at night. */
    struct json_grammar *g = NULL;
    if (!rc) {
        rc = json_grammar_open(&g, out.data, out.len, r->b->e);
        if (rc) err_wrap(r->b->e, "response_format: schema");
    }
    json_grammar_close(g);
    buf_free(&raw);
    buf_free(&out);
    return rc;
}

static enum status read_format(const struct reading *r)
{
    const struct jdoc *j = r->b->doc;
    uint32_t v = r->values[SET_FORMAT];
    if (!v) return OK;
    uint32_t type = jdoc_member(j, v, "type");
    if (type && jdoc_is(j, type, "text")) return OK;
    if (type && jdoc_is(j, type, "json_object")) {
        r->b->job->format = CHAT_JSON_OBJECT;
        return OK;
    }
    if (!type || !jdoc_is(j, type, "json_schema"))
        return bad_setting(r, SET_FORMAT, "an object with type text, json_object or json_schema");
    r->b->job->format = CHAT_JSON_SCHEMA;
    return read_schema(r, v);
}

enum status job_read_settings(struct job_builder *b, const char *where, const uint32_t *values)
{
    struct reading r = {b, where, values, job_setting_fields};
    struct job_settings *s = &b->job->settings;
    char path[JOB_PATH_CHARS];
    enum status rc = OK;
    if (values[SET_MODEL])
        rc = job_string(b, values[SET_MODEL], path_of(&r, SET_MODEL, path), &b->job->model, NULL);
    if (!rc) rc = read_max_tokens(&r, s);
    if (!rc) rc = read_sampling(&r, s);
    if (!rc) rc = read_stops(&r, s);
    if (!rc) rc = read_effort(&r, s);
    if (!rc) rc = read_thinking(&r);
    if (!rc) rc = read_format(&r);
    return rc;
}

enum status job_read_line_settings(struct job_builder *b, const char *where, const uint32_t *values)
{
    struct reading r = {b, where, values, job_line_fields};
    struct job *job = b->job;
    struct job_settings *s = &job->settings;
    if (values[LINE_METADATA]) {
        if (job->metadata) return bad_setting(&r, LINE_METADATA, "metadata only once");
        const struct jdoc_value *v = &b->doc->values[values[LINE_METADATA]];
        bool quoted = v->type == JDOC_STRING;
        enum status rc =
            job_copy(job, &job->metadata, b->doc->text + v->at - quoted, v->len + 2 * quoted, b->e);
        if (rc) return rc;
    }
    if (values[LINE_PRIORITY]) {
        if (s->has & JOB_HAS_PRIORITY) return bad_setting(&r, LINE_PRIORITY, "priority only once");
        if (!jdoc_i64(b->doc, values[LINE_PRIORITY], &s->priority))
            return bad_setting(&r, LINE_PRIORITY, "an integer");
        s->has |= JOB_HAS_PRIORITY;
    }
    if (values[LINE_TIMEOUT]) {
        if (s->has & JOB_HAS_TIMEOUT) return bad_setting(&r, LINE_TIMEOUT, "timeout_s only once");
        if (!jdoc_real(b->doc, values[LINE_TIMEOUT], &s->timeout_s) || !(s->timeout_s > 0))
            return bad_setting(&r, LINE_TIMEOUT, "a number of seconds over 0");
        s->has |= JOB_HAS_TIMEOUT;
    }
    return OK;
}
