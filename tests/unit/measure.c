/* measure: the room that the jobs of a queue need. */
#include "jobs/measure.h"
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

static const char lines[] = "{\"id\":\"a\",\"prompt\":\"one\",\"max_tokens\":40}\n"
                            "{\"id\":\"b\",\"prompt\":\"one two three\",\"max_tokens\":30}\n"
                            "{\"id\":\"c\",\"prompt\":\"one\",\"max_tokens\":60}\n"
                            "{\"id\":\"d\",\"prompt\":\"one\",\"max_tokens\":5000}\n";

/* The longest job decides; one that the model could never take does not. */
TEST(longest_job)
{
    struct err e;
    struct night n;
    struct measure m;
    CHECK(night_open(&n, "longest.db"));
    CHECK_OK(night_import(&n, "longest.jsonl", lines, &e), e);
    CHECK_OK(measure_queue(n.db, &n.config, n.tok, 10, &m, &e), e);
    CHECK_INT(m.jobs, 4);
    CHECK_INT(m.images, 0);
    n.o.sequences = n.engine.sequences = 1;
    n.engine.context = m.context;
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.done, 3);
    CHECK_OK(measure_queue(n.db, &n.config, n.tok, 10, &m, &e), e);
    CHECK_INT(m.context, 0);
    night_close(&n);
}

/* One row less and the longest job has no room. */
TEST(no_row_too_many)
{
    struct err e;
    struct night n;
    struct measure m;
    CHECK(night_open(&n, "tight.db"));
    CHECK_OK(night_import(&n, "longest.jsonl", lines, &e), e);
    CHECK_OK(measure_queue(n.db, &n.config, n.tok, 10, &m, &e), e);
    n.engine.context = m.context - 1;
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.done, 2);
    night_close(&n);
}

/* A picture of unknown size counts with the most it may have. */
TEST(pictures_count)
{
    struct err e;
    struct night n;
    struct measure a, b;
    CHECK(night_open(&n, "pictures.db"));
    test_write(test_path("p"), "p", 1);
    CHECK_OK(night_import(&n, "p.jsonl",
                          "{\"id\":\"a\",\"prompt\":\"one\",\"image\":\"p\",\"max_tokens\":40}\n",
                          &e),
             e);
    CHECK_OK(measure_queue(n.db, &n.config, n.tok, 10, &a, &e), e);
    CHECK_OK(measure_queue(n.db, &n.config, n.tok, 110, &b, &e), e);
    CHECK_INT(a.images, 1);
    CHECK_INT(b.context - a.context, 100);
    night_close(&n);
}

/* A spec that cannot be read fails its job, not the night; the output has it too. */
TEST(unreadable_spec)
{
    struct err e;
    struct night n;
    struct measure m;
    CHECK(night_open(&n, "unreadable.db"));
    CHECK_OK(night_import(&n, "unreadable.jsonl", lines, &e), e);
    CHECK_OK(db_exec(n.db, "UPDATE jobs SET spec='{' WHERE custom_id IN ('b','d')", &e), e);
    CHECK_OK(measure_queue(n.db, &n.config, n.tok, 10, &m, &e), e);
    CHECK(m.context > 60);
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.done, 2);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM failures WHERE code='invalid_request' AND "
                             "message LIKE 'job spec: %'"),
              2);
    char *out = night_output(&n);
    CHECK_HAS(out, "\"custom_id\":\"b\"");
    free(out);
    night_close(&n);
}

TEST_MAIN
