/* runs, model_id, merge, eta: what goes with a queue. */
#include "jobs/eta.h"
#include "jobs/merge.h"
#include "jobs/model_id.h"
#include "jobs/runs.h"
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

#include <unistd.h>

static enum status set(struct db *db, const char *model, const char *isa, bool allow,
                       struct buf *changed, struct err *e)
{
    const struct run_setting list[] = {{"model", model, false}, {"isa", isa, true}};
    return run_settings(db, list, 2, allow, changed, e);
}

/* Settings may differ until something was computed; then hard ones are refused unless allowed, and
 * tokens of the other model go. Soft ones are only told. */
TEST(settings_are_kept)
{
    struct err e;
    struct buf b = {0};
    char *value;
    struct db *db = jobs_open("settings.db", NULL);
    jobs_add(db, 2);
    CHECK_OK(set(db, "one", "avx2", false, NULL, &e), e);
    CHECK_OK(set(db, "two", "avx2", false, &b, &e), e);
    CHECK_INT(b.len, 0);
    CHECK_OK(db_exec(db, "INSERT INTO partial VALUES(1, x'01000000', 0, 0, 0)", &e), e);
    CHECK_ERR(set(db, "three", "avx2", false, NULL, &e), E_MODEL, e, "model was two and is three");
    CHECK_OK(set(db, "two", "amx", false, &b, &e), e);
    CHECK_STR(b.data, "isa was avx2 and is amx");
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM partial"), 1);
    CHECK_OK(set(db, "three", "amx", true, NULL, &e), e);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM partial"), 0);
    CHECK_OK(run_setting(db, "model", &value, &e), e);
    CHECK_STR(value, "three");
    free(value);
    buf_free(&b);
    db_close(db);
}

/* While another worker computes its first jobs, hard settings stand. */
TEST(settings_of_running_jobs)
{
    struct err e;
    struct queue_job j;
    size_t n;
    const struct queue_worker w = {.name = "w", .lease_ms = 1000};
    struct db *db = jobs_open("running.db", NULL);
    jobs_add(db, 2);
    CHECK_OK(set(db, "one", "avx2", false, NULL, &e), e);
    CHECK_OK(queue_claim(db, &w, 0, &j, 1, &n, &e), e);
    CHECK_INT(n, 1);
    CHECK_ERR(set(db, "two", "avx2", false, NULL, &e), E_MODEL, e, "model was one and is two");
    CHECK_OK(set(db, "one", "amx", false, NULL, &e), e);
    CHECK_OK(queue_release(db, "w", &e), e);
    CHECK_OK(set(db, "two", "avx2", false, NULL, &e), e);
    queue_job_free(&j);
    db_close(db);
}

/* A run's row says what it did, and when it ended. */
TEST(run_row)
{
    struct err e;
    int64_t id;
    struct db *db = jobs_open("run.db", NULL);
    struct run_info info = {"w", "m", "s", "t", "c"};
    CHECK_OK(run_begin(db, &info, &id, &e), e);
    struct run_counts c = {.done = 3, .seconds = 1.5};
    CHECK_OK(run_update(db, id, &c, -1, &e), e);
    CHECK_INT(jobs_int(db, "SELECT done FROM runs WHERE ended_at IS NULL AND exit_code IS NULL"),
              3);
    CHECK_OK(run_update(db, id, &c, 0, &e), e);
    CHECK_INT(jobs_int(db, "SELECT done FROM runs WHERE ended_at NOT NULL AND exit_code=0"), 3);
    db_close(db);
}

static void copy(const char *name, const char *dir)
{
    char from[300], to[300];
    size_t len;
    snprintf(from, sizeof from, NIGHT_MODEL "/%s", name);
    snprintf(to, sizeof to, "%s/%s", dir, name);
    char *text = test_read(from, &len);
    if (text) test_write(to, text, len);
    free(text);
}

/* The identity of a model changes with its configuration, its tokenizer and its headers, and with
 * nothing else. */
TEST(model_identity)
{
    static const char *const names[] = {"config.json", "tiktoken.model", "model.safetensors",
                                        "model.safetensors.index.json"};
    struct err e;
    char a[65], b[65];
    for (size_t i = 0; i < 4; i++) copy(names[i], test_dir());
    CHECK_OK(model_id(test_dir(), a, &e), e);
    test_write(test_path("README"), "x", 1);
    CHECK_OK(model_id(test_dir(), b, &e), e);
    CHECK_STR(b, a);
    for (size_t i = 0; i < 2; i++) {
        FILE *f = fopen(test_path(names[i]), "ab");
        CHECK(f && fputc('\n', f) == '\n' && fclose(f) == 0);
        CHECK_OK(model_id(test_dir(), b, &e), e);
        CHECK(strcmp(a, b) != 0);
        memcpy(a, b, sizeof a);
    }
    FILE *f = fopen(test_path("model.safetensors"), "r+b");
    CHECK(f && fseek(f, 8, SEEK_SET) == 0);
    char word[200];
    CHECK(fread(word, 1, sizeof word, f) == sizeof word);
    char *space = strstr(word, "dtype");
    CHECK(space);
    fclose(f);
    CHECK_OK(model_id(test_dir(), b, &e), e);
    CHECK_STR(b, a);
    unlink(test_path("model.safetensors"));
    CHECK(model_id(test_dir(), b, &e) == E_MODEL);
}

static char *merged(struct db *const *dbs, size_t n, struct merge_counts *c)
{
    struct err e;
    const char *path = test_path("merged.jsonl");
    if (merge_queues(dbs, n, path, c, &e)) {
        test_failed(__FILE__, __LINE__, "%s", e.text);
        return NULL;
    }
    return test_read(path, NULL);
}

static struct night shard(const char *db, uint32_t k, bool answer)
{
    struct err e;
    struct night n;
    const char *path = test_path("merge.jsonl");
    static const char text[] = "{\"id\":\"a\",\"prompt\":\"1\"}\n{\"id\":\"b\",\"prompt\":\"2\"}\n"
                               "{\"id\":\"c\",\"prompt\":\"3\"}\n{\"id\":\"d\",\"prompt\":\"4\"}\n"
                               "{\"id\":\"e\",\"prompt\":\"5\"}\n{\"id\":\"f\",\"prompt\":\"6\"}\n";
    if (!night_open(&n, db)) return n;
    test_write(path, text, sizeof text - 1);
    struct import_opts o = {
        .paths = &path, .n_paths = 1, .row = {.mem = &n.mem}, .shard = k, .shards = k ? 2 : 0};
    n.o.prepare.model_name = answer ? NULL : "other";
    enum status rc = import_files(n.db, &o, &n.counts, &e);
    if (!rc && !answer)
        rc = db_exec(n.db, "UPDATE jobs SET spec=json_set(spec, '$.model', 'gpt')", &e);
    if (!rc) rc = night_run(&n, &e);
    if (rc) test_failed(__FILE__, __LINE__, "%s", e.text);
    return n;
}

/* Shards give together, in input order, what one queue gives; the order in which they are named and
 * doing it twice do not matter; without one of them its jobs are missing. */
TEST(merge_shards)
{
    struct merge_counts c;
    struct night all = shard("all.db", 0, true), one = shard("one.db", 1, true),
                 two = shard("two.db", 2, true);
    char *want = merged((struct db *[]){all.db}, 1, &c);
    CHECK_INT(c.answers, 6);
    char *got = merged((struct db *[]){two.db, one.db}, 2, &c);
    CHECK_INT(c.answers, 6);
    CHECK_INT(c.missing + c.unfinished + c.doubles, 0);
    for (char *a = want, *b = got; *a; a = strchr(a, '\n') + 1, b = strchr(b, '\n') + 1) {
        char *x = strstr(a, "custom_id"), *y = strstr(b, "custom_id");
        CHECK(x && y && !strncmp(x, y, 16));
    }
    free(got);
    free(want);
    free(merged((struct db *[]){one.db}, 1, &c));
    CHECK_INT(c.missing + c.answers, 6);
    CHECK(c.missing > 0);
    night_close(&all);
    night_close(&one);
    night_close(&two);
}

/* Of two results for one line the answer counts, whichever queue is named first. */
TEST(merge_prefers_answers)
{
    struct merge_counts c;
    struct night bad = shard("bad.db", 0, false), good = shard("good.db", 0, true);
    free(merged((struct db *[]){bad.db}, 1, &c));
    CHECK_INT(c.failures, 6);
    for (int i = 0; i < 2; i++) {
        char *out = merged((struct db *[]){i ? bad.db : good.db, i ? good.db : bad.db}, 2, &c);
        CHECK_INT(c.answers, 6);
        CHECK_INT(c.failures, 0);
        CHECK_INT(c.doubles, 6);
        CHECK_INT(c.missing, 0);
        free(out);
    }
    night_close(&bad);
    night_close(&good);
}

/* What is left is estimated by what was measured: prompts by their bytes, answers by their mean. */
TEST(rows_left)
{
    struct eta t = {.left = {10, 3000, 0}};
    CHECK_NEAR(eta_rows(&t), 1000 + 10 * 128, 1e-9);
    struct eta_load job = {1, 300, 0};
    eta_prompt(&t, &job, 60, 0);
    eta_finish(&t, &job, 20);
    CHECK_NEAR(eta_rows(&t), 2700 * 0.2 + 9 * 20, 1e-9);
    struct eta_load failed = {1, 300, 0};
    eta_finish(&t, &failed, 0);
    CHECK_NEAR(eta_rows(&t), 2400 * 0.2 + 8 * 20, 1e-9);
    t = (struct eta){.left = {1, 0, 50}};
    struct eta_load picture = {1, 0, 100};
    eta_prompt(&t, &picture, 0, 80);
    CHECK_NEAR(eta_rows(&t), 50 * 0.8 + 128, 1e-9);
}

TEST_MAIN
