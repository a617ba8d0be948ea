/* Sweeps: decode, prefill, and how well reading and arithmetic hide each other. */
#include "jobs/cmd_bench.h"

#include "src/bench_clock.h"
#include "src/os.h"

#include <stdio.h>

#define HEAD_ROOM  ((uint64_t)512 << 20)
#define MOST_TURNS 64
#define TURN_S     0.3

static double megabytes(double bytes)
{
    return bytes * 1e-6;
}

/* What the disk gave while some read was in flight; 0 when there was none. */
static double disk_of(const struct bench_run_result *r)
{
    return r->read_s > 0 ? (r->expert_bytes + r->trunk_bytes) / r->read_s : 0;
}

static void decode_row(struct cmd_bench *b, const struct bench_run_load *l,
                       const struct bench_run_result *r)
{
    double each = (double)b->m.sizes.expert_bytes;
    double token = r->fetches * each / r->rows, over = r->needed > 0 ? r->read / r->needed : 1;
    cmd_bench_row(b,
                  (struct bench_value[]){
                      {.name = "sequences", (double)l->sequences},
                      {.name = "cached %", 100 * l->cached},
                      {.name = "layers kept", (double)r->plan.pinned_layers},
                      {.name = "experts/sweep", r->uses, 1},
                      {.name = "rows/expert",
                       r->rows * b->m.config.top_k * config_moe_layers(&b->m.config) / r->uses,
                       2},
                      {.name = "read/sweep", r->fetches, 1},
                      {.name = "MB/token", megabytes(token), 2},
                      {.name = "bound MB/token", megabytes(token / over), 2},
                      {.name = "read/bound", over, 3},
                      {.name = "best/bound", r->needed > 0 ? r->best / r->needed : 1, 3},
                      {.name = "trunk MB/token", megabytes(r->trunk_bytes / r->rows), 2},
                      {.name = "disk MB/s", megabytes(disk_of(r))},
                      {.name = "reading s", r->read_s, 3},
                      {.name = "sweep s", r->sweep_s, 3},
                      {.name = "forecast s", r->expected.seconds, 3},
                      {.name = "wait s", r->expert_wait_s + r->trunk_wait_s, 3},
                      {.name = "tokens/s", r->tokens_s, 2},
                  },
                  17);
}

enum status cmd_bench_decode(struct cmd_bench *b, struct err *e)
{
    static const size_t sequences[] = {1, 8, 32, 128};
    static const double cached[] = {0.1, 0.25, 0.5};
    struct bench_run_opts o = cmd_bench_run_opts(b);
    struct bench_run_result r;
    char what[64];
    if (!b->m.sizes.expert_count) {
        cmd_bench_skip(b, "decode", "the model has no routed experts");
        return OK;
    }
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++)
        for (size_t k = 0; k < sizeof cached / sizeof *cached; k++) {
            struct bench_run_load l = {.sequences = sequences[i], .cached = cached[k]};
            enum status rc = bench_run(&r, &o, &l, b->most_s, e);
            snprintf(what, sizeof what, "%zu sequences, %.0f %% cached", l.sequences,
                     100 * l.cached);
            if (cmd_stop_wanted()) return OK;
            if (!rc && r.sweeps) decode_row(b, &l, &r);
            if (rc && !cmd_bench_left_out(b, what, &rc, e)) return rc;
        }
    return OK;
}

enum status cmd_bench_prefill(struct cmd_bench *b, struct err *e)
{
    static const size_t rows[] = {64, 512, 4096};
    struct bench_run_opts o = cmd_bench_run_opts(b);
    struct bench_run_result r;
    char what[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench_run_load l = {.rows = rows[i], .cached = -1};
        enum status rc = bench_run(&r, &o, &l, b->most_s, e);
        snprintf(what, sizeof what, "%zu rows", rows[i]);
        if (cmd_stop_wanted()) return OK;
        if (rc && !cmd_bench_left_out(b, what, &rc, e)) return rc;
        if (rc || !r.sweeps) continue;
        cmd_bench_row(
            b,
            (struct bench_value[]){
                {.name = "rows", r.rows},
                {.name = "layers kept", (double)r.plan.pinned_layers},
                {.name = "slots", (double)r.plan.expert_slots},
                {.name = "experts/sweep", r.uses, 1},
                {.name = "read/sweep", r.fetches, 1},
                {.name = "MB/row", megabytes((r.expert_bytes + r.trunk_bytes) / r.rows), 3},
                {.name = "read/bound", r.needed > 0 ? r.read / r.needed : 1, 3},
                {.name = "disk MB/s", megabytes(disk_of(&r))},
                {.name = "reading s", r.read_s, 3},
                {.name = "sweep s", r.sweep_s, 3},
                {.name = "forecast s", r.expected.seconds, 3},
                {.name = "wait s", r.expert_wait_s + r.trunk_wait_s, 3},
                {.name = "rows/s", r.rows_s, 1},
            },
            13);
    }
    return OK;
}

/* The same load with everything in memory: arithmetic alone. It may take more memory than --ram. */
static enum status arithmetic(const struct cmd_bench *b, const struct bench_run_load *load,
                              double *seconds, struct err *e)
{
    struct bench_run_opts o = cmd_bench_run_opts(b);
    struct bench_run_load l = *load;
    struct bench_run_result r;
    uint64_t all = os_ram_bytes(), need = b->m.sizes.global_bytes + HEAD_ROOM;
    for (unsigned i = 0; i < b->m.config.layers; i++) need += b->m.sizes.layer_bytes[i];
    need += b->m.sizes.expert_count * b->m.sizes.expert_slot_bytes;
    need += (l.sequences + 8) * config_state_bytes(&b->m.config) + HEAD_ROOM;
    if (need > all - all / 4)
        return err_set(e, E_BUDGET, "arithmetic alone needs the whole model in memory, %.1f GB",
                       (double)need * 1e-9);
    if (o.ram_bytes < need) o.ram_bytes = need;
    l.cached = 1;
    enum status rc = bench_run(&r, &o, &l, b->most_s, e);
    *seconds = rc ? 0 : r.sweep_s;
    return rc;
}

/* What the disk gives between the sweeps. */
struct between {
    struct cmd_bench *b;
    double bytes_s[MOST_TURNS];
    size_t n;
};

static enum status read_alone(void *user, struct err *e)
{
    struct between *t = user;
    if (t->n == MOST_TURNS) return OK;
    enum status rc = cmd_bench_disk_now(t->b, TURN_S, &t->bytes_s[t->n], e);
    if (!rc) t->n++;
    return rc;
}

/* Sweeps and plain reads take turns, for disks that others use too. */
static enum status overlap(struct cmd_bench *b, const struct bench_run_load *l, const char *what,
                           struct err *e)
{
    struct bench_run_opts o = cmd_bench_run_opts(b);
    struct bench_run_result r;
    struct between t = {.b = b};
    o.between = read_alone;
    o.user = &t;
    double alone = 0;
    enum status rc = bench_run(&r, &o, l, b->most_s, e);
    if (!rc) rc = arithmetic(b, l, &alone, e);
    if (rc || !t.n) return rc;
    double bytes = r.expert_bytes + r.trunk_bytes, disk = bench_clock_median(t.bytes_s, t.n);
    double read = bytes / disk, longer = read > alone ? read : alone;
    cmd_bench_row(b,
                  (struct bench_value[]){{.name = "load", .text = what},
                                         {.name = "layers kept", (double)r.plan.pinned_layers},
                                         {.name = "slots", (double)r.plan.expert_slots},
                                         {.name = "MB read", megabytes(bytes), 1},
                                         {.name = "disk MB/s", megabytes(disk)},
                                         {.name = "MB/s in it", megabytes(disk_of(&r))},
                                         {.name = "sweep s", r.sweep_s, 3},
                                         {.name = "reads alone s", read, 3},
                                         {.name = "arithmetic alone s", alone, 3},
                                         {.name = "sweep/longer", r.sweep_s / longer, 3},
                                         {.name = "target", 1.15, 2},
                                         {.name = "wait s", r.expert_wait_s + r.trunk_wait_s, 3}},
                  12);
    return OK;
}

enum status cmd_bench_overlap(struct cmd_bench *b, struct err *e)
{
    static const struct {
        const char *what;
        struct bench_run_load load;
    } loads[] = {
        {"decode 8", {.sequences = 8, .cached = 0.1}},
        {"decode 32", {.sequences = 32, .cached = 0.25}},
        {"prefill 64", {.rows = 64, .cached = 0.1}},
        {"prefill 512", {.rows = 512, .cached = 0.1}},
    };
    if (!b->m.sizes.expert_count) {
        cmd_bench_skip(b, "overlap", "the model has no routed experts");
        return OK;
    }
    enum status rc = OK;
    for (size_t i = 0; i < sizeof loads / sizeof *loads && !rc; i++) {
        rc = overlap(b, &loads[i].load, loads[i].what, e);
        if (cmd_stop_wanted()) return OK;
        if (rc) cmd_bench_left_out(b, loads[i].what, &rc, e);
    }
    return rc;
}
