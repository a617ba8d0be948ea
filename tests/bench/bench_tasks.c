/* bench_tasks QUEUE.jsonl MODEL [OPTION]...: which experts the jobs of a task use.
 *
 * Each job runs by itself, in input order; its task is its custom_id without the number behind the
 * last dash. Counted is what tokens of the prompt (pictures included) and of the answer use,
 * whatever is computed. Printed: how many of all (layer, expert) pairs are in use, how many one
 * job uses, how uneven the use is; and how alike two jobs use them, by the cosine of their counts
 * and by the share of their sets that both have (Jaccard): of the same task, of different tasks
 * with pictures or without, of one with and one without. */
#include "jobs/cmd_bench_order.h"
#include "tests/lib/test.h"

#include <cjson/cJSON.h>

#define MOST_JOBS  2048
#define MOST_TASKS 256

struct used {
    unsigned task;
    bool sees;
    float *count; /* [pairs] */
};

static struct {
    struct used job[MOST_JOBS];
    char *task[MOST_TASKS];
    size_t listed, n, tasks; /* listed: lines of the queue; n: those that ran */
    size_t pairs, layers, experts, top;
} all;

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "bench_tasks: %s: %s\n", what, why);
    exit(1);
}

static unsigned task_of(const char *id)
{
    const char *dash = strrchr(id, '-');
    size_t len = dash ? (size_t)(dash - id) : strlen(id), t = 0;
    while (t < all.tasks && (strlen(all.task[t]) != len || strncmp(all.task[t], id, len) != 0)) t++;
    if (t == MOST_TASKS) stop(id, "too many tasks");
    if (t == all.tasks && !(all.task[all.tasks++] = strndup(id, len))) abort();
    return (unsigned)t;
}

static void read_queue(const char *path)
{
    char *text = test_read(path, NULL);
    if (!text) exit(1);
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) && *line;) {
        if (all.listed == MOST_JOBS) stop(path, "too many jobs");
        cJSON *o = cJSON_Parse(line);
        const char *id = cJSON_GetStringValue(cJSON_GetObjectItem(o, "custom_id"));
        if (!id) stop(path, "a line without custom_id");
        struct used *j = &all.job[all.listed++];
        j->task = task_of(id);
        j->sees = strstr(line, "image_url") != NULL;
        cJSON_Delete(o);
    }
    free(text);
}

static enum status add(struct engine *g, const struct engine_sequence *s, struct err *e)
{
    const struct config *c = engine_config(g);
    all.layers = c->layers;
    all.experts = c->experts;
    all.top = c->top_k;
    all.pairs = all.layers * all.experts;
    enum status rc = engine_add(g, s, e);
    if (rc) return rc;
    if (all.n == all.listed) stop("queue", "more jobs than lines");
    all.job[all.n].count = calloc(all.pairs, sizeof(float));
    if (!all.job[all.n++].count) abort();
    return OK;
}

static void on_route(void *user, unsigned layer, const uint32_t *experts, const float *biased,
                     size_t rows)
{
    (void)user;
    (void)biased;
    float *count = all.job[all.n - 1].count + layer * all.experts;
    for (size_t i = 0; i < rows * all.top; i++) count[experts[i]]++;
}

struct likeness {
    double cosine, jaccard, n;
};

static void compare(struct likeness *to, const struct used *a, const struct used *b)
{
    double aa = 0, bb = 0, ab = 0, both = 0, either = 0;
    for (size_t p = 0; p < all.pairs; p++) {
        double x = a->count[p], y = b->count[p];
        aa += x * x;
        bb += y * y;
        ab += x * y;
        both += x > 0 && y > 0;
        either += x > 0 || y > 0;
    }
    to->cosine += aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
    to->jaccard += either > 0 ? both / either : 0;
    to->n++;
}

static void print_use(void)
{
    float *sum = calloc(all.pairs, sizeof *sum);
    double of_job = 0, in_use = 0, uneven = 0, layers = 0;
    if (!sum) abort();
    for (size_t i = 0; i < all.n; i++)
        for (size_t p = 0; p < all.pairs; p++) {
            sum[p] += all.job[i].count[p];
            of_job += all.job[i].count[p] > 0;
        }
    for (size_t l = 0; l < all.layers; l++) {
        double most = 0, whole = 0;
        for (size_t x = 0; x < all.experts; x++) {
            double v = sum[l * all.experts + x];
            whole += v;
            most = fmax(most, v);
            in_use += v > 0;
        }
        if (whole == 0) continue; /* dense */
        layers++;
        uneven += most / (whole / (double)all.experts);
    }
    double pairs = layers * (double)all.experts;
    printf("%zu jobs of %zu tasks: %.1f %% of %.0f experts are in use; a job uses %.1f %%; the "
           "busiest "
           "of a layer %.1f times the mean\n",
           all.n, all.tasks, 100 * in_use / pairs, pairs, 100 * of_job / (double)all.n / pairs,
           uneven / layers);
    free(sum);
}

static void print_likeness(void)
{
    static const char *const names[] = {"same task", "other task, both with or without pictures",
                                        "one with a picture, one without"};
    struct likeness k[3] = {0};
    for (size_t i = 0; i < all.n; i++)
        for (size_t j = 0; j < i; j++) {
            const struct used *a = &all.job[i], *b = &all.job[j];
            compare(&k[a->task == b->task ? 0 : a->sees == b->sees ? 1 : 2], a, b);
        }
    printf("%-44s %8s %8s\n", "experts of two jobs", "cosine", "Jaccard");
    for (int i = 0; i < 3; i++)
        if (k[i].n > 0)
            printf("%-44s %8.3f %8.3f\n", names[i], k[i].cosine / k[i].n, k[i].jaccard / k[i].n);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_tasks QUEUE.jsonl MODEL [OPTION]...\n");
        return 2;
    }
    struct cmd_options o;
    struct err e;
    bool help;
    struct bench_order out;
    struct cmd_words words = {CMD_RUN, "run", "", argc - 3, argv + 3};
    const char *path = argv[1];
    read_queue(path);
    enum status rc = cmd_parse(&o, &words, &help, &e);
    o.model = argv[2];
    o.operands = (struct cmd_list){&path, 1};
    o.max_sequences = 1;
    o.no_drafts = true;
    o.order = ORDER_INPUT;
    struct bench_order_watch watch = {.add = add, .route = on_route};
    if (!rc) rc = cmd_bench_order(&out, &o, &watch, &e);
    o.operands = (struct cmd_list){NULL, 0};
    cmd_options_free(&o);
    if (rc) stop(path, e.text);
    print_use();
    print_likeness();
    for (size_t i = 0; i < all.n; i++) free(all.job[i].count);
    for (size_t t = 0; t < all.tasks; t++) free(all.task[t]);
    return 0;
}
