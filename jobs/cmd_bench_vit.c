/* Pictures a second, from small ones to a whole screen. */
#include "jobs/cmd_bench.h"

#include "vision/bench_vit.h"

#include <stdio.h>

static enum status picture(struct cmd_bench *b, struct bench_vit *v, const unsigned grid[2],
                           double peak, struct err *e)
{
    struct bench_vit_speed s;
    char what[40], part[24];
    unsigned patches = grid[0] * grid[1];
    snprintf(what, sizeof what, "%u patches", patches);
    if ((grid[0] > grid[1] ? grid[0] : grid[1]) > b->m.processor.side_limit ||
        patches > b->m.processor.in_patch_limit) {
        cmd_bench_skip(b, what, "larger than the model takes");
        return OK;
    }
    enum status rc = bench_vit_picture(v, grid[0], grid[1], b->seconds, &s, e);
    if (rc) return cmd_bench_left_out(b, what, &rc, e) ? OK : rc;
    /* Machines shared with others are not equally fast at all times: the peak then and now. */
    double now;
    rc = cmd_bench_peak(b, &now, e);
    if (rc) return rc;
    if (now > peak) peak = now;
    snprintf(part, sizeof part, "%u of %u", s.blocks, s.of);
    double rate = s.flop / s.seconds;
    cmd_bench_row(b,
                  (struct bench_value[]){{.name = "patches", patches},
                                         {.name = "MB taken", (double)s.bytes * 1e-6, 1},
                                         {.name = "GFLOP", s.flop * 1e-9, 1},
                                         {.name = "blocks timed", .text = part},
                                         {.name = "pictures/s", 1 / s.seconds, 4},
                                         {.name = "GFLOP/s", rate * 1e-9, 1},
                                         {.name = "peak GFLOP/s", peak * 1e-9, 1},
                                         {.name = "% of peak", 100 * rate / peak, 1}},
                  8);
    return OK;
}

enum status cmd_bench_vit(struct cmd_bench *b, struct err *e)
{
    static const unsigned grids[][2] = {{16, 16}, {32, 32}, {64, 64}, {138, 78}};
    struct mem mem;
    struct bench_vit *v = NULL;
    double peak = 0;
    if (!b->m.has_vision) {
        cmd_bench_skip(b, "pictures", "the model takes none");
        return OK;
    }
    mem_init(&mem, b->ram);
    struct bench_vit_opts o = {b->m.dir, &mem, b->compute};
    enum status rc = cmd_bench_peak(b, &peak, e);
    if (!rc) rc = bench_vit_open(&v, &o, e);
    if (rc) cmd_bench_left_out(b, "the tower", &rc, e);
    for (size_t i = 0; i < sizeof grids / sizeof *grids && !rc && v; i++)
        rc = picture(b, v, grids[i], peak, e);
    bench_vit_close(v);
    mem_close(&mem);
    return rc;
}
