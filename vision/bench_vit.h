/* How fast a model's vision tower is, on a made-up picture. */
#ifndef NS_BENCH_VIT_H
#define NS_BENCH_VIT_H

#include "src/mem.h"
#include "src/quant.h"

struct bench_vit;

struct bench_vit_opts {
    const char *model_dir;
    struct mem *mem;
    struct compute compute;
};
/* Loads the tower. E_MODEL as for vision_open. */
enum status bench_vit_open(struct bench_vit **out, const struct bench_vit_opts *o, struct err *e);
void bench_vit_close(struct bench_vit *b);

struct bench_vit_speed {
    double seconds;      /* of one picture */
    double flop;         /* of its products and attention */
    uint64_t bytes;      /* that it takes while it is encoded */
    unsigned blocks, of; /* timed, and that the tower has: the rest is taken to be alike */
};
/* A picture of grid_w x grid_h patches; about `seconds`, and all blocks only if they take no more
 * than that. E_BUDGET when it does not fit into the memory. */
enum status bench_vit_picture(struct bench_vit *b, unsigned grid_w, unsigned grid_h, double seconds,
                              struct bench_vit_speed *out, struct err *e);

#endif
