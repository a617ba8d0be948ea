/* Every query that jobs/README.md shows works as printed, and finds what it is meant to find. */
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

static struct err e;

/* The indented lines of the document, one after the other. */
static char *documented(void)
{
    char *text = test_read("jobs/README.md", NULL), *to = text;
    if (!text) return NULL;
    for (char *line = text, *end; *line; line = end) {
        end = strchr(line, '\n');
        end = end ? end + 1 : line + strlen(line);
        if (strncmp(line, "    ", 4) != 0) continue;
        memmove(to, line + 4, (size_t)(end - line - 4));
        to += end - line - 4;
    }
    *to = 0;
    return text;
}

static const char jobs[] = "{\"id\":\"a\",\"prompt\":\"one\",\"temperature\":0.5}\n"
                           "{\"id\":\"b\",\"prompt\":\"two\",\"max_tokens\":1}\n"
                           "{\"id\":\"c\",\"prompt\":\"three\",\"image\":\"cat.jpg\"}\n"
                           "{\"id\":\"d\",\"prompt\":\"four\",\"image\":\"gone.jpg\"}\n"
                           "no JSON\n";

static bool worked_queue(struct night *n)
{
    test_write(test_path("cat.jpg"), "cat", 3);
    if (!night_open(n, "queries.db")) return false;
    enum status rc = night_import(n, "queries.jsonl", jobs, &e);
    if (!rc) rc = night_run(n, &e);
    if (!rc)
        rc = db_exec(n->db,
                     "INSERT INTO attempts(job_id, attempt, fence, tokens, ended_at) "
                     "VALUES(1, 2, 99, 0, 0); "
                     "UPDATE runs SET seconds=2",
                     &e);
    if (rc) test_failed(__FILE__, __LINE__, "%s", e.text);
    return !rc;
}

/* In the order of the document: rows that each query gives. */
TEST(each_query_answers)
{
    static const int rows[] = {2, 3, 2, 1, 1, 3, 1, 4, 1, 1};
    struct night n;
    sqlite3 *h = NULL;
    char *text = documented();
    const char *sql = text;
    size_t i = 0;
    CHECK(text && worked_queue(&n));
    CHECK(sqlite3_open_v2(test_path("queries.db"), &h, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK);
    while (*sql) {
        sqlite3_stmt *s = NULL;
        const char *at = sql;
        int code = sqlite3_prepare_v2(h, sql, -1, &s, &sql), found = 0;
        if (code) FAIL("%.60s: %s", at, sqlite3_errmsg(h));
        if (!s) continue;
        while ((code = sqlite3_step(s)) == SQLITE_ROW) found++;
        sqlite3_finalize(s);
        if (code != SQLITE_DONE) FAIL("%.60s: %s", at, sqlite3_errmsg(h));
        if (i == sizeof rows / sizeof *rows) FAIL("%.60s: how many rows?", at);
        if (found != rows[i]) FAIL("%.60s: %d rows, not %d", at, found, rows[i]);
        i++;
    }
    CHECK_INT(i, sizeof rows / sizeof *rows);
    sqlite3_close(h);
    free(text);
    night_close(&n);
}

TEST_MAIN
