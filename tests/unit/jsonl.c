/* Lines of files, and all inputs as one stream. */
#include "jobs/jsonl.h"
#include "jobs/input.h"
#include "tests/lib/test.h"

#include <sha256.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *write_text(const char *name, const char *text)
{
    const char *path = test_path(name);
    test_write(path, text, strlen(text));
    return path;
}

/* "line@offset:text|..." of a file; "(n)" for the text of a line over the limit. */
static char *lines_of(const char *path, uint64_t max)
{
    struct jsonl *r;
    struct err e;
    struct buf out = {0};
    struct jsonl_line l;
    bool more;
    buf_add(&out, "", 0, &e);
    if (jsonl_open(&r, path, max, true, &e)) return NULL;
    while (jsonl_next(r, &l, &more, &e) == OK && more) {
        buf_addf(&out, &e, "%d@%d:", (int)l.line, (int)l.offset);
        if (l.text)
            buf_add(&out, l.text, l.len, &e);
        else
            buf_addf(&out, &e, "(%d)", (int)l.len);
        buf_addf(&out, &e, "|");
    }
    size_t len;
    char *all = test_read(path, &len), sha[JOB_SHA_CHARS];
    SHA256Data((const uint8_t *)all, len, sha);
    if (strcmp(sha, jsonl_sha256(r))) test_failed(__FILE__, __LINE__, "the hash of %s", path);
    if (jsonl_size(r) != len) test_failed(__FILE__, __LINE__, "the size of %s", path);
    free(all);
    jsonl_close(r);
    return out.data;
}

/* Every kind of line end, a byte order mark and blank lines give the same lines at their places. */
TEST(line_ends)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"", ""},
        {"\n\r\n \t\n", ""},
        {"\xef\xbb\xbf", ""},
        {"a", "1@0:a|"},
        {"a\n", "1@0:a|"},
        {"a\r\nb\r", "1@0:a|2@3:b|"},
        {"\xef\xbb\xbf"
         "a\n\nb",
         "1@3:a|3@6:b|"},
        {"a\n\xef\xbb\xbf"
         "b\n",
         "1@0:a|2@2:\xef\xbb\xbf"
         "b|"},
        {"aaaa\nbbbbb\nc\n", "1@0:aaaa|2@5:(5)|3@11:c|"},
        {"aaaa\r\nbbbbb\r\n", "1@0:aaaa|2@6:(5)|"},
        {"bbbbbb", "1@0:(6)|"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *got = lines_of(write_text("x.jsonl", rows[i].text), 4);
        CHECK_STR(got, rows[i].want);
        free(got);
    }
}

/* Lines longer than any block arrive whole; over the limit they are skipped, exactly to their end.
 */
TEST(long_lines)
{
    struct buf b = {0};
    struct err e;
    static const size_t lens[] = {300000, 5, 262144, 262143,  1000000, 1000001,
                                  999999, 3, 100,    3000000, 4};
    enum { N_LENS = sizeof lens / sizeof *lens };
    const char *path = test_path("long.jsonl");
    for (size_t i = 0; i < N_LENS; i++) {
        for (size_t k = 0; k < lens[i]; k++) buf_add(&b, "abcdefg" + (k + i) % 7, 1, &e);
        buf_addf(&b, &e, "%s", i % 2 ? "\n" : "\r\n");
    }
    test_write(path, b.data, b.len);
    struct jsonl *r;
    struct jsonl_line l;
    bool more;
    CHECK_OK(jsonl_open(&r, path, 1000000, false, &e), e);
    for (size_t i = 0; i < N_LENS; i++) {
        CHECK_OK(jsonl_next(r, &l, &more, &e), e);
        CHECK(more);
        CHECK_INT(l.line, i + 1);
        CHECK_INT(l.len, lens[i]);
        CHECK((l.text != NULL) == (lens[i] <= 1000000));
        CHECK(!l.text || !memcmp(l.text, b.data + l.offset, l.len));
        CHECK(b.data[l.offset] == "abcdefg"[i % 7]);
    }
    CHECK_OK(jsonl_next(r, &l, &more, &e), e);
    CHECK(!more);
    CHECK_STR(jsonl_sha256(r), "");
    jsonl_close(r);
    buf_free(&b);
}

/* A file that shrinks while it is read is an error, not an end. */
TEST(shrinking_file)
{
    struct jsonl *r;
    struct jsonl_line l;
    struct err e;
    bool more;
    const char *path = write_text("shrink.jsonl", "a\nb\n");
    CHECK_OK(jsonl_open(&r, path, 100, false, &e), e);
    CHECK(truncate(path, 2) == 0);
    CHECK_ERR(jsonl_next(r, &l, &more, &e), E_IO, e, "ends at byte 2");
    jsonl_close(r);
}

/* "path:line id-or-error, ..." of some inputs; then the counts of each source. */
static char *stream(const char *const *paths, size_t n, const char *prompt)
{
    struct input_opts o = {
        .paths = paths, .n_paths = n, .max_line_bytes = 200, .job.prompt = prompt, .hash = true};
    struct input *in;
    const struct input_item *item;
    struct err e;
    struct buf out = {0};
    size_t skip = strlen(test_dir()) + 1;
    if (input_open(&in, &o, &e)) {
        buf_addf(&out, &e, "%s", e.text);
        return out.data;
    }
    enum status rc;
    while ((rc = input_next(in, &item, &e)) == OK && item) {
        const char *id = item->job->custom_id ? item->job->custom_id : "-";
        buf_addf(&out, NULL, "%s:%d ", item->path + skip, (int)item->line);
        if (!strncmp(id, test_dir(), skip - 1)) id += skip;
        buf_addf(&out, NULL, item->status ? "%s %s, " : "%s%s, ", id,
                 item->status ? status_name(item->status) : "");
    }
    if (rc) buf_addf(&out, NULL, "FAILED %s", e.text);
    for (size_t i = 0; i < input_sources(in); i++) {
        const struct input_source *s = input_source(in, i);
        buf_addf(&out, NULL, "[%d %d %d%s]", (int)s->items, (int)s->bad, (int)s->skipped,
                 s->done ? "" : " not done");
        char sha[JOB_SHA_CHARS] = "";
        if (s->kind == INPUT_LINES) input_sha256(s->path, sha, &e);
        if (strcmp(sha, s->sha256)) test_failed(__FILE__, __LINE__, "hash of %s", s->path);
    }
    input_close(in);
    return out.data;
}

/* Files, pictures and folders come in the order given, a folder's in the order of its names; one
 * bad line is an item like the others. */
TEST(input_stream)
{
    char f[3][300];
    snprintf(f[0], sizeof f[0], "%s/s", test_dir());
    snprintf(f[1], sizeof f[1], "%s/s/in", test_dir());
    snprintf(f[2], sizeof f[2], "%s/s/z", test_dir());
    for (int i = 0; i < 3; i++) CHECK(mkdir(f[i], 0700) == 0);
    write_text("s/b.PNG", "x");
    write_text("s/a.jpeg", "x");
    write_text("s/a.txt", "x");
    write_text("s/.hidden.png", "x");
    write_text("s/in/c.heic", "x");
    CHECK(symlink("..", test_path("s/z/loop")) == 0);
    CHECK(symlink("../b.PNG", test_path("s/z/link.png")) == 0);
    char long_line[400];
    memset(long_line, 'x', sizeof long_line - 1);
    long_line[sizeof long_line - 1] = 0;
    struct buf b = {0};
    buf_addf(&b, NULL,
             "{\"id\":1,\"prompt\":\"q\"}\n\n{\"id\":2}\nnonsense\n%s\n{\"id\":3,"
             "\"prompt\":\"q\"}",
             long_line);
    const char *jobs = write_text("jobs.txt", b.data);
    buf_free(&b);
    const char *paths[] = {jobs, test_path("s/b.PNG"), test_path("s")};
    char *got = stream(paths, 3, "p");
    CHECK_STR(got, "jobs.txt:1 1, jobs.txt:3 2, jobs.txt:4 - invalid_json, jobs.txt:5 - "
                   "invalid_json, jobs.txt:6 3, s/b.PNG:0 s/b.PNG, s/a.jpeg:0 s/a.jpeg, "
                   "s/b.PNG:0 s/b.PNG, s/in/c.heic:0 s/in/c.heic, s/z/link.png:0 s/z/link.png, "
                   "[5 2 0][1 0 0][4 0 2]");
    free(got);
    got = stream(paths, 1, NULL);
    CHECK_HAS(got, "jobs.txt:3 2 invalid_request");
    free(got);
    got = stream(paths + 2, 1, NULL);
    CHECK_HAS(got, "--prompt");
    free(got);
    const char *none[] = {test_path("nothing.jsonl")};
    got = stream(none, 1, NULL);
    CHECK_HAS(got, "No such file");
    free(got);
}

/* Paths given with "./" and doubled slashes make the same ids as without. */
TEST(ids_of_files)
{
    char cwd[1000];
    CHECK(getcwd(cwd, sizeof cwd) != NULL && chdir(test_dir()) == 0);
    CHECK(mkdir("d", 0700) == 0);
    write_text("d/x.png", "x");
    static const char *const paths[] = {".//d/x.png", "d/", "./d", "."};
    struct input_opts o = {.paths = paths, .n_paths = 4, .job.prompt = "p"};
    struct input *in;
    const struct input_item *item;
    struct err e;
    CHECK_OK(input_open(&in, &o, &e), e);
    int seen = 0;
    while (input_next(in, &item, &e) == OK && item && item->source < 3) {
        CHECK_STR(item->job->custom_id, "d/x.png");
        seen++;
    }
    CHECK_INT(seen, 3);
    input_close(in);
    CHECK(chdir(cwd) == 0);
}

TEST_MAIN
