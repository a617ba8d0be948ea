/* The command, its sections and how their rows are printed. */
#include "jobs/cmd_bench.h"

#include "jobs/jdoc.h"
#include "src/os.h"

#include <stdio.h>
#include <string.h>

#define SECONDS     3.0
#define MOST_FACTOR 20 /* a figure may take so many times --seconds */

static const struct section {
    const char *name, *title;
    enum status (*run)(struct cmd_bench *b, struct err *e);
} sections[] = {
#define X(name, title) {#name, title, cmd_bench_##name},
    BENCH_SECTIONS(X)
#undef X
};
#define N_SECTIONS (sizeof sections / sizeof *sections)

static int width_of(const struct bench_value *v)
{
    int n = (int)strlen(v->name);
    return n < 8 ? 8 : n;
}

static void print_json(const struct cmd_bench *b, const struct bench_value *v, size_t n)
{
    struct buf out = {0};
    buf_addf(&out, NULL, "{\"section\":\"%s\"", b->section);
    for (size_t i = 0; i < n; i++) {
        buf_addf(&out, NULL, ",\"");
        for (const char *c = v[i].name; *c; c++) buf_addf(&out, NULL, "%c", *c == ' ' ? '_' : *c);
        buf_addf(&out, NULL, "\":");
        if (v[i].text)
            jdoc_quote(&out, v[i].text, strlen(v[i].text), NULL);
        else
            buf_addf(&out, NULL, "%.9g", v[i].v);
    }
    printf("%s}\n", out.data ? out.data : "");
    buf_free(&out);
}

static void print_head(struct cmd_bench *b, const struct bench_value *v, size_t n)
{
    for (size_t i = 0; i < N_SECTIONS; i++)
        if (b->printed != b->section && !strcmp(sections[i].name, b->section))
            printf("\n%s: %s\n", b->section, sections[i].title);
    b->printed = b->section;
    for (size_t i = 0; i < n; i++) printf("%s%*s", i ? "  " : "", width_of(&v[i]), v[i].name);
    if (n) printf("\n");
}

void cmd_bench_row(struct cmd_bench *b, const struct bench_value *v, size_t n)
{
    static const char *head; /* of the table under way */
    if (b->o->json) {
        print_json(b, v, n);
    } else {
        if (b->printed != b->section || head != v[0].name) print_head(b, v, n);
        head = v[0].name;
        for (size_t i = 0; i < n; i++) {
            printf("%s", i ? "  " : "");
            if (v[i].text)
                printf("%*s", width_of(&v[i]), v[i].text);
            else
                printf("%*.*f", width_of(&v[i]), v[i].digits, v[i].v);
        }
        printf("\n");
    }
    fflush(stdout);
}

void cmd_bench_skip(struct cmd_bench *b, const char *what, const char *why)
{
    const struct bench_value v[] = {{.name = "skipped", .text = what},
                                    {.name = "why", .text = why}};
    if (b->o->json) {
        print_json(b, v, 2);
    } else {
        if (b->printed != b->section) print_head(b, NULL, 0);
        printf("skipped: %s: %s\n", what, why);
    }
    fflush(stdout);
}

bool cmd_bench_left_out(struct cmd_bench *b, const char *what, enum status *rc, const struct err *e)
{
    if (*rc != E_BUDGET && *rc != E_STOPPED) return false;
    cmd_bench_skip(b, what, e->text);
    *rc = OK;
    return true;
}

struct bench_run_opts cmd_bench_run_opts(const struct cmd_bench *b)
{
    return (struct bench_run_opts){.model_dir = b->m.dir,
                                   .compute = b->compute,
                                   .direct_io = !b->o->no_direct_io,
                                   .ram_bytes = b->ram,
                                   .model = &b->m.sizes,
                                   .speed = &b->m.speed,
                                   .seconds = b->seconds};
}

enum status cmd_bench_machine(struct cmd_bench *b, struct err *e)
{
    (void)e;
    const struct plan_speed *s = &b->m.speed;
    char size[24], disk[48];
    snprintf(size, sizeof size, "%.2f", (double)b->ram * 1e-9);
    snprintf(disk, sizeof disk, "%.0f %s", s->read_bytes_s * 1e-6,
             b->o->no_direct_io ? "buffered" : "direct");
    cmd_bench_row(b,
                  (struct bench_value[]){{.name = "kernels", .text = b->m.kern->name},
                                         {.name = "threads", b->m.threads},
                                         {.name = "GB RAM", .text = size},
                                         {.name = "disk MB/s", .text = disk},
                                         {.name = "memory GB/s", s->memory_bytes_s * 1e-9, 1},
                                         {.name = "fork us", s->join_s * 1e6, 1}},
                  6);
    for (size_t i = 0; i < PLAN_SPEED_POINTS; i++)
        cmd_bench_row(b,
                      (struct bench_value[]){
                          {.name = "rows", (double)plan_speed_rows[i]},
                          {.name = "expert GFLOP/s", s->expert_flop_s[i] * 1e-9, 1},
                          {.name = "trunk GFLOP/s", s->trunk_flop_s[i] * 1e-9, 1},
                      },
                      3);
    return OK;
}

static enum status choose(const struct cmd_options *o, bool wanted[N_SECTIONS], struct err *e)
{
    for (size_t i = 0; i < N_SECTIONS; i++) {
        const char *name = sections[i].name;
        wanted[i] = o->only.n == 0 && (o->cache_sim || strcmp(name, "cache") != 0);
        for (size_t k = 0; k < o->only.n; k++) wanted[i] |= !strcmp(o->only.at[k], name);
    }
    for (size_t k = 0; k < o->only.n; k++) {
        size_t i = 0;
        while (i < N_SECTIONS && strcmp(o->only.at[k], sections[i].name) != 0) i++;
        if (i == N_SECTIONS)
            return err_set(e, E_USAGE, "bench: --only: there is no section %s", o->only.at[k]);
        if (!strcmp(o->only.at[k], "cache") && !o->cache_sim)
            return err_set(e, E_USAGE, "bench: the section cache needs --cache-sim FILE");
    }
    return OK;
}

static enum status run_sections(struct cmd_bench *b, const bool wanted[N_SECTIONS], struct err *e)
{
    enum status rc = OK;
    for (size_t i = 0; i < N_SECTIONS && !rc; i++) {
        b->section = sections[i].name;
        if (wanted[i]) rc = sections[i].run(b, e);
        if (cmd_stop_wanted()) return err_set(e, E_STOPPED, "bench: stopped");
    }
    return rc;
}

static enum status with_model(struct cmd_bench *b, const bool wanted[N_SECTIONS], struct err *e)
{
    struct cmd_model *m = &b->m;
    enum status rc = cmd_model_begin(m, b->o, e);
    if (rc) return rc;
    rc = plan_model_load(&m->sizes, &m->config, m->dir, e);
    if (!rc) rc = cmd_speed_take(m, b->o, NULL, e);
    b->compute = (struct compute){.kern = m->kern, .bf16 = b->o->activations == ACTIVATIONS_BF16};
    if (!rc) rc = pool_open(&b->compute.pool, m->threads, e);
    if (!rc) rc = run_sections(b, wanted, e);
    if (b->compute.pool) pool_close(b->compute.pool);
    cmd_model_close(m);
    return rc;
}

int cmd_bench(const struct cmd_options *o)
{
    struct err e;
    bool wanted[N_SECTIONS];
    struct cmd_bench b = {.o = o, .ram = cmd_ram(o), .seconds = o->seconds};
    if (!(b.seconds > 0)) b.seconds = SECONDS;
    b.most_s = MOST_FACTOR * b.seconds;
    enum status rc = choose(o, wanted, &e);
    cmd_catch_signals();
    /* A trace needs no model. */
    bool model = false;
    for (size_t i = 0; i < N_SECTIONS; i++)
        model |= wanted[i] && strcmp(sections[i].name, "cache") != 0;
    if (!rc && model && (o->model || !o->cache_sim || o->only.n))
        rc = with_model(&b, wanted, &e);
    else if (!rc) {
        b.section = "cache";
        rc = cmd_bench_cache(&b, &e);
    }
    if (rc == E_STOPPED && cmd_stop_exit()) return cmd_stop_exit();
    return rc ? cmd_fail(&e) : EXIT_DONE;
}
