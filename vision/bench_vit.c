/* Times the embedding of patches once and the blocks of the tower one after another; every block
 * does the same work, so a few stand for all when all would take too long. */
#include "vision/bench_vit.h"

#include "src/bench_clock.h"
#include "src/os.h"
#include "vision/vision.h"
#include "vision/vit.h"

#define MOST_RUNS 9

struct bench_vit {
    struct mem *mem;
    struct compute compute;
    struct vision_processor processor;
    struct vit vit;
    unsigned layers;
};

enum status bench_vit_open(struct bench_vit **out, const struct bench_vit_opts *o, struct err *e)
{
    *out = NULL;
    struct bench_vit *b;
    struct vit_config cfg;
    struct safetensors *store = NULL;
    enum status rc = mem_alloc(o->mem, &b, sizeof *b, "vision", e);
    if (rc) return rc;
    b->mem = o->mem;
    b->compute = o->compute;
    rc = vision_processor_load(&b->processor, o->model_dir, e);
    if (!rc) rc = settings_vit(&cfg, o->model_dir, e);
    if (!rc) rc = safetensors_open(&store, o->model_dir, false, e);
    struct tensors t = {.mem = o->mem, .store = store};
    if (!rc) rc = vit_open(&b->vit, &cfg, &t, e);
    safetensors_close(store);
    b->layers = b->vit.cfg.layers;
    if (rc)
        bench_vit_close(b);
    else
        *out = b;
    return rc;
}

void bench_vit_close(struct bench_vit *b)
{
    if (!b) return;
    if (b->layers) b->vit.cfg.layers = b->layers;
    vit_close(&b->vit);
    mem_free(b->mem, b);
}

static double encode(struct vit_run *r)
{
    double since = os_now();
    vit_encode(r);
    return os_now() - since;
}

/* One block, then as many as there is time for, then again. */
static void measure(struct bench_vit *b, struct vit_run *r, double seconds,
                    struct bench_vit_speed *out)
{
    double begin = os_now(), took[MOST_RUNS];
    vit_embed(r);
    double embed = os_now() - begin;
    b->vit.cfg.layers = 1;
    double block = encode(r);
    size_t fit = block > 0 ? (size_t)(seconds / block) : b->layers;
    b->vit.cfg.layers = out->blocks = fit < 1 ? 1 : fit < b->layers ? (unsigned)fit : b->layers;
    size_t n = 0;
    do took[n++] = encode(r) / out->blocks;
    while (n < MOST_RUNS && os_now() - begin < seconds);
    b->vit.cfg.layers = b->layers;
    out->seconds = embed + bench_clock_median(took, n) * b->layers;
}

enum status bench_vit_picture(struct bench_vit *b, unsigned grid_w, unsigned grid_h, double seconds,
                              struct bench_vit_speed *out, struct err *e)
{
    const struct vit_config *c = &b->vit.cfg;
    struct picture_info info = {.resized_w = grid_w * c->patch, .resized_h = grid_h * c->patch};
    info.grid_w = grid_w;
    info.grid_h = grid_h;
    uint64_t n = (uint64_t)grid_w * grid_h, side = grid_w > grid_h ? grid_w : grid_h;
    *out = (struct bench_vit_speed){.flop = vit_flop(c, (double)n, b->layers), .of = b->layers};
    out->bytes = vit_bytes(c, n, side, pool_threads(b->compute.pool));
    uint8_t *rgb;
    struct patches patches;
    struct vit_run run;
    enum status rc =
        mem_array(b->mem, &rgb, (size_t)info.resized_w * info.resized_h, 3, "picture", e);
    if (rc) return rc;
    for (size_t i = 0; i < (size_t)info.resized_w * info.resized_h * 3; i++)
        rgb[i] = (uint8_t)(i * 2654435761u >> 24);
    patch_init(&patches, &b->processor, rgb, &info);
    rc = vit_begin(&run, &b->vit, &b->compute, &patches, e);
    if (!rc) {
        measure(b, &run, seconds, out);
        vit_end(&run);
    }
    mem_free(b->mem, rgb);
    return rc;
}
