/* The OpenAI batch output line.
 *
 * The order of keys is fixed, and everything in a line follows from the job, except created,
 * prefill_s, decode_s and the number of the attempt. Each row is a read of its own,
 * so that none keeps a run from committing. */
#include "jobs/export_line.h"

#include "jobs/jdoc.h"
#include "jobs/job.h"

#include <inttypes.h>
#include <sha2.h>
#include <stdlib.h>
#include <string.h>

/* Columns of the query, in its order. */
enum column {
    C_ID,
    C_INPUT,
    C_LINE,
    C_CUSTOM_ID,
    C_SPEC,
    C_PARAMS,
    C_DUPLICATE,
    C_ATTEMPT,
    C_CODE,
    C_MESSAGE,
    C_CONTENT,
    C_REASONING,
    C_FINISH,
    C_PROMPT_TOKENS,
    C_COMPLETION_TOKENS,
    C_PREFILL,
    C_DECODE,
    C_SEED,
    C_FINISHED,
    C_MODEL,
    C_MODEL_SHA,
    C_SETTINGS,
};

static const char next_sql[] =
    "SELECT j.id, j.input_id, j.line, j.custom_id, j.spec, j.params_sha256, j.duplicate_of, "
    "r.attempt, r.code, r.message, r.content, r.reasoning, r.finish_reason, r.prompt_tokens, "
    "r.completion_tokens, r.prefill_s, r.decode_s, r.seed, r.finished_at, u.model, "
    "u.model_sha256, u.settings "
    "FROM jobs j JOIN results r ON r.job_id=j.id LEFT JOIN runs u ON u.id=r.run_id "
    "WHERE (j.input_id, j.line) > (?1, ?2) AND j.line > 0 "
    "ORDER BY j.input_id, j.line LIMIT 1";

/* The line being written. */
struct line {
    struct db *db;
    sqlite3_stmt *s;
    struct job job; /* from the spec; empty for a bad line */
    struct buf *b;
    struct err *e;
    enum status rc; /* the first fault; what follows does nothing */
};

enum status export_quote(struct buf *out, const char *text, size_t len, struct err *e)
{
    if (!text) return buf_addf(out, e, "null");
    if (jdoc_is_utf8(text, len)) return jdoc_quote(out, text, len, e);
    struct buf clean = {0};
    enum status rc = OK;
    for (size_t i = 0, n; i < len && !rc; i += n ? n : 1) {
        n = jdoc_utf8(text + i, len - i);
        rc = n ? buf_add(&clean, text + i, n, e) : buf_add(&clean, "\xef\xbf\xbd", 3, e);
    }
    if (!rc) rc = jdoc_quote(out, clean.data, clean.len, e);
    buf_free(&clean);
    return rc;
}

#define PUT(l, ...)                                                                                \
    do {                                                                                           \
        if (!(l)->rc) (l)->rc = buf_addf((l)->b, (l)->e, __VA_ARGS__);                             \
    } while (0)

static void quote(struct line *l, const char *text, size_t len)
{
    if (!l->rc) l->rc = export_quote(l->b, text, len, l->e);
}

static void quote_column(struct line *l, enum column c)
{
    const char *text = sqlite3_column_blob(l->s, c);
    size_t len = (size_t)sqlite3_column_bytes(l->s, c);
    if (!text && sqlite3_column_type(l->s, c) != SQLITE_NULL) text = "";
    quote(l, text, len);
}

static const char *text(const struct line *l, enum column c)
{
    return (const char *)sqlite3_column_text(l->s, c);
}

static int64_t number(const struct line *l, enum column c)
{
    return sqlite3_column_int64(l->s, c);
}

static void put_error(struct line *l)
{
    PUT(l, "{\"code\":");
    quote_column(l, C_CODE);
    PUT(l, ",\"message\":");
    quote_column(l, C_MESSAGE);
    bool bad_line = sqlite3_column_type(l->s, C_SPEC) == SQLITE_NULL ||
                    sqlite3_column_type(l->s, C_DUPLICATE) != SQLITE_NULL;
    if (bad_line) PUT(l, ",\"line\":%" PRId64, number(l, C_LINE));
    PUT(l, "}");
}

static int status_code(const char *code)
{
    static const struct {
        enum status code;
        int http;
    } others[] = {{E_IMAGE_MISSING, 404},    {E_TIMEOUT, 408}, {E_IMAGE_TOO_LARGE, 413},
                  {E_CANCELLED, 499},        {E_ENGINE, 500},  {E_INVALID_OUTPUT_JSON, 502},
                  {E_IMAGE_UNSUPPORTED, 415}};
    if (!code) return 200;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (status_by_name(code) == others[i].code) return others[i].http;
    return 400;
}

static void put_choice(struct line *l)
{
    PUT(l, "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
    quote_column(l, C_CONTENT);
    PUT(l, ",\"reasoning_content\":");
    if (l->job.settings.effort)
        quote_column(l, C_REASONING);
    else
        PUT(l, "null");
    PUT(l, "},\"finish_reason\":");
    quote_column(l, C_FINISH);
    PUT(l,
        "}],\"usage\":{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64
        ",\"total_tokens\":%" PRId64 "}",
        number(l, C_PROMPT_TOKENS), number(l, C_COMPLETION_TOKENS),
        number(l, C_PROMPT_TOKENS) + number(l, C_COMPLETION_TOKENS));
    if (l->job.metadata) PUT(l, ",\"metadata\":%s", l->job.metadata);
}

static void put_images(struct line *l)
{
    sqlite3_stmt *s;
    bool row = false;
    if (l->rc) return;
    l->rc = db_stmt(l->db, &s,
                    "SELECT ref, sha256, width, height, orientation, tokens, warnings "
                    "FROM job_images WHERE job_id=?1 ORDER BY n",
                    l->e);
    if (!l->rc) l->rc = db_bind(l->db, s, l->e, "i", number(l, C_ID));
    for (int i = 0; !l->rc; i++) {
        l->rc = db_step(l->db, s, &row, l->e);
        if (l->rc || !row) break;
        PUT(l, "%s{\"path\":", i ? "," : "");
        quote(l, (const char *)sqlite3_column_text(s, 0), (size_t)sqlite3_column_bytes(s, 0));
        PUT(l, ",\"sha256\":\"%s\",\"width\":%d,\"height\":%d,\"orientation\":%d,\"tokens\":%d,",
            sqlite3_column_type(s, 1) == SQLITE_NULL ? "" : (const char *)sqlite3_column_text(s, 1),
            sqlite3_column_int(s, 2), sqlite3_column_int(s, 3), sqlite3_column_int(s, 4),
            sqlite3_column_int(s, 5));
        PUT(l, "\"warnings\":%s}",
            sqlite3_column_type(s, 6) == SQLITE_NULL ? "[]"
                                                     : (const char *)sqlite3_column_text(s, 6));
    }
    if (row) sqlite3_reset(s);
}

/* Names everything the answer depends on beside the model: the job and the run's settings. */
static void params_sha256(const struct line *l, char out[65])
{
    SHA2_CTX c;
    const char *parts[] = {text(l, C_PARAMS), "\n", text(l, C_SETTINGS)};
    SHA256Init(&c);
    for (int i = 0; i < 3; i++)
        if (parts[i]) SHA256Update(&c, (const uint8_t *)parts[i], strlen(parts[i]));
    SHA256End(&c, out);
}

static void put_run(struct line *l)
{
    char params[65];
    params_sha256(l, params);
    PUT(l, ",\"x_run\":{\"seed\":%s,\"model_sha\":\"%s\",\"params_sha\":\"%s\",\"images\":[",
        text(l, C_SEED) ? text(l, C_SEED) : "null",
        text(l, C_MODEL_SHA) ? text(l, C_MODEL_SHA) : "", params);
    put_images(l);
    PUT(l, "],\"attempt\":%" PRId64 ",\"prefill_s\":%.3f,\"decode_s\":%.3f}", number(l, C_ATTEMPT),
        sqlite3_column_double(l->s, C_PREFILL), sqlite3_column_double(l->s, C_DECODE));
}

static void put_body(struct line *l)
{
    bool failed = text(l, C_CODE) != NULL;
    PUT(l, "{");
    if (failed) {
        PUT(l, "\"error\":{\"message\":");
        quote_column(l, C_MESSAGE);
        PUT(l, ",\"type\":\"%s\",\"param\":null,\"code\":",
            status_code(text(l, C_CODE)) < 500 ? "invalid_request_error" : "server_error");
        quote_column(l, C_CODE);
        PUT(l, "}");
    }
    /* A failure may have text to show: what came before a timeout, an answer that is no JSON. */
    if (!failed || sqlite3_column_bytes(l->s, C_CONTENT) > 0) {
        PUT(l,
            "%s\"id\":\"chatcmpl-%" PRId64 "-%" PRId64
            "\",\"object\":\"chat.completion\",\"created\":%" PRId64 ",\"model\":",
            failed ? "," : "", number(l, C_ID), number(l, C_ATTEMPT), number(l, C_FINISHED));
        quote_column(l, C_MODEL);
        PUT(l, ",");
        put_choice(l);
        put_run(l);
    }
    PUT(l, "}");
}

static enum status put_line(struct line *l)
{
    int64_t id = number(l, C_ID), attempt = number(l, C_ATTEMPT);
    l->b->len = 0;
    PUT(l, "{\"id\":\"batch_req_%" PRId64 "-%" PRId64 "\",\"custom_id\":", id, attempt);
    quote_column(l, C_CUSTOM_ID);
    PUT(l,
        ",\"response\":{\"status_code\":%d,\"request_id\":\"req_%" PRId64 "-%" PRId64
        "\",\"body\":",
        status_code(text(l, C_CODE)), id, attempt);
    put_body(l);
    PUT(l, "},\"error\":");
    if (text(l, C_CODE))
        put_error(l);
    else
        PUT(l, "null");
    PUT(l, "}\n");
    return l->rc;
}

static enum status one_row(struct line *l)
{
    const char *spec = sqlite3_column_blob(l->s, C_SPEC);
    l->job = (struct job){0};
    if (spec)
        l->rc = job_from_spec(&l->job, spec, (size_t)sqlite3_column_bytes(l->s, C_SPEC), l->e);
    if (l->rc == E_DB && text(l, C_CODE)) { /* that may be why it failed */
        job_free(&l->job);
        l->rc = OK;
    }
    put_line(l);
    job_free(&l->job);
    return l->rc;
}

enum status export_line_next(struct export_lines *x, struct db *db, bool *more, struct err *e)
{
    struct line l = {.db = db, .b = &x->text, .e = e};
    *more = false;
    l.rc = db_stmt(db, &l.s, next_sql, e);
    if (!l.rc) l.rc = db_bind(db, l.s, e, "ii", x->input, x->line);
    if (!l.rc) l.rc = db_step(db, l.s, more, e);
    if (l.rc || !*more) return l.rc;
    if (!one_row(&l)) {
        x->failed = text(&l, C_CODE) != NULL;
        x->input = number(&l, C_INPUT);
        x->line = number(&l, C_LINE);
    }
    sqlite3_reset(l.s);
    return l.rc;
}
