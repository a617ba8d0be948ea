/* Records for other programs. */
#include "jobs/export_form.h"

#include "jobs/job.h"

#include <string.h>

enum column {
    C_ID,
    C_INPUT,
    C_LINE,
    C_CUSTOM_ID,
    C_SPEC,
    C_STATE,
    C_CODE,
    C_MESSAGE,
    C_CONTENT,
    C_FINISH,
    C_PROMPT_TOKENS,
    C_COMPLETION_TOKENS,
    C_PATH,
    C_REASONING
};

static const char next_sql[] =
    "SELECT j.id, j.input_id, j.line, j.custom_id, j.spec, j.state, r.code, r.message, r.content, "
    "r.finish_reason, r.prompt_tokens, r.completion_tokens, (SELECT m.path FROM job_images m WHERE "
    "m.job_id=j.id AND m.n=0), r.reasoning FROM jobs j JOIN results r ON r.job_id=j.id "
    "WHERE (j.input_id, j.line) > (?1, ?2) AND j.line > 0 ORDER BY j.input_id, j.line LIMIT 1";

const char *export_form_head(enum export_format f)
{
    return f == EXPORT_CSV ? "custom_id,state,content,finish_reason,image,prompt_tokens,"
                             "completion_tokens,error_code,error_message\r\n"
                           : NULL;
}

static const char *bytes(sqlite3_stmt *s, int column, size_t *len)
{
    const char *p = sqlite3_column_blob(s, column);
    *len = (size_t)sqlite3_column_bytes(s, column);
    return p ? p : sqlite3_column_type(s, column) == SQLITE_NULL ? NULL : "";
}

static enum status quote(struct buf *b, sqlite3_stmt *s, int column, struct err *e)
{
    size_t len;
    const char *p = bytes(s, column, &len);
    return export_quote(b, p, len, e);
}

static const char *below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return !strncmp(path, folder, n) && path[n] == '/' ? path + n + 1 : path;
}

static enum status metadata(struct buf *b, sqlite3_stmt *s, const struct export_form *f,
                            struct err *e)
{
    const char *path = (const char *)sqlite3_column_text(s, C_PATH);
    if (!path || sqlite3_column_type(s, C_CODE) != SQLITE_NULL) return OK;
    path = below(path, f->folder);
    enum status rc = buf_addf(b, e, "{\"file_name\":");
    if (!rc) rc = export_quote(b, path, strlen(path), e);
    if (!rc) rc = buf_addf(b, e, ",\"text\":");
    if (!rc) rc = quote(b, s, C_CONTENT, e);
    return rc ? rc : buf_addf(b, e, "}\n");
}

/* A field of CSV: in quotes where it has to be, quotes doubled; a NUL, which readers choke on, as
 * U+FFFD. */
static enum status field(struct buf *b, sqlite3_stmt *s, int column, struct err *e)
{
    size_t len;
    const char *p = bytes(s, column, &len);
    bool plain = true;
    for (size_t i = 0; i < len; i++)
        if (p[i] == '"' || p[i] == ',' || p[i] == '\r' || p[i] == '\n') plain = false;
    enum status rc = plain ? OK : buf_add(b, "\"", 1, e);
    for (size_t i = 0; i < len && !rc; i++)
        rc = !p[i]         ? buf_add(b, "\xef\xbf\xbd", 3, e)
             : p[i] == '"' ? buf_add(b, "\"\"", 2, e)
                           : buf_add(b, p + i, 1, e);
    return rc || plain ? rc : buf_add(b, "\"", 1, e);
}

static enum status csv(struct buf *b, sqlite3_stmt *s, struct err *e)
{
    static const enum column columns[] = {
        C_CUSTOM_ID,         C_STATE, C_CONTENT, C_FINISH, C_PATH, C_PROMPT_TOKENS,
        C_COMPLETION_TOKENS, C_CODE,  C_MESSAGE};
    enum status rc = OK;
    for (size_t i = 0; i < sizeof columns / sizeof *columns && !rc; i++) {
        if (i) rc = buf_add(b, ",", 1, e);
        if (!rc) rc = field(b, s, (int)columns[i], e);
    }
    return rc ? rc : buf_addf(b, e, "\r\n");
}

/* A message's text, pictures as <image>. */
static enum status value(struct buf *b, const struct chat_message *m, struct err *e)
{
    struct buf text = {0};
    enum status rc = buf_add(&text, "", 0, e);
    for (size_t i = 0; i < m->n_parts && !rc; i++)
        rc = m->parts[i].image ? buf_addf(&text, e, "<image>")
                               : buf_add(&text, m->parts[i].text, m->parts[i].len, e);
    if (!rc) rc = export_quote(b, text.data, text.len, e);
    buf_free(&text);
    return rc;
}

static enum status turns(struct buf *b, const struct job *j, struct err *e)
{
    static const char *const from[] = {
        [CHAT_SYSTEM] = "system", [CHAT_USER] = "human", [CHAT_ASSISTANT] = "gpt"};
    enum status rc = OK;
    for (size_t i = 0; i < j->n_messages && !rc; i++) {
        rc = buf_addf(b, e, "{\"from\":\"%s\",\"value\":", from[j->messages[i].role]);
        if (!rc) rc = value(b, &j->messages[i], e);
        if (!rc) rc = buf_addf(b, e, "},");
    }
    return rc;
}

static enum status pictures(struct buf *b, struct db *db, int64_t job, const char *folder,
                            struct err *e)
{
    sqlite3_stmt *s;
    bool row = false;
    enum status rc =
        db_stmt(db, &s, "SELECT coalesce(path, '') FROM job_images WHERE job_id=?1 ORDER BY n", e);
    if (!rc) rc = db_bind(db, s, e, "i", job);
    for (int i = 0; !rc; i++) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        const char *path = below((const char *)sqlite3_column_text(s, 0), folder);
        if (i) rc = buf_addf(b, e, ",");
        if (!rc) rc = export_quote(b, path, strlen(path), e);
    }
    if (row) sqlite3_reset(s);
    return rc;
}

static enum status sharegpt(struct buf *b, sqlite3_stmt *s, const struct export_form *f,
                            struct err *e)
{
    struct job j;
    size_t len;
    const char *spec = bytes(s, C_SPEC, &len);
    if (!spec || sqlite3_column_type(s, C_CODE) != SQLITE_NULL) return OK;
    enum status rc = job_from_spec(&j, spec, len, e);
    if (!rc) rc = buf_addf(b, e, "{\"id\":");
    if (!rc) rc = quote(b, s, C_CUSTOM_ID, e);
    if (!rc) rc = buf_addf(b, e, ",\"conversations\":[");
    if (!rc) rc = turns(b, &j, e);
    if (!rc) rc = buf_addf(b, e, "{\"from\":\"gpt\",\"value\":");
    if (!rc) rc = quote(b, s, C_CONTENT, e);
    if (!rc) rc = buf_addf(b, e, "}]");
    if (!rc && j.n_images) {
        rc = buf_addf(b, e, ",\"images\":[");
        if (!rc) rc = pictures(b, f->db, sqlite3_column_int64(s, C_ID), f->folder, e);
        if (!rc) rc = buf_addf(b, e, "]");
    }
    job_free(&j);
    return rc ? rc : buf_addf(b, e, "}\n");
}

enum status export_form_next(struct export_lines *x, const struct export_form *f, bool *more,
                             struct err *e)
{
    sqlite3_stmt *s;
    *more = false;
    x->text.len = 0;
    enum status rc = db_stmt(f->db, &s, next_sql, e);
    if (!rc) rc = db_bind(f->db, s, e, "ii", x->input, x->line);
    if (!rc) rc = db_step(f->db, s, more, e);
    if (rc || !*more) return rc;
    x->failed = sqlite3_column_type(s, C_CODE) != SQLITE_NULL;
    x->input = sqlite3_column_int64(s, C_INPUT);
    x->line = sqlite3_column_int64(s, C_LINE);
    rc = f->format == EXPORT_METADATA ? metadata(&x->text, s, f, e)
         : f->format == EXPORT_CSV    ? csv(&x->text, s, e)
                                      : sharegpt(&x->text, s, f, e);
    sqlite3_reset(s);
    return rc;
}
