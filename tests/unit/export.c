/* export: results in every form. */
#include "jobs/export.h"
#include "src/os.h"
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

#include <unistd.h>

/* A queue with two answers about pictures, one about none, one failure, one bad line; answers are
 * put in by hand. */
static bool fill(struct night *n, const char *db)
{
    struct err e;
    if (!night_open(n, db)) return false;
    test_write(test_path("a.png"), "a", 1);
    test_write(test_path("b.x.png"), "b", 1);
    enum status rc = night_import(n, "export.jsonl",
                                  "{\"id\":\"p\\u00e9\",\"image\":\"a.png\",\"prompt\":\"What?\"}\n"
                                  "{\"id\":\"q\",\"image\":\"b.x.png\",\"prompt\":\"What?\"}\n"
                                  "{\"id\":\"t\",\"system\":\"Be brief.\",\"prompt\":\"Hi\"}\n"
                                  "{\"id\":\"f\",\"image\":\"no.png\",\"prompt\":\"What?\"}\n"
                                  "{\"id\":3\n",
                                  &e);
    if (!rc) rc = night_run(n, &e);
    if (!rc)
        rc = db_exec(n->db,
                     "UPDATE results SET content='plain' WHERE job_id=1;"
                     "UPDATE results SET content='a \"b\", c' || char(10) || 'd' WHERE job_id=2;"
                     "UPDATE results SET content='x' || char(0, 1) || 'y' WHERE job_id=3",
                     &e);
    if (rc) test_failed(__FILE__, __LINE__, "%s", e.text);
    return !rc;
}

static char *written(struct night *n, enum export_format format)
{
    struct err e;
    struct export_counts c;
    struct export_request r = {.format = format, .path = test_path("out.txt")};
    if (export_files(n->db, &r, &c, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return test_read(r.path, NULL);
}

/* The batch line has all of its keys, in order, for an answer and for both kinds of failure; the
 * failures are in their own file once more. */
TEST(openai_lines)
{
    struct err e;
    struct night n;
    struct export_counts c;
    CHECK(fill(&n, "openai.db"));
    char *out = night_output(&n);
    static const char *const keys[] = {
        "{\"id\":\"batch_req_1-1\",\"custom_id\":\"p\xc3\xa9\",\"response\":{\"status_code\":200,"
        "\"request_id\":\"req_1-1\",\"body\":{\"id\":\"chatcmpl-1-1\",\"object\":\"chat."
        "completion\","
        "\"created\":0,\"model\":\"demo-model\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
        "\"assistant\",\"content\":\"plain\",\"reasoning_content\":null},\"finish_reason\":"
        "\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":",
        "},\"x_run\":{\"seed\":",
        ",\"model_sha\":\"0123\",\"params_sha\":\"",
        "\",\"images\":[{\"path\":\"a.png\",\"sha256\":"
        "\"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\",\"width\":3,"
        "\"height\":2,\"orientation\":1,\"tokens\":2,\"warnings\":[\"it is \\\"fake\\\"\"]}],"
        "\"attempt\":1,\"prefill_s\":0,\"decode_s\":0}}},\"error\":null}\n",
        "\"content\":\"x\\u0000\\u0001y\"",
        "{\"id\":\"batch_req_4-0\",\"custom_id\":\"f\",\"response\":{\"status_code\":404,"
        "\"request_id\":\"req_4-0\",\"body\":{\"error\":{\"message\":\"",
        "\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"image_missing\"}}},"
        "\"error\":{\"code\":\"image_missing\",\"message\":\"",
        "\"custom_id\":null,\"response\":{\"status_code\":400,",
        ",\"line\":5}}\n",
    };
    const char *at = out;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        at = strstr(at, keys[i]);
        if (!at) FAIL("without %s in\n%s", keys[i], out);
    }
    struct export_request r = {.errors_path = test_path("errors.jsonl")};
    CHECK_OK(export_files(n.db, &r, &c, &e), e);
    char *errors = test_read(r.errors_path, NULL);
    CHECK_STR(errors, strstr(out, "{\"id\":\"batch_req_4-0\""));
    free(errors);
    free(out);
    night_close(&n);
}

/* ImageFolder's metadata: answers about pictures alone, names from the file's own folder. */
TEST(metadata_records)
{
    struct night n;
    CHECK(fill(&n, "metadata.db"));
    char *out = written(&n, EXPORT_METADATA);
    CHECK_STR(out, "{\"file_name\":\"a.png\",\"text\":\"plain\"}\n"
                   "{\"file_name\":\"b.x.png\",\"text\":\"a \\\"b\\\", c\\nd\"}\n");
    free(out);
    night_close(&n);
}

/* CSV quotes what has to be quoted and nothing else; failures have their code. */
TEST(csv_records)
{
    struct night n;
    CHECK(fill(&n, "csv.db"));
    char *out = written(&n, EXPORT_CSV);
    CHECK_HAS(out, "custom_id,state,content,");
    CHECK_HAS(out, "\r\np\xc3\xa9,done,plain,stop,/");
    CHECK_HAS(out, "\r\nq,done,\"a \"\"b\"\", c\nd\",stop,/");
    CHECK_HAS(out, "\r\nf,failed,,,,0,0,image_missing,");
    free(out);
    night_close(&n);
}

/* Conversations for training: pictures as markers, the system message first. */
TEST(sharegpt_records)
{
    struct night n;
    CHECK(fill(&n, "sharegpt.db"));
    char *out = written(&n, EXPORT_SHAREGPT);
    CHECK_HAS(
        out, "{\"id\":\"p\xc3\xa9\",\"conversations\":[{\"from\":\"human\",\"value\":"
             "\"<image>What?\"},{\"from\":\"gpt\",\"value\":\"plain\"}],\"images\":[\"a.png\"]}\n");
    CHECK_HAS(
        out,
        "[{\"from\":\"system\",\"value\":\"Be brief.\"},{\"from\":\"human\",\"value\":\"Hi\"},");
    CHECK(!strstr(out, "image_missing"));
    free(out);
    night_close(&n);
}

static enum status sidecars(struct night *n, enum export_existing existing, struct err *e)
{
    struct export_counts c;
    struct export_request r = {.format = EXPORT_TXT, .existing = existing};
    return export_files(n->db, &r, &c, e);
}

static bool holds(const char *name, const char *want)
{
    char *text = test_read(test_path(name), NULL);
    bool same = text && !strcmp(text, want);
    free(text);
    return same;
}

/* Sidecar texts are named like their pictures; writing them twice changes nothing; what is there
 * already is treated as asked. */
TEST(sidecar_texts)
{
    struct err e;
    struct night n;
    CHECK(fill(&n, "txt.db"));
    CHECK_OK(sidecars(&n, EXPORT_ERROR, &e), e);
    CHECK(holds("a.txt", "plain\n"));
    CHECK(holds("b.x.txt", "a \"b\", c\nd\n"));
    CHECK_OK(sidecars(&n, EXPORT_ERROR, &e), e);
    test_write(test_path("a.txt"), "mine", 4);
    CHECK_ERR(sidecars(&n, EXPORT_ERROR, &e), E_USAGE, e, "a.txt is there already");
    CHECK_OK(sidecars(&n, EXPORT_SKIP, &e), e);
    CHECK(holds("a.txt", "mine"));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(sidecars(&n, EXPORT_APPEND, &e), e);
        CHECK(holds("a.txt", "mine\nplain\n"));
    }
    test_write(test_path("a.txt"), "mine", 4);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(sidecars(&n, EXPORT_PREPEND, &e), e);
        CHECK(holds("a.txt", "plain\nmine"));
    }
    CHECK_OK(sidecars(&n, EXPORT_OVERWRITE, &e), e);
    CHECK(holds("a.txt", "plain\n"));
    unlink(test_path("a.txt"));
    unlink(test_path("b.x.txt"));
    night_close(&n);
}

/* Two pictures that would share a text are refused before anything is written. */
TEST(sidecar_texts_do_not_collide)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "collide.db"));
    test_write(test_path("c.png"), "c", 1);
    test_write(test_path("d.png"), "d", 1);
    test_write(test_path("d.jpg"), "d", 1);
    CHECK_OK(night_import(&n, "collide.jsonl",
                          "{\"id\":\"1\",\"image\":\"c.png\",\"prompt\":\"What?\"}\n"
                          "{\"id\":\"2\",\"image\":\"d.png\",\"prompt\":\"What?\"}\n"
                          "{\"id\":\"3\",\"image\":\"d.jpg\",\"prompt\":\"What?\"}\n",
                          &e),
             e);
    CHECK_OK(night_run(&n, &e), e);
    CHECK_ERR(sidecars(&n, EXPORT_OVERWRITE, &e), E_USAGE, e,
              "d.txt would hold the answers of two");
    CHECK(!os_exists(test_path("c.txt")));
    /* An answer of a line that is gone is none of them. */
    CHECK_OK(db_exec(n.db, "UPDATE jobs SET line=-line WHERE custom_id='2'", &e), e);
    CHECK_OK(sidecars(&n, EXPORT_OVERWRITE, &e), e);
    unlink(test_path("c.txt"));
    unlink(test_path("d.txt"));
    night_close(&n);
}

/* A write that fails leaves the file of before, and no temporary one. */
TEST(failed_write_keeps_the_old_file)
{
    struct err e;
    struct night n;
    struct export_counts c;
    CHECK(fill(&n, "keep.db"));
    struct export_request r = {.path = test_path("kept.jsonl")};
    test_write(r.path, "before", 6);
    for (int kind = OS_FAULT_WRITE; kind <= OS_FAULT_SYNC; kind++) {
        os_fault((enum os_fault_kind)kind, 0, false);
        CHECK(export_files(n.db, &r, &c, &e) != OK);
        os_fault((enum os_fault_kind)kind, -1, false);
        CHECK(holds("kept.jsonl", "before"));
        char command[600];
        snprintf(command, sizeof command, "ls %s | grep -q tmp", test_dir());
        CHECK(system(command) != 0);
    }
    night_close(&n);
}

TEST_MAIN
