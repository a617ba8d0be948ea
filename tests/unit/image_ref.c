/* References to images: their syntax, where they lead, and the bytes there. */
#include "jobs/image_ref.h"
#include "jobs/base64.h"
#include "src/os.h"
#include "tests/lib/test.h"

#include <sys/stat.h>
#include <unistd.h>

/* Only what names a file passes; a colon or a percent sign in a path is not a URL. */
TEST(syntax)
{
    static const struct {
        const char *ref, *fault;
    } rows[] = {
        {"a.png", NULL},
        {"a:b.png", NULL},
        {"C:\\x.png", NULL},
        {"100%.png", NULL},
        {"file:///a%20b", NULL},
        {"FILE://localhost/a", NULL},
        {"file:/a", NULL},
        {"", "empty"},
        {"http://h/x.png", "scheme http"},
        {"s3://b/x.png", "scheme s3"},
        {"file://host/x", "file:///"},
        {"file:x", "file:///"},
        {"file:///a%2", "two hex digits"},
        {"file:///a%00b", "not 00"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        enum status rc = image_ref_check(rows[i].ref, &e);
        CHECK_INT(rc, rows[i].fault ? E_INVALID_REQUEST : OK);
        if (rows[i].fault) CHECK_HAS(e.text, rows[i].fault);
    }
}

static char root[300], base[300], cwd[1000];

static void make_folders(void)
{
    static const char *const files[] = {"top/r.png", "base/b.png",     "base/both.png",
                                        "both.png",  "w.png",          "base/sub/s.png",
                                        "b c.png",   "base/odd\\x.png"};
    snprintf(root, sizeof root, "%s/top", test_dir());
    snprintf(base, sizeof base, "%s/base", test_dir());
    mkdir(root, 0700);
    mkdir(base, 0700);
    mkdir(test_path("base/sub"), 0700);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        test_write(test_path(files[i]), files[i], strlen(files[i]));
    if (!getcwd(cwd, sizeof cwd) || chdir(test_dir()) != 0) abort();
}

/* The path below the test's folder that a reference leads to, or "code: message". */
static const char *lead(const struct image_ref_opts *o, const char *ref)
{
    static char out[1200];
    struct err e = {0};
    struct image_ref_source s = {.path = "base/jobs.jsonl"};
    char *path;
    enum status rc = image_ref_resolve(o, &s, ref, &path, &e);
    size_t n = strlen(test_dir());
    if (rc)
        snprintf(out, sizeof out, "%s: %s", status_name(rc), e.text);
    else
        snprintf(out, sizeof out, "%s", strncmp(path, test_dir(), n) ? path : path + n);
    free(path);
    return out;
}

/* A relative path is looked for beside the JSONL, then in the working folder; when it could be
 * both, nobody guesses. */
TEST(places)
{
    make_folders();
    CHECK_STR(lead(NULL, "b.png"), "/base/b.png");
    CHECK_STR(lead(NULL, "./w.png"), "/w.png");
    CHECK_STR(lead(NULL, "sub/s.png"), "/base/sub/s.png");
    CHECK_HAS(lead(NULL, "both.png"),
              "invalid_request: both.png could be base/both.png or both.png");
    CHECK_STR(lead(NULL, "none.png"), "image_missing: no such file: base/none.png, none.png");
    CHECK_HAS(lead(NULL, "sub"), "image_unreadable: base/sub is not a regular file");
    CHECK_STR(lead(NULL, test_path("w.png")), "/w.png");
    CHECK_HAS(lead(NULL, "w.png/x"), "image_missing");
    CHECK(unlink("both.png") == 0 && link("base/both.png", "both.png") == 0);
    CHECK_STR(lead(NULL, "both.png"), "/base/both.png");
    char url[600];
    snprintf(url, sizeof url, "file://%s/b%%20c.png", test_dir());
    CHECK_STR(lead(NULL, url), "/b c.png");
    CHECK(chdir(cwd) == 0);
}

/* --image-root is then the only place; --map-path moves whole folders, also those of Windows. */
TEST(root_and_maps)
{
    make_folders();
    struct image_ref_map maps[] = {
        {"C:\\data", "base"}, {"/old/", test_dir()}, {"x", "base/b.png"}};
    struct image_ref_opts o = {.root = "top"};
    CHECK_STR(lead(&o, "r.png"), "/top/r.png");
    CHECK_STR(lead(&o, "b.png"), "image_missing: no such file: top/b.png");
    CHECK_STR(lead(&o, test_path("w.png")), "/w.png");
    o = (struct image_ref_opts){.maps = maps, .n_maps = 3};
    CHECK_STR(lead(&o, "C:\\data\\sub\\s.png"), "/base/sub/s.png");
    CHECK_STR(lead(&o, "C:/data/b.png"), "/base/b.png");
    CHECK_STR(lead(&o, "file:///C:/data/b.png"), "/base/b.png");
    CHECK_HAS(lead(&o, "C:\\database\\b.png"), "image_missing: C:\\database\\b.png is a path of "
                                               "another machine; give --map-path");
    CHECK_STR(lead(&o, "/old/w.png"), "/w.png");
    CHECK_HAS(lead(&o, "/older/w.png"), "image_missing: no such file: /older/w.png");
    CHECK_STR(lead(&o, "x"), "/base/b.png");
    CHECK_STR(lead(&o, "sub\\s.png"), "/base/sub/s.png");
    CHECK_STR(lead(&o, "odd\\x.png"), "/base/odd\\x.png");
    CHECK_HAS(lead(&o, "\\\\host\\share\\x.png"), "another machine");
    CHECK(chdir(cwd) == 0);
}

static struct mem mem;

static enum status load(const struct image_ref_source *s, const struct job_image *image,
                        const char *path, struct image_ref_bytes *out, struct err *e)
{
    struct image_ref_opts o = {.max_bytes = 100};
    *out = (struct image_ref_bytes){.mem = &mem};
    return image_ref_load(out, &o, s, image, path, e);
}

/* Files arrive with their hash; empty, large, missing ones and pipes are each their job's error. */
TEST(load_files)
{
    struct err e;
    struct image_ref_bytes b;
    static const struct job_image image = {.ref = "x", .mime = ""};
    char big[101] = {1};
    mem_init(&mem, 0);
    test_write(test_path("one"), "abc", 3);
    test_write(test_path("empty"), "", 0);
    test_write(test_path("big"), big, sizeof big);
    CHECK(mkfifo(test_path("pipe"), 0600) == 0);
    CHECK_OK(load(NULL, &image, test_path("one"), &b, &e), e);
    CHECK_INT(b.len, 3);
    CHECK(!memcmp(b.at, "abc", 3));
    CHECK_STR(b.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    mem_free(&mem, b.at);
    CHECK_ERR(load(NULL, &image, test_path("empty"), &b, &e), E_IMAGE_UNREADABLE, e, "empty");
    CHECK_ERR(load(NULL, &image, test_path("big"), &b, &e), E_IMAGE_TOO_LARGE, e, "101 bytes");
    CHECK_ERR(load(NULL, &image, test_path("none"), &b, &e), E_IMAGE_MISSING, e, "none");
    CHECK_ERR(load(NULL, &image, test_path("pipe"), &b, &e), E_IMAGE_UNREADABLE, e, "regular");
    os_fault(OS_FAULT_READ, 0, true);
    enum status rc = load(NULL, &image, test_path("one"), &b, &e);
    os_fault(OS_FAULT_READ, -1, false);
    CHECK_INT(rc, E_IMAGE_UNREADABLE);
    CHECK_INT(e.code, E_IMAGE_UNREADABLE);
    mem_close(&mem);
}

/* Inline images come out of their line again, wherever it stands; a file that changed is told. */
TEST(load_inline)
{
    static const char line[] = "{\"id\":\"a\",\"prompt\":\"q\",\"image\":\"data:;base64,"
                               "YWJj\\u002B\\/8=\"}\n";
    struct err e;
    struct job j;
    struct image_ref_bytes b;
    mem_init(&mem, 0);
    CHECK_OK(job_parse(&j, line, strlen(line), NULL, &e), e);
    struct buf file = {0};
    buf_addf(&file, &e, "first line\n%s%s", line, line);
    const char *path = test_path("inline.jsonl");
    test_write(path, file.data, file.len);
    struct image_ref_source s = {path, 11};
    CHECK_OK(load(&s, &j.images[0], NULL, &b, &e), e);
    CHECK_INT(b.len, 5);
    CHECK(!memcmp(b.at, "abc\xfb\xff", 5));
    CHECK_STR(b.sha256, j.images[0].sha256);
    mem_free(&mem, b.at);
    s.line_offset = 12;
    CHECK_ERR(load(&s, &j.images[0], NULL, &b, &e), E_IMAGE_CHANGED, e, "inline.jsonl");
    s.line_offset = 1000;
    CHECK_ERR(load(&s, &j.images[0], NULL, &b, &e), E_IMAGE_CHANGED, e, "inline.jsonl");
    s.line_offset = UINT64_MAX;
    CHECK_ERR(load(&s, &j.images[0], NULL, &b, &e), E_IMAGE_CHANGED, e, "inline.jsonl");
    s.line_offset = 11;
    memcpy(strstr(file.data, "YWJj"), "YWJk", 4);
    test_write(path, file.data, file.len);
    CHECK_ERR(load(&s, &j.images[0], NULL, &b, &e), E_IMAGE_CHANGED, e, "5 bytes");
    s.path = test_path("gone.jsonl");
    CHECK_ERR(load(&s, &j.images[0], NULL, &b, &e), E_IMAGE_UNREADABLE, e, "gone");
    j.images[0].bytes = 101;
    CHECK_ERR(load(&s, &j.images[0], NULL, &b, &e), E_IMAGE_TOO_LARGE, e, "101 bytes");
    buf_free(&file);
    job_free(&j);
    mem_close(&mem);
}

/* Any cut of the text into pieces gives the same bytes, and each fault is found. */
TEST(base64_pieces)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"", ""},
        {"YQ==", "a"},
        {"YWI=", "ab"},
        {"YWJj", "abc"},
        {"YWJjZA==", "abcd"},
        {"\\u0059W\\/\\u002f\\u002b\\u002B\\u002b\\/", "ao\xff\xfb\xef\xbf"},
        {"YQ=", NULL},
        {"Y===", NULL},
        {"=", NULL},
        {"YQ==YQ==", NULL},
        {"YWI==", NULL},
        {"YWI=Y", NULL},
        {"YW-_", NULL},
        {"YQ\\n=", NULL},
        {"YWJj\\u0", NULL},
        {"YWJj\\u000a", NULL},
        {"YWJjZ", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t cut = 1; cut <= 7; cut++) {
            struct base64 b = {0};
            unsigned char out[64];
            size_t len = strlen(rows[i].text), n, have = 0;
            enum status rc = OK;
            for (size_t at = 0; at < len && !rc; at += cut) {
                size_t step = len - at < cut ? len - at : cut;
                rc = base64_push(&b, rows[i].text + at, step, out + have, &n, NULL);
                have += n;
            }
            if (!rc) rc = base64_end(&b, NULL);
            if ((rc != OK) != !rows[i].want) FAIL("%s: %s", rows[i].text, status_name(rc));
            out[have] = 0;
            if (rows[i].want) CHECK_STR((char *)out, rows[i].want);
        }
    }
}

TEST_MAIN
