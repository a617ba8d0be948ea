/* An answer is stored as text: its conversation is rendered once more, with it as the last message,
 * and once without; what the first has more are the answer's tokens. */
#include "jobs/past.h"

#include "jobs/job.h"
#include "src/prompt.h"

#include <stdlib.h>
#include <string.h>

#define MOST_ANSWERS 4000
#define MOST_BYTES   (8 << 20) /* of text in all */

static enum status render(const struct past *p, struct job *j, const char *answer, size_t len,
                          struct prompt *out, struct err *e)
{
    struct chat_prompt chat = {0};
    struct chat_part part = {.text = answer, .len = len};
    struct chat_message *m = calloc(j->n_messages + 1, sizeof *m);
    unsigned *rows = calloc(j->n_images + 1, sizeof *rows);
    enum status rc = m && rows ? OK : err_set(e, E_NOMEM, "earlier answers: no memory");
    for (size_t i = 0; i < j->n_images && !rc; i++) {
        rows[i] = 1;
        job_set_image_size(j, i, 1, 1);
    }
    struct chat_options o = {.format = j->format, .schema = j->schema};
    if (!rc) {
        memcpy(m, j->messages, j->n_messages * sizeof *m);
        m[j->n_messages] = (struct chat_message){.role = CHAT_ASSISTANT, .parts = &part};
        m[j->n_messages].n_parts = 1;
        rc = chat_render(&chat, m, j->n_messages + (answer != NULL), &o, e);
    }
    if (!rc) rc = prompt_build(out, p->tok, &chat, p->config->media_pad, rows, j->n_images, e);
    chat_prompt_free(&chat);
    free(rows);
    free(m);
    return rc;
}

static enum status tell(const struct past *p, struct job *j, const char *answer, size_t len,
                        struct err *e)
{
    struct prompt before = {0}, whole = {0};
    enum status rc = render(p, j, NULL, 0, &before, e);
    if (!rc) rc = render(p, j, answer, len, &whole, e);
    size_t from = before.ids.n, n = from;
    if (!rc && whole.ids.n > from && !memcmp(before.ids.at, whole.ids.at, from * sizeof(int32_t))) {
        while (n < whole.ids.n && whole.ids.at[n++] != p->config->eos[0]) {
        }
        p->learn(p->user, whole.ids.at, n, from);
    }
    prompt_free(&before);
    prompt_free(&whole);
    return rc;
}

enum status past_answers(struct db *db, const struct past *p, struct err *e)
{
    sqlite3_stmt *s;
    bool row = true;
    int64_t first = 0;
    /* Where the latest answers that fit begin. */
    enum status rc =
        db_int(db, &first, 0, e,
               "SELECT min(job_id) FROM (SELECT job_id, sum(length(content)+text) OVER (ORDER BY "
               "job_id DESC) AS bytes FROM (SELECT r.job_id, r.content, j.text_bytes AS text FROM "
               "results r JOIN jobs j ON j.id=r.job_id WHERE r.code IS NULL AND "
               "coalesce(r.reasoning,'')='' ORDER BY r.job_id DESC LIMIT ?1)) WHERE bytes<=?2",
               "ii", (int64_t)MOST_ANSWERS, (int64_t)MOST_BYTES);
    if (!rc)
        rc = db_stmt(db, &s,
                     "SELECT j.spec, r.content FROM results r JOIN jobs j ON j.id=r.job_id WHERE "
                     "r.job_id>=?1 AND r.code IS NULL AND coalesce(r.reasoning,'')='' AND j.spec "
                     "NOT NULL ORDER BY r.job_id",
                     e);
    if (!rc) rc = db_bind(db, s, e, "i", first);
    while (!rc) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        struct job j;
        rc = job_from_spec(&j, sqlite3_column_blob(s, 0), (size_t)sqlite3_column_bytes(s, 0), e);
        if (!rc)
            rc = tell(p, &j, (const char *)sqlite3_column_text(s, 1),
                      (size_t)sqlite3_column_bytes(s, 1), e);
        job_free(&j);
        if (rc != E_NOMEM) rc = OK;
        if (rc) sqlite3_reset(s);
    }
    return rc;
}
