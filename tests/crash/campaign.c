/* Kills the real program with SIGKILL at random moments until it has done so often enough, looks at
 * the queue after each kill, and compares each finished night with an undisturbed one.
 *
 *     campaign run|work PROGRAM [KILLS [SEED [JOBS]]]
 *
 * run: one `run` from import to export, begun again after each kill. work: `add`, then three
 * workers on the queue with short leases, each killed at its own moments, some of them stopped past
 * their lease and let go on. SEED decides jobs' moments: the same again, as far as a scheduler
 * repeats. A night that was begun is always worked to its end. */
#include "tests/lib/test.h"
#include "tests/lib/victim.h"
#include "tests/lib/watch.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#define WORKERS  3
#define LEASE_MS 3000

struct campaign {
    const char *program, *jobs, *db, *out;
    bool work;
    int kills, wanted, stops, nights, faults, starts;
    unsigned long long rng;
    char *expected;
    struct watch watch;
};

static void fault(struct campaign *c, const char *what, const char *log)
{
    printf("FAILED: night %d, kill %d: %s\n", c->nights + 1, c->kills, what);
    fflush(stdout);
    char *text = log ? victim_output(log) : NULL;
    if (text) printf("%s", text);
    free(text);
    c->faults++;
}

static long below(struct campaign *c, long n)
{
    return (long)(test_rand(&c->rng) % (unsigned long long)n);
}

/* Mostly within a second, so that beginnings are met as often as the middle. */
static long moment(struct campaign *c)
{
    return below(c, 10) < 7 ? below(c, 900) : below(c, 2500);
}

static long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void look(struct campaign *c)
{
    if (!watch_look(&c->watch, c->db)) fault(c, "the queue is not whole", NULL);
}

static void forget(struct campaign *c)
{
    static const char *const ends[] = {"", "-journal", ".lock"};
    char path[600];
    unlink(c->out);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", c->db, ends[i]);
        unlink(path);
    }
    watch_free(&c->watch);
}

static struct victim a_run(const struct campaign *c, const char *out)
{
    return (struct victim){.program = c->program,
                           .args = {"run", c->jobs, "-m", "examples/demo-model", "-o", out,
                                    "--image-root", "examples/images", "--max-sequences", "4",
                                    "--progress", "none"},
                           .log = test_path("log")};
}

/* True when it was killed; false when it ended by itself, as it should. */
static bool run_and_kill(struct campaign *c, const struct victim *v, int right)
{
    long ms = moment(c);
    pid_t pid = victim_start(v);
    c->starts++;
    for (long until = now_ms() + ms; c->kills < c->wanted && now_ms() < until;) {
        int code = victim_poll(pid);
        if (code != VICTIM_RUNNING) {
            if (code != right) fault(c, "it ended wrongly", v->log);
            return false;
        }
        victim_ms(until - now_ms() < 5 ? 1 : 5);
    }
    if (c->kills < c->wanted) kill(pid, SIGKILL);
    int code = victim_wait(pid);
    if (code != VICTIM_KILLED) {
        if (code != right) fault(c, "it ended wrongly", v->log);
        return false;
    }
    c->kills++;
    look(c);
    return true;
}

static void compare(struct campaign *c)
{
    char *got = victim_output(c->out);
    look(c);
    if (!got || strcmp(got, c->expected) != 0) fault(c, "another output", NULL);
    free(got);
    struct victim v = {
        .program = c->program, .args = {"verify", "--db", c->db, c->out}, .log = test_path("log")};
    if (victim_run(&v) != 0) fault(c, "verify", v.log);
    c->nights++;
    printf("night %d: %d kills, %d stops so far, %d faults\n", c->nights, c->kills, c->stops,
           c->faults);
    fflush(stdout);
}

static void night_of_run(struct campaign *c)
{
    struct victim v = a_run(c, c->out);
    while (!c->faults && run_and_kill(c, &v, 1)) {
    }
}

struct worker {
    struct victim v;
    char env[40];
    pid_t pid;
    long at, go_on; /* when it is killed or stopped; when it goes on, or 0 */
    bool stop;
};

static void start(struct campaign *c, struct worker *w)
{
    w->pid = victim_start(&w->v);
    c->starts++;
    w->at = now_ms() + moment(c);
    w->stop = below(c, 8) == 0;
    w->go_on = 0;
}

static void disturb(struct campaign *c, struct worker *w)
{
    if (w->go_on) {
        kill(w->pid, SIGCONT);
        w->go_on = 0;
        w->stop = false;
        w->at = now_ms() + moment(c);
    } else if (w->stop) {
        kill(w->pid, SIGSTOP);
        /* In the middle of a transaction it would hold up everybody. */
        if (!watch_unlocked(c->db)) {
            kill(w->pid, SIGCONT);
            w->at = now_ms() + 50;
            return;
        }
        c->stops++;
        /* By then others have its jobs. */
        w->go_on = now_ms() + LEASE_MS * 3 / 2;
    } else {
        kill(w->pid, SIGKILL);
    }
}

/* True as long as the worker has work. */
static bool tend(struct campaign *c, struct worker *w)
{
    if (!w->pid) return false;
    int code = victim_poll(w->pid);
    if (code == VICTIM_KILLED) {
        c->kills++;
        look(c);
        start(c, w);
    } else if (code != VICTIM_RUNNING) {
        w->pid = 0;
        if (code != 1) fault(c, "a worker ended wrongly", w->v.log);
    } else if (now_ms() >= (w->go_on ? w->go_on : w->at) && (w->go_on || c->kills < c->wanted)) {
        disturb(c, w);
    }
    return w->pid != 0;
}

static void night_of_work(struct campaign *c)
{
    struct worker w[WORKERS] = {0};
    struct victim add = {.program = c->program,
                         .args = {"add", "--db", c->db, "--image-root", "examples/images", c->jobs},
                         .log = test_path("log")};
    struct victim export = {.program = c->program,
                            .args = {"export", "--db", c->db, "-o", c->out},
                            .log = test_path("log")};
    if (victim_run(&add) != 0) fault(c, "add", add.log);
    for (int i = 0; i < WORKERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "log%d", i);
        snprintf(w[i].env, sizeof w[i].env, "NIGHTSHIFT_LEASE_MS=%d", LEASE_MS);
        w[i].v = (struct victim){.program = c->program,
                                 .env = {w[i].env},
                                 .args = {"work", "--db", c->db, "-m", "examples/demo-model",
                                          "--image-root", "examples/images", "--max-sequences", "4",
                                          "--threads", "1", "--ram", "1G", "--progress", "none"},
                                 .log = test_path(name)};
        start(c, &w[i]);
    }
    for (bool any = true; any && !c->faults; victim_ms(5)) {
        any = false;
        for (int i = 0; i < WORKERS; i++) any |= tend(c, &w[i]);
    }
    for (int i = 0; i < WORKERS; i++)
        if (w[i].pid) kill(w[i].pid, SIGKILL), victim_wait(w[i].pid);
    if (!c->faults && victim_run(&export) != 0) fault(c, "export", export.log);
}

static void undisturbed(struct campaign *c, int jobs)
{
    victim_jobs(c->jobs, jobs);
    const char *out = test_path("plain.jsonl");
    struct victim v = a_run(c, out);
    long begun = now_ms();
    int code = victim_run(&v);
    c->expected = victim_output(out);
    if (code != 1 || !c->expected) {
        fault(c, "the undisturbed night", v.log);
        exit(1);
    }
    printf("undisturbed: %ld ms\n", now_ms() - begun);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct campaign c = {.program = argc > 2 ? argv[2] : ""};
    c.work = argc > 1 && !strcmp(argv[1], "work");
    if (argc < 3 || (!c.work && strcmp(argv[1], "run") != 0)) {
        printf("usage: campaign run|work PROGRAM [KILLS [SEED [JOBS]]]\n");
        return 2;
    }
    c.wanted = argc > 3 ? atoi(argv[3]) : 300;
    unsigned long long seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
    c.rng = seed * 1000003 + 17;
    c.jobs = test_path("jobs.jsonl");
    c.out = test_path("out.jsonl");
    c.db = test_path("out.jsonl.db");
    undisturbed(&c, argc > 5 ? atoi(argv[5]) : 200);
    while (!c.faults && c.kills < c.wanted) {
        forget(&c);
        if (c.work)
            night_of_work(&c);
        else
            night_of_run(&c);
        if (!c.faults) compare(&c);
    }
    printf("%s, seed %llu: %d kills and %d stops of %d processes over %d nights\n",
           c.work ? "three workers" : "one run", seed, c.kills, c.stops, c.starts, c.nights);
    printf("%d passed, %d failed, 0 skipped\n", c.kills + c.nights, c.faults);
    free(c.expected);
    watch_free(&c.watch);
    if (!c.faults) test_dir_remove();
    return c.faults > 0;
}
