/* import: inputs into the queue, once. */
#include "jobs/import.h"
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

#include <sys/stat.h>
#include <unistd.h>

static struct mem mem;

struct fixture {
    struct db *db;
    struct import_opts o;
    struct import_counts c;
    struct err e;
};

static struct fixture open_fixture(const char *name)
{
    struct fixture f = {.db = jobs_open(name, NULL)};
    mem_init(&mem, 0);
    f.o.row.mem = &mem;
    return f;
}

static enum status import_text(struct fixture *f, const char *name, const char *text)
{
    const char *path = test_path(name);
    test_write(path, text, strlen(text));
    f->o.paths = &path;
    f->o.n_paths = 1;
    return import_files(f->db, &f->o, &f->c, &f->e);
}

static const char three[] = "{\"id\":\"a\",\"prompt\":\"x\"}\n"
                            "{\"id\":\"b\",\"prompt\":\"y\"}\n"
                            "{\"id\":\"c\",\"prompt\":\"z\"}\n";

/* Lines become jobs with their place in the file; the same file again changes nothing. */
TEST(twice_is_once)
{
    struct fixture f = open_fixture("twice.db");
    CHECK_OK(import_text(&f, "three.jsonl", three), f.e);
    CHECK_INT(f.c.outcome[ROW_ADDED], 3);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs WHERE custom_id='b' AND line=2 AND "
                             "byte_offset=24 AND byte_length=23 AND state='pending'"),
              1);
    CHECK_OK(import_text(&f, "three.jsonl", three), f.e);
    CHECK_INT(f.c.outcome[ROW_KNOWN], 3);
    CHECK_INT(f.c.outcome[ROW_ADDED], 0);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs"), 3);
    db_close(f.db);
}

/* A bad line fails alone, with its line number; the others are jobs. */
TEST(bad_lines_fail_alone)
{
    struct fixture f = open_fixture("bad.db");
    CHECK_OK(import_text(&f, "bad.jsonl",
                         "{\"id\":\"a\",\"prompt\":\"x\"}\n\nnonsense\n"
                         "{\"id\":\"t\",\"prompt\":\"x\",\"tools\":[1]}\n"
                         "{\"id\":\"z\",\"prompt\":\"x\"}"),
             f.e);
    CHECK_INT(f.c.outcome[ROW_ADDED], 2);
    CHECK_INT(f.c.outcome[ROW_BAD], 2);
    CHECK_INT(
        jobs_int(f.db, "SELECT line FROM failures WHERE code='invalid_json' AND custom_id IS NULL"),
        3);
    CHECK_INT(jobs_int(f.db, "SELECT line FROM failures WHERE code='unsupported_field' AND "
                             "custom_id='t' AND message LIKE '%tools%'"),
              4);
    db_close(f.db);
}

/* A second job of an id is reported with both lines, in a file and across files; the same job in
 * another file is known, and runs once. */
TEST(duplicates_name_both_lines)
{
    struct fixture f = open_fixture("duplicates.db");
    CHECK_OK(import_text(&f, "one.jsonl",
                         "{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"b\",\"prompt\":\"x\"}\n"
                         "{\"id\":\"a\",\"prompt\":\"x\"}\n"),
             f.e);
    CHECK_INT(f.c.outcome[ROW_DUPLICATE], 1);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM failures WHERE code='duplicate_id' AND message "
                             "LIKE '%\"a\"%line 1 %line 3'"),
              1);
    CHECK_OK(import_text(&f, "two.jsonl",
                         "{\"id\":\"b\",\"prompt\":\"x\"}\n{\"id\":\"a\",\"prompt\":\"y\"}\n"),
             f.e);
    CHECK_INT(f.c.outcome[ROW_KNOWN], 1);
    CHECK_INT(f.c.outcome[ROW_DUPLICATE], 1);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM failures WHERE message LIKE "
                             "'%line 1 of %one.jsonl and again on line 2 of %two.jsonl'"),
              1);
    f.o.skip_duplicates = true;
    CHECK_OK(import_text(&f, "three.jsonl", "{\"id\":\"a\",\"prompt\":\"q\"}\n"), f.e);
    CHECK_INT(f.c.outcome[ROW_KNOWN], 1);
    db_close(f.db);
}

/* A bad line is never the same as another bad line of its id. */
TEST(bad_lines_are_never_known)
{
    struct fixture f = open_fixture("bad_twice.db");
    CHECK_OK(import_text(&f, "bad1.jsonl", "{\"id\":\"a\",\"prompt\":\"x\",\"n\":2}\n"), f.e);
    CHECK_INT(f.c.outcome[ROW_BAD], 1);
    CHECK_OK(import_text(&f, "bad2.jsonl", "{\"id\":\"a\",\"prompt\":\"x\",\"n\":3}\n"), f.e);
    CHECK_INT(f.c.outcome[ROW_DUPLICATE], 1);
    db_close(f.db);
}

static enum status fake_probe(const struct vision_processor *p, const struct vision_limits *l,
                              const void *bytes, size_t len, struct picture_info *out,
                              struct err *e)
{
    (void)p;
    (void)l;
    if (len && *(const char *)bytes == 'b') return err_set(e, E_IMAGE_UNSUPPORTED, "it is a b");
    *out = (struct picture_info){.width = 5, .height = 4, .orientation = 1, .rows = 7};
    return OK;
}

/* Pictures' headers are looked at: what they say is stored, a picture that cannot be used fails its
 * job at once. */
TEST(headers_are_checked)
{
    struct fixture f = open_fixture("headers.db");
    f.o.row.probe = fake_probe;
    test_write(test_path("h1"), "a", 1);
    test_write(test_path("h2"), "b", 1);
    CHECK_OK(import_text(&f, "headers.jsonl",
                         "{\"id\":\"1\",\"image\":\"h1\",\"prompt\":\"x\"}\n"
                         "{\"id\":\"2\",\"image\":\"h2\",\"prompt\":\"x\"}\n"),
             f.e);
    CHECK_INT(jobs_int(f.db, "SELECT tokens FROM job_images WHERE width=5 AND height=4"), 7);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM failures WHERE code='image_unsupported' AND "
                             "custom_id='2'"),
              1);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs WHERE state='pending'"), 1);
    db_close(f.db);
}

/* The same prompt under two ids is two jobs, drawn from two seeds. */
TEST(identity_is_the_id)
{
    struct fixture f = open_fixture("identity.db");
    CHECK_OK(import_text(&f, "same.jsonl",
                         "{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"b\",\"prompt\":\"x\"}\n"),
             f.e);
    CHECK_INT(f.c.outcome[ROW_ADDED], 2);
    CHECK_INT(jobs_int(f.db, "SELECT count(DISTINCT spec ->> 'seed') FROM jobs"), 2);
    CHECK(row_seed(0, "a") != row_seed(1, "a"));
    CHECK(row_seed(0, "a") >> 53 == 0);
    db_close(f.db);
}

/* A file that changed is refused by default and named. */
TEST(changed_input_is_refused)
{
    struct fixture f = open_fixture("refused.db");
    CHECK_OK(import_text(&f, "changed.jsonl", three), f.e);
    CHECK_ERR(import_text(&f, "changed.jsonl", "{\"id\":\"a\",\"prompt\":\"other\"}\n"), E_INPUT,
              f.e, "changed.jsonl: changed since it was imported");
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs"), 3);
    f.o.on_changed = ROW_KEEP;
    CHECK_OK(import_text(&f, "changed.jsonl", "{\"id\":\"a\",\"prompt\":\"other\"}\n"), f.e);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs WHERE spec LIKE '%other%'"), 0);
    db_close(f.db);
}

static void finish_all(struct db *db)
{
    struct err e;
    if (db_exec(db,
                "UPDATE jobs SET state='done', attempt=1 WHERE state='pending';"
                "INSERT INTO results(job_id, attempt, content, finish_reason, prompt_tokens, "
                "completion_tokens, prefill_s, decode_s, finished_at) SELECT id, 1, custom_id, "
                "'stop', 1, 1, 0, 0, 0 FROM jobs WHERE state='done'",
                &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
}

/* With rerun, jobs that are the same keep their answers wherever they moved; changed ones run
 * again, new ones join, gone ones are hidden and come back with their answer. */
TEST(rerun_takes_the_difference)
{
    struct fixture f = open_fixture("rerun.db");
    CHECK_OK(import_text(&f, "rerun.jsonl", three), f.e);
    finish_all(f.db);
    f.o.on_changed = ROW_RERUN;
    CHECK_OK(import_text(&f, "rerun.jsonl",
                         "{\"id\":\"new\",\"prompt\":\"n\"}\n{\"id\":\"c\",\"prompt\":\"z\"}\n"
                         "{\"id\":\"a\",\"prompt\":\"other\"}\n"),
             f.e);
    CHECK_INT(f.c.outcome[ROW_ADDED], 1);
    CHECK_INT(f.c.outcome[ROW_KNOWN], 1);
    CHECK_INT(f.c.outcome[ROW_REPLACED], 1);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM answers"), 1);
    CHECK_INT(jobs_int(f.db, "SELECT line FROM jobs WHERE custom_id='c' AND state='done'"), 2);
    CHECK_INT(jobs_int(f.db, "SELECT line FROM jobs WHERE custom_id='a' AND state='pending'"), 3);
    CHECK_INT(jobs_int(f.db, "SELECT sum(jobs) FROM job_counts"), 3);
    CHECK_OK(import_text(&f, "rerun.jsonl", three), f.e);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM answers WHERE custom_id IN ('b','c')"), 2);
    CHECK_INT(jobs_int(f.db, "SELECT sum(jobs) FROM job_counts"), 3);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs WHERE custom_id='new'"), 0);
    db_close(f.db);
}

static enum status import_two(struct fixture *f, const char *a, const char *in_a, const char *b,
                              const char *in_b)
{
    const char *paths[] = {test_path(a), test_path(b)};
    test_write(paths[0], in_a, strlen(in_a));
    test_write(paths[1], in_b, strlen(in_b));
    f->o.paths = paths;
    f->o.n_paths = 2;
    return import_files(f->db, &f->o, &f->c, &f->e);
}

#define JOB(id, prompt) "{\"id\":\"" id "\",\"prompt\":\"" prompt "\"}\n"
#define X               JOB("x", "x")
#define OTHER           JOB("x", "other")
#define Y               JOB("y", "y")
#define Z               JOB("z", "z")

/* A job that two files have goes on when one of them loses it, whichever is read first, with its
 * answer if it has one and the other file means the same by it. */
TEST(another_file_still_has_it)
{
    static const char *const files[2][2] = {{"one", "two"}, {"two", "one"}};
    for (int i = 0; i < 16; i++) {
        bool answered = i & 1, differs = i & 2, known_before = i & 8;
        const char *const *name = files[i >> 2 & 1], *in_b = differs ? OTHER Z : X Z;
        char db[16];
        snprintf(db, sizeof db, "two%d.db", i);
        struct fixture f = open_fixture(db);
        CHECK_OK(import_two(&f, "one", X Y, "two", known_before ? in_b : Z), f.e);
        if (answered) finish_all(f.db);
        f.o.on_changed = ROW_RERUN;
        const char *a = name == files[0] ? Y : in_b, *b = name == files[0] ? in_b : Y;
        CHECK_OK(import_two(&f, name[0], a, name[1], b), f.e);
        for (int again = 0; again < 2; again++) {
            CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs WHERE line>0"), 3);
            CHECK_INT(jobs_int(f.db, "SELECT j.line FROM jobs j JOIN inputs i ON i.id=j.input_id "
                                     "WHERE custom_id='x' AND path LIKE '%two' AND line>0 AND "
                                     "duplicate_of IS NULL"),
                      1);
            CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs WHERE custom_id='x' AND line>0 AND "
                                     "state='done'"),
                      answered && !differs);
            CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM inputs WHERE complete<>1"), 0);
            CHECK_OK(import_two(&f, name[0], a, name[1], b), f.e);
            CHECK_INT(f.c.outcome[ROW_ADDED] + f.c.outcome[ROW_REPLACED] + f.c.removed, 0);
        }
        db_close(f.db);
        if (test_has_failed()) FAIL("case %d", i);
    }
}

/* Attempts stay when their job goes; no later job is taken for it. */
TEST(ids_are_not_used_again)
{
    struct fixture f = open_fixture("ids.db");
    f.o.on_changed = ROW_RERUN;
    CHECK_OK(import_text(&f, "ids.jsonl", JOB("a", "p") JOB("b", "p") JOB("c", "p")), f.e);
    CHECK_OK(db_exec(f.db,
                     "INSERT INTO attempts(job_id, attempt, fence, code, message, tokens, "
                     "ended_at) SELECT id, 1, 1, 'timeout', '', 0, 0 FROM jobs",
                     &f.e),
             f.e);
    CHECK_OK(import_text(&f, "ids.jsonl", JOB("a", "p") JOB("b", "p")), f.e);
    CHECK_OK(import_text(&f, "ids.jsonl", JOB("a", "p") JOB("b", "p") JOB("d", "p")), f.e);
    CHECK_INT(jobs_int(f.db, "SELECT id FROM jobs WHERE custom_id='d'"), 4);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM attempts a JOIN jobs j ON j.id=a.job_id"), 2);
    db_close(f.db);
}

/* Other options that shape jobs are a change too. */
TEST(options_count)
{
    struct fixture f = open_fixture("options.db");
    CHECK_OK(import_text(&f, "options.jsonl", three), f.e);
    f.o.row.settings.has = JOB_HAS_MAX_TOKENS;
    f.o.row.settings.max_tokens = 7;
    CHECK_ERR(import_text(&f, "options.jsonl", three), E_INPUT, f.e, "the options that shape");
    f.o.on_changed = ROW_RERUN;
    CHECK_OK(import_text(&f, "options.jsonl", three), f.e);
    CHECK_INT(f.c.outcome[ROW_REPLACED], 3);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs WHERE max_tokens=7"), 3);
    f.o.on_changed = ROW_ERROR;
    f.o.max_line_bytes = INPUT_MAX_LINE_BYTES;
    CHECK_OK(import_text(&f, "options.jsonl", three), f.e);
    f.o.max_line_bytes = 22;
    CHECK_ERR(import_text(&f, "options.jsonl", three), E_INPUT, f.e, "the options that shape");
    db_close(f.db);
}

static bool stop_at(void *user, uint64_t items)
{
    return items < *(uint64_t *)user;
}

/* An import that was cut off goes on where it was. */
TEST(import_goes_on)
{
    struct fixture f = open_fixture("cut.db");
    static char text[200000];
    size_t n = 0;
    for (int i = 0; i < 2500; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"id\":\"j%d\",\"prompt\":\"x\"}\n", i);
    uint64_t at = 1700;
    f.o.go_on = stop_at;
    f.o.user = &at;
    CHECK_ERR(import_text(&f, "cut.jsonl", text), E_STOPPED, f.e, "cut.jsonl");
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs"), 1000);
    CHECK_INT(jobs_int(f.db, "SELECT complete FROM inputs"), 0);
    at = 10000;
    CHECK_OK(import_text(&f, "cut.jsonl", text), f.e);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs WHERE id=line"), 2500);
    CHECK_INT(jobs_int(f.db, "SELECT complete FROM inputs"), 1);
    db_close(f.db);
}

struct other {
    struct fixture f;
    const char *path;
    uint64_t at; /* the item at which it begins; 0: when the file is entered */
    bool begun;
};

static void import_other(struct other *o)
{
    if (o->begun) return;
    o->begun = true;
    o->f.o.paths = &o->path;
    o->f.o.n_paths = 1;
    CHECK_OK(import_files(o->f.db, &o->f.o, &o->f.c, &o->f.e), o->f.e);
}

static bool begin_at(void *user, uint64_t items)
{
    struct other *o = user;
    if (items == o->at) import_other(o);
    return true;
}

static void begin_first(void *user, const char *name)
{
    struct other *o = user;
    if (!o->at && !strcmp(name, "input:commit")) import_other(o);
}

/* Two processes import one file at the same time: each line is a job once. */
TEST(two_at_once)
{
    struct buf text = {0};
    for (int i = 1; i <= 2500; i++)
        CHECK(!buf_addf(&text, NULL, i % 700 ? "{\"id\":\"j%d\",\"prompt\":\"x\"}\n" : "{%d\n",
                        i % 600 ? i : 5));
    static const uint64_t at[] = {0, 1, 1000, 1001, 1500, 2500};
    for (size_t k = 0; k < sizeof at / sizeof at[0]; k++) {
        char name[20];
        snprintf(name, sizeof name, "both%zu.db", k);
        struct other o = {.at = at[k], .path = test_path("both.jsonl")};
        struct fixture f = {
            .db = jobs_open(name, &(struct db_opts){.point = begin_first, .point_user = &o})};
        mem_init(&mem, 0);
        f.o.row.mem = o.f.o.row.mem = &mem;
        o.f.db = jobs_open(name, NULL);
        f.o.go_on = begin_at;
        f.o.user = &o;
        CHECK_OK(import_text(&f, "both.jsonl", text.data), f.e);
        CHECK(o.begun);
        CHECK_INT(f.c.outcome[ROW_ADDED] + o.f.c.outcome[ROW_ADDED], 2500 - 3 - 4);
        CHECK_INT(f.c.outcome[ROW_DUPLICATE] + o.f.c.outcome[ROW_DUPLICATE], 4);
        CHECK_INT(f.c.outcome[ROW_BAD] + o.f.c.outcome[ROW_BAD], 3);
        CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs"), 2500);
        CHECK_INT(jobs_int(f.db, "SELECT complete*items+mine FROM inputs"), 5000);
        db_close(o.f.db);
        db_close(f.db);
    }
    buf_free(&text);
}

/* Shards share the jobs out: each is in exactly one, wherever its line stands; lines without an id
 * are in the first. */
TEST(shards_share_out)
{
    struct fixture f[3];
    int64_t sum = 0;
    for (unsigned k = 0; k < 3; k++) {
        char name[20];
        snprintf(name, sizeof name, "shard%u.db", k);
        f[k] = open_fixture(name);
        f[k].o.shards = 3;
        f[k].o.shard = k + 1;
        static char text[4096];
        size_t n = 0;
        for (int i = 0; i < 60; i++)
            n += (size_t)snprintf(text + n, sizeof text - n, "{\"id\":\"j%d\",\"prompt\":\"x\"}\n",
                                  k ? i : 59 - i);
        snprintf(text + n, sizeof text - n, "bad\n");
        CHECK_OK(import_text(&f[k], "shards.jsonl", text), f[k].e);
        sum += jobs_int(f[k].db, "SELECT count(*) FROM jobs WHERE custom_id NOT NULL");
        CHECK(jobs_int(f[k].db, "SELECT count(*) FROM jobs") > 5);
        CHECK_INT(jobs_int(f[k].db, "SELECT count(*) FROM jobs WHERE custom_id IS NULL"), k == 0);
        CHECK_INT(f[k].c.other_shard,
                  61 - (uint64_t)jobs_int(f[k].db, "SELECT count(*) FROM jobs"));
    }
    CHECK_INT(sum, 60);
    for (unsigned k = 0; k < 3; k++) db_close(f[k].db);
}

/* A folder's pictures are jobs by name; one that is added later joins, the others are known. */
TEST(folder_of_pictures)
{
    struct fixture f = open_fixture("folder.db");
    mkdir(test_path("pics"), 0777);
    test_write(test_path("pics/b.png"), "b", 1);
    test_write(test_path("pics/a.png"), "a", 1);
    const char *path = test_path("pics");
    f.o.paths = &path;
    f.o.n_paths = 1;
    f.o.job.prompt = "What?";
    CHECK_OK(import_files(f.db, &f.o, &f.c, &f.e), f.e);
    CHECK_INT(f.c.outcome[ROW_ADDED], 2);
    CHECK_INT(jobs_int(f.db, "SELECT line FROM jobs WHERE custom_id LIKE '%a.png'"), 1);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM job_images WHERE length(sha256)=64"), 2);
    test_write(test_path("pics/aa.png"), "c", 1);
    CHECK_OK(import_files(f.db, &f.o, &f.c, &f.e), f.e);
    CHECK_INT(f.c.outcome[ROW_ADDED], 1);
    CHECK_INT(f.c.outcome[ROW_KNOWN], 2);
    f.o.job.prompt = "Why?";
    CHECK_ERR(import_files(f.db, &f.o, &f.c, &f.e), E_INPUT, f.e, "another prompt");
    f.o.on_changed = ROW_RERUN;
    CHECK_OK(import_files(f.db, &f.o, &f.c, &f.e), f.e);
    CHECK_INT(f.c.outcome[ROW_REPLACED], 3);
    db_close(f.db);
}

/* Pictures whose names cannot be an id fail once each, however often the folder is given. */
TEST(illegible_names)
{
    struct fixture f = open_fixture("illegible.db");
    mkdir(test_path("names"), 0777);
    test_write(test_path("names/a.png"), "a", 1);
    test_write(test_path("names/\xff.png"), "b", 1);
    test_write(test_path("names/\xfe.png"), "c", 1);
    const char *path = test_path("names");
    f.o.paths = &path;
    f.o.n_paths = 1;
    f.o.job.prompt = "What?";
    for (int i = 0; i < 3; i++) {
        CHECK_OK(import_files(f.db, &f.o, &f.c, &f.e), f.e);
        CHECK_INT(f.c.outcome[ROW_ADDED], i ? 0 : 1);
        CHECK_INT(f.c.outcome[ROW_BAD], i ? 0 : 2);
        CHECK_INT(f.c.outcome[ROW_KNOWN], i ? 3 : 0);
        CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM failures"), 2);
    }
    CHECK_INT(
        jobs_int(f.db, "SELECT count(*) FROM failures WHERE custom_id LIKE '%/names/\\xff.png'"),
        1);
    db_close(f.db);
}

/* A million lines would take the same memory as ten thousand: rows do not stay behind. */
TEST(memory_stays_flat)
{
    struct fixture f = open_fixture("flat.db");
    CHECK_OK(db_exec(f.db, "PRAGMA synchronous=OFF", &f.e), f.e);
    const char *path = test_path("flat.jsonl");
    FILE *out = fopen(path, "w");
    CHECK(out);
    for (int i = 0; i < 20000; i++) fprintf(out, "{\"id\":\"j%d\",\"prompt\":\"%0200d\"}\n", i, i);
    fclose(out);
    f.o.paths = &path;
    f.o.n_paths = 1;
    sqlite3_int64 before = sqlite3_memory_used();
    CHECK_OK(import_files(f.db, &f.o, &f.c, &f.e), f.e);
    CHECK_INT(jobs_int(f.db, "SELECT count(*) FROM jobs"), 20000);
    CHECK(sqlite3_memory_used() - before < 4 << 20);
    db_close(f.db);
}

TEST_MAIN
