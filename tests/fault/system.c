/* The real program while the system fails it: the n-th write, sync, read, truncation, open, rename,
 * removal, lock or allocation, once or from then on, or kills it there, in each kind of command on
 * a queue. It ends in good order, with the exit code of the storage or of memory, or as if nothing
 * had been; the queue is whole; and the next run ends with the answers of an undisturbed one, and
 * nothing unfinished is left.
 *
 * FULL=1 takes every n, allocations in some hundred strides; else a few of each. STEPS=n: so many.
 */
#include "src/os_temp.h"
#include "tests/lib/test.h"
#include "tests/lib/victim.h"
#include "tests/lib/watch.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sqlite3.h>
#include <unistd.h>

static const char lines[] =
    "{\"id\":\"a\",\"image\":\"circles.png\",\"prompt\":\"Caption this image.\",\"max_tokens\":5}\n"
    "{\"id\":\"b\",\"image\":\"circles.png\",\"prompt\":\"Describe this "
    "image.\",\"max_tokens\":9}\n"
    "{\"id\":\"c\",\"prompt\":\"Reverse the word BUS.\",\"max_tokens\":6,\"temperature\":1}\n"
    "no JSON\n"
    "{\"id\":\"d\",\"prompt\":\"What is 20 - 4?\",\"max_tokens\":30,\"stop\":[\"zz\"]}\n";

#define MODEL   "-m", "examples/demo-model", "--threads", "1", "--ram", "500M"
#define QUIETLY "--image-root", "examples/images", "--retries", "0", "--progress", "none"

enum { FIRST, RESUMED, OLD, ADD, WORK, TABLE, SIDECARS, MERGE, COMMANDS };

/* What is done under faults, and from which queue: none, before the end, of an older version, or
 * finished. */
static const struct command {
    const char *name, *queue;
    int right; /* exit code */
    const char *args[24];
} commands[COMMANDS] = {
    [FIRST] = {"run", NULL, 7, {"run", "JOBS", "-o", "OUT", MODEL, QUIETLY, "--max-jobs", "2"}},
    [RESUMED] = {"run on", "begun", 1, {"run", "JOBS", "-o", "OUT", MODEL, QUIETLY}},
    [OLD] = {"run on an old queue", "old", 1, {"run", "JOBS", "-o", "OUT", MODEL, QUIETLY}},
    [ADD] = {"add", NULL, 0, {"add", "JOBS", "--db", "DB", "--image-root", "examples/images"}},
    [WORK] = {"work", "begun", 1, {"work", "--db", "DB", MODEL, QUIETLY}},
    [TABLE] = {"export csv",
               "done",
               0,
               {"export", "--db", "DB", "--format", "csv", "-o", "TABLE", "--errors-file",
                "ERRORS"}},
    [SIDECARS] = {"export txt",
                  "own",
                  0,
                  {"export", "--db", "DB", "--format", "txt", "--on-existing", "overwrite"}},
    [MERGE] = {"merge", "done", 1, {"merge", "DB", "-o", "TABLE"}},
};

static char program[600], faulty[600];
static const char *files[][2] = {{"JOBS", "jobs.jsonl"},
                                 {"OUT", "out.jsonl"},
                                 {"DB", "out.jsonl.db"},
                                 {"TABLE", "table"},
                                 {"ERRORS", "errors"}};
static char *answers; /* of an undisturbed run */

static void fill(struct victim *v, const char *const *args)
{
    for (int i = 0; args[i]; i++) {
        v->args[i] = args[i];
        for (int k = 0; k < 5; k++)
            if (!strcmp(args[i], files[k][0])) v->args[i] = test_path(files[k][1]);
    }
}

static struct victim plain(const char *const *args)
{
    struct victim v = {.program = program, .log = test_path("log")};
    fill(&v, args);
    return v;
}

static void said(const char *log)
{
    char *text = victim_output(log);
    if (text) printf("%s", text);
    free(text);
}

/* A sanitizer ends with an exit code that a run may have too. */
static bool damaged(const char *log)
{
    char *text = victim_output(log);
    bool bad = text && (strstr(text, "Sanitizer") || strstr(text, "runtime error"));
    free(text);
    return bad;
}

/* Attempts are counted by how often pictures could not be read. */
static char *output(void)
{
    char *text = victim_output(test_path("out.jsonl"));
    static const char *const names[] = {"\"attempt\":", "\"batch_req_", "\"req_", "\"chatcmpl-"};
    for (int i = 0; text && i < 4; i++)
        for (char *at = text; (at = strstr(at, names[i])); at++)
            for (char *c = at + strlen(names[i]); *c && *c != '"' && *c != ','; c++) *c = '0';
    return text;
}

static void copy(const char *from, const char *to)
{
    size_t n;
    char *data = test_read(test_path(from), &n);
    test_write(test_path(to), data, n);
    free(data);
}

static void forget(void)
{
    static const char *const names[] = {"out.jsonl", "out.jsonl.db", "out.jsonl.db-journal",
                                        "table",     "errors",       "circles.txt"};
    for (int i = 0; i < 6; i++) unlink(test_path(names[i]));
    const char *spool = test_path("out.jsonl.db.images");
    DIR *d = opendir(spool);
    for (struct dirent *f; d && (f = readdir(d));) unlinkat(dirfd(d), f->d_name, 0);
    if (d) closedir(d);
    rmdir(spool);
}

static void sql(const char *name, const char *text)
{
    sqlite3 *db;
    if (sqlite3_open(test_path(name), &db) || sqlite3_exec(db, text, NULL, NULL, NULL))
        test_failed(__FILE__, __LINE__, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static bool did(const char *const *args, int right)
{
    struct victim v = plain(args);
    int code = victim_run(&v);
    if (code == right) return true;
    said(v.log);
    test_failed(__FILE__, __LINE__, "%s: exit %d, not %d", args[0], code, right);
    return false;
}

/* The queues that commands begin with, and the answers; once. */
static bool ready(void)
{
    static bool made;
    if (made) return true;
    char *own = readlink("/proc/self/exe", program, sizeof program - 20) > 0
                    ? strstr(program, "/tests/")
                    : NULL;
    if (!own) return false;
    *own = 0;
    snprintf(faulty, sizeof faulty, "%s/faulty", program);
    strcat(program, "/nightshift");
    test_write(test_path("jobs.jsonl"), lines, strlen(lines));
    if (!did(commands[FIRST].args, commands[FIRST].right)) return false;
    copy("out.jsonl.db", "begun");
    copy("out.jsonl.db", "old");
    sql("old", "DROP TABLE expert_use; ALTER TABLE job_images DROP COLUMN mtime_ns; "
               "ALTER TABLE jobs DROP COLUMN tried; PRAGMA user_version=1");
    if (!did(commands[RESUMED].args, 1)) return false;
    copy("out.jsonl.db", "done");
    copy("out.jsonl.db", "own");
    char text[900];
    test_write(test_path("circles.png"), "", 0);
    snprintf(text, sizeof text,
             "UPDATE job_images SET path='%s'; DELETE FROM job_images WHERE job_id<>1",
             test_path("circles.png"));
    sql("own", text);
    answers = output();
    return made = true;
}

/* ---- one step ---- */

struct sweep {
    const char *ops; /* words for FAULTY */
    int code;        /* errno; 0: the shim's own */
    bool memory;     /* exit 4, not 5 */
    bool kill;
};

static bool is_right(const struct sweep *s, const struct command *c, int code, const char *failed)
{
    if (code == c->right || (s->kill && code == VICTIM_KILLED)) return true;
    /* What could not be read of a picture is that job's error, and it is not tried again here. */
    if ((code == 1 || code == 7) && c->right) return true;
    /* A model that cannot be read cannot be used. */
    return code == (s->memory ? 4 : 5) || (code == 4 && failed && strstr(failed, "demo-model"));
}

static int disturbed(const struct command *c, const char *words, const char *log)
{
    char env[400];
    struct victim v = {.program = faulty, .log = test_path("log"), .env = {env}};
    fill(&v, c->args);
    snprintf(env, sizeof env, "FAULTY=%s log=%s", words, log);
    unlink(log);
    forget();
    if (c->queue) copy(c->queue, "out.jsonl.db");
    return victim_run(&v);
}

static bool none_left(void)
{
    bool none = true;
    DIR *d = opendir(test_dir());
    for (struct dirent *f; d && (f = readdir(d));) {
        if (!os_temp_base(f->d_name)) continue;
        printf("%s is left over\n", f->d_name);
        none = unlinkat(dirfd(d), f->d_name, 0) != 0;
    }
    if (d) closedir(d);
    return none;
}

static bool goes_on(struct watch *w)
{
    static const char *const again[] = {"run",   "JOBS",           "-o", "OUT", MODEL,
                                        QUIETLY, "--retry-failed", NULL};
    if (!did(commands[RESUMED].args, 1) || !watch_look(w, test_path("out.jsonl.db"))) return false;
    char *got = output();
    bool same = got && !strcmp(got, answers);
    if (!same && did(again, 1)) {
        free(got);
        got = output();
        same = got && !strcmp(got, answers);
    }
    if (!same) printf("%s\nis not\n%s", got ? got : "(nothing)", answers);
    free(got);
    return none_left() && same;
}

/* False when there were not so many calls. */
static bool step(const struct sweep *s, const struct command *c, long n, bool on)
{
    char words[200], code[24] = "";
    const char *log = test_path("faults");
    static struct watch w;
    if (s->code) snprintf(code, sizeof code, " errno=%d", s->code);
    snprintf(words, sizeof words, "%s n=%ld%s%s", s->ops, n, on ? " on" : "", code);
    int rc = disturbed(c, words, log);
    char *failed = victim_output(log); /* a line for each of the first calls that failed */
    if (failed && !*failed && rc == c->right) {
        free(failed);
        return false;
    }
    bool good = is_right(s, c, rc, failed) && !damaged(test_path("log"));
    good = good && watch_look(&w, test_path("out.jsonl.db"));
    if (!good) said(test_path("log"));
    if (good && c->queue && !strcmp(c->queue, "own")) copy("done", "out.jsonl.db");
    good = good && goes_on(&w);
    watch_free(&w);
    if (!good && failed) printf("%s", failed);
    free(failed);
    if (good) return true;
    test_failed(__FILE__, __LINE__, "%s under \"%s\": exit %d", c->name, words, rc);
    return false;
}

static long count(const struct sweep *s, const struct command *c)
{
    char words[200];
    const char *log = test_path("faults");
    snprintf(words, sizeof words, "%s n=0 count", s->ops);
    if (disturbed(c, words, log) != c->right) {
        said(test_path("log"));
        test_failed(__FILE__, __LINE__, "%s alone", c->name);
    }
    char *text = victim_output(log);
    long n = text ? atol(text) : 0;
    free(text);
    return n;
}

static void fail_each(const struct sweep *s)
{
    static unsigned turn;
    const char *full = getenv("FULL"), *most = getenv("STEPS");
    long steps = most ? atol(most) : full ? (s->memory ? 150 : 100000) : 1;
    if (!ready()) FAIL("no queues");
    for (int i = 0; i < COMMANDS; i++) {
        if (!full && !most && (i + turn) % 3) continue;
        long calls = count(s, &commands[i]), done = 0;
        if (calls <= 0) continue;
        for (int on = 0; on < (s->kill ? 1 : 2) && !test_has_failed(); on++) {
            if (!full && !most && !s->kill && on != (int)(turn / 3 + (unsigned)i) % 2) continue;
            long stride = (calls + steps - 1) / steps;
            long from = stride == 1 ? 1 : 1 + (long)(turn * 2654435761u % (unsigned long)stride);
            for (long n = from; n <= calls; n += stride, done++)
                if (!step(s, &commands[i], n, on)) break;
        }
        if (full || most)
            printf("%s: %s: %ld of %ld calls, each once and on\n", commands[i].name, s->ops, done,
                   calls);
    }
    turn++;
}

/* The disk is full. */
TEST(no_space)
{
    fail_each(&(struct sweep){.ops = "write", .code = ENOSPC});
}

/* A write fails. */
TEST(writes)
{
    fail_each(&(struct sweep){.ops = "write", .code = EIO});
}

/* A file or a folder cannot be synced. */
TEST(syncs)
{
    fail_each(&(struct sweep){.ops = "sync"});
}

/* The model, an input, a picture or the queue cannot be read. */
TEST(reads)
{
    fail_each(&(struct sweep){.ops = "read"});
}

/* A journal cannot be cut. */
TEST(truncations)
{
    fail_each(&(struct sweep){.ops = "truncate"});
}

/* A file cannot be opened. */
TEST(opens)
{
    fail_each(&(struct sweep){.ops = "open", .code = EMFILE});
}

/* A finished file cannot be put in place. */
TEST(renames)
{
    fail_each(&(struct sweep){.ops = "rename"});
}

/* A file cannot be removed, a folder not made, a lock not taken, room not told. */
TEST(others)
{
    fail_each(&(struct sweep){.ops = "unlink mkdir lock statvfs"});
}

/* It is killed at a call, or in the middle of a write. */
TEST(kills)
{
    fail_each(
        &(struct sweep){.ops = "kill write sync truncate open rename unlink mkdir", .kill = true});
}

/* There is no memory. */
TEST(allocations)
{
    fail_each(&(struct sweep){.ops = "alloc", .memory = true});
}

TEST_MAIN
