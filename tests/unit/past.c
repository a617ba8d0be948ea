/* past: answers of earlier runs come back as the tokens they were given in. */
#include "jobs/past.h"

#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

struct told {
    struct night *n;
    size_t answers, right, ended;
};

/* Answer number `answers` of the queue, as text: what the ids after the prompt say up to the first
 * that is markup. */
static void learn(void *user, const int32_t *ids, size_t n, size_t n_prompt)
{
    struct told *t = user;
    struct buf b = {0};
    struct err e;
    for (size_t i = n_prompt; i < n && !tok_is_special(t->n->tok, ids[i]); i++) {
        size_t len;
        const char *bytes = tok_bytes(t->n->tok, ids[i], &len);
        if (buf_add(&b, bytes, len, &e)) abort();
    }
    sqlite3_stmt *s;
    bool row = false;
    enum status rc = db_stmt(t->n->db, &s,
                             "SELECT content FROM results WHERE code IS NULL ORDER BY job_id LIMIT "
                             "1 OFFSET ?1",
                             &e);
    if (!rc) rc = db_bind(t->n->db, s, &e, "i", (int64_t)t->answers++);
    if (!rc) rc = db_step(t->n->db, s, &row, &e);
    if (rc || !row) abort();
    size_t len = (size_t)sqlite3_column_bytes(s, 0);
    t->right += len == b.len && !memcmp(sqlite3_column_text(s, 0), b.data ? b.data : "", len);
    t->ended += ids[n - 1] == t->n->config.eos[0];
    sqlite3_reset(s);
    buf_free(&b);
}

static struct told tell(struct night *n)
{
    struct err e;
    struct told t = {.n = n};
    struct past p = {n->tok, &n->config, learn, &t};
    if (past_answers(n->db, &p, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return t;
}

static bool finished(struct night *n, const char *name)
{
    struct err e;
    if (!night_open(n, name)) return false;
    test_write(test_path("past.png"), "picture", 7);
    if (night_import(n, "past.jsonl",
                     "{\"id\":\"a\",\"prompt\":\"What is 3?\"}\n"
                     "{\"id\":\"b\",\"image\":\"past.png\",\"prompt\":\"And this?\"}\n"
                     "{\"id\":\"c\",\"image\":\"none\",\"prompt\":\"q\"}\n"
                     "{\"id\":\"d\",\"system\":\"Be short.\",\"prompt\":\"Well?\"}\n",
                     &e) ||
        night_run(n, &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    return true;
}

/* Each answer of an earlier run comes once, in order, with its end; failures do not. */
TEST(answers_come_back_as_tokens)
{
    struct night n;
    CHECK(finished(&n, "past.db"));
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM results WHERE code IS NULL"), 3);
    struct told t = tell(&n);
    CHECK_INT(t.answers, 3);
    CHECK_INT(t.right, 3);
    CHECK_INT(t.ended, 3);
    night_close(&n);
}

/* A job that can no longer be read is left out, the others come; an empty queue has none. */
TEST(what_cannot_be_read_is_left_out)
{
    struct err e;
    struct night n;
    CHECK(finished(&n, "unread.db"));
    CHECK_OK(db_exec(n.db, "UPDATE jobs SET spec='{}' WHERE custom_id='d'", &e), e);
    CHECK_INT(tell(&n).answers, 2);
    night_close(&n);
    CHECK(night_open(&n, "empty.db"));
    CHECK_INT(tell(&n).answers, 0);
    night_close(&n);
}

TEST_MAIN
