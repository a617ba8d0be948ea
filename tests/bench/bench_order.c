/* bench_order [drafts] SHUFFLES QUEUE MODEL [OPTION...]: input order against auto order, in counts;
 * or no drafts against drafts.
 *
 * QUEUE is a file of jobs, or makes one of the demo's pictures: "mixed" (the jobs of
 * tests/golden/demo, and four questions more on each of 20 pictures), "questions" (20 on each of 50
 * pictures, or as many as a number behind the word says, under one long system prompt), "captions",
 * "same" (one prompt again and again), "random" (text drawn at a temperature at which it makes no
 * sense). The queue is shuffled in so many ways, each run in both
 * orders with the same options (those of `run`): one line each, then the median. Run from the root
 * of the repository.
 *
 * Columns: kilobytes of experts read for each job; the least that auto's sweeps need with a cache
 * of this size (each expert that is needed and not cached once in a sweep); how many fewer bytes
 * auto reads; rows of prompts computed for each job, and the least (each distinct beginning once);
 * pictures encoded; tokens of each sequence past its prompt and sweep. With drafts: tokens drafted,
 * and accepted of each draft; sweeps, rows, bytes and seconds of sweeps without drafts and with
 * them, run in turns. */
#include "jobs/cmd_bench_order.h"
#include "src/bench_clock.h"

#include "tests/lib/test.h"

#include <unistd.h>

#define DEMO "tests/golden/demo"

static unsigned long long rng = 7;

static void shuffle(const char **line, size_t n, unsigned long long seed)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = test_rand(&seed) % i;
        const char *t = line[i - 1];
        line[i - 1] = line[k];
        line[k] = t;
    }
}

static const char *const questions[] = {
    "Describe this image.",
    "Caption this image.",
    "What is in the image?",
    "How many shapes are there?",
    "What colour is the circle?",
    "What colour is the square?",
    "What colour is the star?",
    "What colour is the background?",
    "Is there a red circle?",
    "Is there a yellow heart?",
    "Is there a blue square?",
    "Where is the circle?",
    "Where is the square?",
    "Where is the star?",
    "Is the circle large?",
    "What is written in the image?",
    "Read the text.",
    "What is at the top?",
    "What is at the left?",
    "What shape is the red object?",
};
#define N_QUESTIONS (sizeof questions / sizeof *questions)

struct lines {
    const char *at[4096];
    size_t n;
};

static void ask(struct lines *l, int image, const char *question, const char *system)
{
    char *line = NULL;
    if (asprintf(&line,
                 "{\"custom_id\":\"q%zu\",\"image\":\"images/%03d.png\",\"prompt\":\"%s\"%s,"
                 "\"max_tokens\":80}",
                 l->n, image, question, system) < 0)
        abort();
    l->at[l->n++] = line;
}

static void split(struct lines *l, char *text)
{
    for (char *line; (line = strsep(&text, "\n"));)
        if (*line) l->at[l->n++] = line;
}

/* Pictures of the demo have numbers with gaps. */
static size_t pictures(int *out, size_t most)
{
    size_t n = 0;
    for (int i = 0; i < 1000 && n < most; i++) {
        char path[64];
        snprintf(path, sizeof path, DEMO "/images/%03d.png", i);
        if (access(path, R_OK) == 0) out[n++] = i;
    }
    return n;
}

static bool make(struct lines *l, const char *queue)
{
    int image[200];
    size_t n = pictures(image, 200);
    if (!strcmp(queue, "mixed")) {
        split(l, test_read(DEMO "/jobs.jsonl", NULL));
        for (size_t i = 0; i < 20 && i < n; i++)
            for (size_t k = 0; k < 4; k++)
                ask(l, image[i * 5 % n], questions[test_rand(&rng) % N_QUESTIONS], "");
    } else if (!strncmp(queue, "questions", 9)) {
        size_t some = queue[9] ? strtoul(queue + 9, NULL, 10) : 50;
        char system[1200] = ",\"system\":\"";
        while (strlen(system) < 1100) strcat(system, "Look at the picture and answer shortly. ");
        strcat(system, "\"");
        for (size_t i = 0; i < some && i < n; i++)
            for (size_t k = 0; k < N_QUESTIONS; k++) ask(l, image[i], questions[k], system);
    } else if (!strcmp(queue, "captions")) {
        for (size_t i = 0; i < n; i++) ask(l, image[i], questions[test_rand(&rng) % 3], "");
    } else if (!strcmp(queue, "same")) {
        for (size_t i = 0; i < n; i++) ask(l, image[i], questions[0], "");
    } else if (!strcmp(queue, "random")) {
        for (size_t i = 0; i < 64; i++) {
            char *line = NULL;
            if (asprintf(&line,
                         "{\"custom_id\":\"r%zu\",\"prompt\":\"Tell me more about %zu.\","
                         "\"temperature\":2,\"seed\":%zu,\"max_tokens\":60}",
                         i, i, i) < 0)
                abort();
            l->at[l->n++] = line;
        }
    } else {
        split(l, test_read(queue, NULL));
        return false;
    }
    return true;
}

static double per(uint64_t a, uint64_t b)
{
    return (double)a / (double)(b ? b : 1);
}

struct pair {
    struct bench_order input, best;
};

static double saved(const struct pair *p)
{
    return 100 - 100 * per(p->best.report.engine.expert_bytes, p->input.report.engine.expert_bytes);
}

static int by_saving(const void *a, const void *b)
{
    double x = saved(a), y = saved(b);
    return x < y ? -1 : x > y;
}

static double tokens(const struct bench_order *b)
{
    const struct engine_stats *g = &b->report.engine;
    return per(g->decode_rows + g->spec.accepted, g->decode_rows);
}

static void tell(const char *name, const char *which, const struct pair *p)
{
    const struct engine_stats *a = &p->input.report.engine, *b = &p->best.report.engine;
    uint64_t jobs = p->input.report.done + p->input.report.failed;
    printf("%-22s %7s %6llu %8.1f %8.1f %8.1f %6.1f %% %7.1f %7.1f %7.1f %5llu %5llu %5.2f %5.2f "
           "%6llu %6llu\n",
           name, which, (unsigned long long)jobs, per(a->expert_bytes, jobs) / 1e3,
           per(b->expert_bytes, jobs) / 1e3, per(b->expert_least, jobs) / 1e3, saved(p),
           per(a->prefill_rows, jobs), per(b->prefill_rows, jobs), per(p->best.prefix_rows, jobs),
           (unsigned long long)p->input.images, (unsigned long long)p->best.images,
           tokens(&p->input), tokens(&p->best), (unsigned long long)a->sweeps,
           (unsigned long long)b->sweeps);
    fflush(stdout);
}

static void tell_head(void)
{
    printf("%-22s %7s %6s %26s %8s %23s %11s %11s %13s\n", "", "", "", "kB of experts a job", "",
           "prompt rows a job", "pictures", "tokens", "sweeps");
    printf("%-22s %7s %6s %8s %8s %8s %8s %7s %7s %7s %5s %5s %5s %5s %6s %6s\n", "queue",
           "shuffle", "jobs", "input", "auto", "least", "fewer", "input", "auto", "least", "input",
           "auto", "input", "auto", "input", "auto");
}

static uint64_t rows(const struct engine_stats *g)
{
    return g->prefill_rows + g->decode_rows + g->draft_rows;
}

/* One line for each run, and the medians of the seconds when they are asked for. */
static void tell_drafts(const char *name, const char *which, const struct pair *p)
{
    const struct engine_stats *a = &p->input.report.engine, *b = &p->best.report.engine;
    printf("%-22s %7s %8llu %8.2f %8.2f %7llu %7llu %7.1f %% %+7.1f %% %+7.1f %% %8.2f %8.2f\n",
           name, which, (unsigned long long)b->spec.drafted, per(b->spec.accepted, b->spec.drafts),
           tokens(&p->best), (unsigned long long)a->sweeps, (unsigned long long)b->sweeps,
           100 - 100 * per(b->sweeps, a->sweeps), 100 * per(rows(b), rows(a)) - 100,
           100 * per(b->expert_bytes, a->expert_bytes) - 100, a->sweep_s, b->sweep_s);
    fflush(stdout);
}

static void tell_drafts_head(void)
{
    printf("%-22s %7s %8s %8s %8s %15s %9s %9s %9s %17s\n", "", "", "drafted", "right", "tokens",
           "sweeps", "sweeps", "rows", "bytes", "seconds");
    printf("%-22s %7s %8s %8s %8s %7s %7s %9s %9s %9s %8s %8s\n", "queue", "shuffle", "tokens",
           "a draft", "a sweep", "off", "on", "fewer", "more", "more", "off", "on");
}

static double median_seconds(const struct pair *p, size_t n, bool drafts)
{
    double s[9] = {0};
    for (size_t i = 0; i < n; i++)
        s[i] = (drafts ? &p[i].best : &p[i].input)->report.engine.sweep_s;
    return bench_clock_median(s, n);
}

#define MOST_SHUFFLES 9

static void write_queue(const struct lines *l, const char *path, unsigned long long seed)
{
    static const char *at[sizeof l->at / sizeof *l->at];
    struct buf b = {0};
    struct err e;
    memcpy(at, l->at, l->n * sizeof *at);
    shuffle(at, l->n, seed);
    for (size_t i = 0; i < l->n; i++)
        if (buf_addf(&b, &e, "%s\n", at[i])) abort();
    test_write(path, b.data, b.len);
    buf_free(&b);
}

static enum status both(struct pair *p, const struct cmd_options *o, bool drafts, struct err *e)
{
    struct cmd_options each = *o;
    each.order = drafts ? ORDER_AUTO : ORDER_INPUT;
    each.no_drafts |= drafts;
    enum status rc = cmd_bench_order(&p->input, &each, NULL, e);
    each.order = ORDER_AUTO;
    each.no_drafts = o->no_drafts;
    return rc ? rc : cmd_bench_order(&p->best, &each, NULL, e);
}

/* The name of a row: the queue and what options it has. */
static void name_row(char *out, size_t room, int argc, char **argv)
{
    const char *slash = strrchr(argv[2], '/');
    int n = snprintf(out, room, "%s", slash ? slash + 1 : argv[2]);
    for (int i = 4; i + 1 < argc && n < (int)room; i++)
        if (!strcmp(argv[i], "--cache-experts") || !strcmp(argv[i], "--draft"))
            n += snprintf(out + n, room - (size_t)n, " %s", argv[i + 1]);
}

int main(int argc, char **argv)
{
    static struct lines l;
    struct cmd_options o;
    struct err e;
    bool help;
    char name[80];
    struct pair p[MOST_SHUFFLES];
    if (argc == 2 && !strcmp(argv[1], "--head")) {
        tell_head();
        return 0;
    }
    bool drafts = argc > 1 && !strcmp(argv[1], "drafts");
    argc -= drafts;
    argv += drafts;
    if (argc == 2 && !strcmp(argv[1], "--head")) {
        tell_drafts_head();
        return 0;
    }
    size_t n = argc > 3 ? strtoul(argv[1], NULL, 10) : 0;
    if (n < 1 || n > MOST_SHUFFLES) {
        fprintf(stderr, "usage: bench_order [drafts] SHUFFLES QUEUE|mixed|questions|captions|same|"
                        "random MODEL "
                        "[OPTION]...\n");
        return 2;
    }
    bool demo = make(&l, argv[2]);
    const char *path = test_path("queue.jsonl");
    struct cmd_words words = {CMD_RUN, "run", "", argc - 4, argv + 4};
    enum status rc = cmd_parse(&o, &words, &help, &e);
    o.model = argv[3];
    o.operands = (struct cmd_list){&path, 1};
    if (!o.images.root && demo) o.images.root = DEMO;
    name_row(name, sizeof name, argc, argv);
    for (size_t i = 0; i < n && !rc; i++) {
        char which[8];
        write_queue(&l, path, i + 1);
        rc = both(&p[i], &o, drafts, &e);
        snprintf(which, sizeof which, "%zu", i + 1);
        if (!rc) (drafts ? tell_drafts : tell)(name, which, &p[i]);
    }
    o.operands = (struct cmd_list){NULL, 0};
    cmd_options_free(&o);
    if (rc) fprintf(stderr, "bench_order: %s\n", e.text);
    if (rc) return 1;
    if (drafts)
        printf("%-22s seconds, median of each: %.3f of those without drafts\n", name,
               median_seconds(p, n, true) / median_seconds(p, n, false));
    qsort(p, n, sizeof *p, by_saving);
    if (n > 1 && !drafts) tell(name, "median", &p[n / 2]);
    return 0;
}
