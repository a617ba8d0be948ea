/* The face: probe, load, encode. Decoding comes first and gives its memory back before the tower
 * takes its own, so the two figures do not add up. */
#include "vision/vision.h"

#include "src/os.h"
#include "vision/patch.h"
#include "vision/picture.h"
#include "vision/project.h"
#include "vision/sandbox.h"
#include "vision/vit.h"

#include <pthread.h>
#include <stdlib.h>

#define OVERHEAD     512
#define SURE_THREADS 64

enum stage { IDLE, DECODING, ENCODING };

struct vision {
    struct mem *mem;
    struct compute compute;
    struct vision_limits limits;
    struct sandbox *sandbox;
    struct vision_processor processor;
    struct vit vit;
    struct project project;
    pthread_mutex_t clock; /* guards all below */
    enum stage stage;
    double since, spent[3]; /* seconds: of the stage's beginning; in each before */
};

enum status vision_probe(const struct vision_processor *p, const struct vision_limits *l,
                         const void *bytes, size_t len, struct picture_info *out, struct err *e)
{
    struct picture_job j = {p, l, bytes, len};
    return picture_probe(&j, out, e);
}

enum status vision_sandbox_open(struct sandbox **out, struct err *e)
{
    return sandbox_open(out, picture_decode, e);
}

void vision_sandbox_close(struct sandbox *s)
{
    sandbox_close(s);
}

bool vision_present(const char *dir)
{
    return settings_has_vision(dir);
}

/* Tower and projector of dir; with t->mem NULL only checked and counted. */
static enum status load(const char *dir, struct tensors *t, struct vit *v, struct project *p,
                        struct vit_config *cfg, struct err *e)
{
    struct safetensors *store = NULL;
    enum status rc = settings_vit(cfg, dir, e);
    if (!rc) rc = safetensors_open(&store, dir, false, e);
    t->store = store;
    if (!rc) rc = vit_open(v, cfg, t, e);
    if (!rc) rc = project_open(p, cfg, t, e);
    safetensors_close(store);
    if (rc) err_wrap(e, "vision of %s", dir);
    return rc;
}

enum status vision_open(struct vision **out, const char *dir, const struct vision_opts *o,
                        struct err *e)
{
    *out = NULL;
    struct vision *v;
    enum status rc = mem_alloc(o->mem, &v, sizeof *v, "vision", e);
    if (rc) return rc;
    v->mem = o->mem;
    v->compute = o->compute;
    v->limits = o->limits;
    v->sandbox = o->sandbox;
    pthread_mutex_init(&v->clock, NULL);
    struct tensors t = {.mem = o->mem};
    struct vit_config cfg;
    rc = vision_processor_load(&v->processor, dir, e);
    if (!rc) rc = load(dir, &t, &v->vit, &v->project, &cfg, e);
    if (!rc && (cfg.patch != v->processor.patch || cfg.merge != v->processor.merge))
        rc = err_set(e, E_MODEL,
                     "%s: patch and merge are %u and %u in config.json, %u and %u in "
                     "preprocessor_config.json",
                     dir, cfg.patch, cfg.merge, v->processor.patch, v->processor.merge);
    if (rc) {
        vision_close(v);
        return rc;
    }
    *out = v;
    return OK;
}

void vision_close(struct vision *v)
{
    if (!v) return;
    vit_close(&v->vit);
    project_close(&v->project);
    pthread_mutex_destroy(&v->clock);
    mem_free(v->mem, v);
}

unsigned vision_width(const struct vision *v)
{
    return v->vit.cfg.out;
}

const struct vision_processor *vision_processor(const struct vision *v)
{
    return &v->processor;
}

static uint64_t rows_bytes(const struct vit_config *c, uint64_t patches)
{
    return patches / (c->merge * c->merge) * c->out * sizeof(float) + OVERHEAD;
}

enum status vision_bytes(const char *dir, uint64_t patches, uint64_t *weights, uint64_t *scratch,
                         struct err *e)
{
    struct vit v;
    struct project p;
    struct vit_config c;
    *weights = sizeof(struct vision) + OVERHEAD;
    struct tensors t = {.bytes = weights};
    enum status rc = load(dir, &t, &v, &p, &c, e);
    if (rc) return rc;
    if (patches > (uint64_t)SETTINGS_MAX_SIDE * SETTINGS_MAX_SIDE)
        return err_set(e, E_USAGE, "a picture cannot have more than %d patches",
                       SETTINGS_MAX_SIDE * SETTINGS_MAX_SIDE);
    unsigned threads = os_cpus() > SURE_THREADS ? os_cpus() : SURE_THREADS;
    uint64_t side = patches < SETTINGS_MAX_SIDE ? patches : SETTINGS_MAX_SIDE;
    *scratch = vit_bytes(&c, patches, side, threads) + project_bytes(&c) + rows_bytes(&c, patches) +
               patches * c.patch * c.patch * 3 + OVERHEAD;
    return OK;
}

static void enter(struct vision *v, enum stage next)
{
    pthread_mutex_lock(&v->clock);
    double now = os_now();
    v->spent[v->stage] += now - v->since;
    v->stage = next;
    v->since = now;
    pthread_mutex_unlock(&v->clock);
}

void vision_times(struct vision *v, struct vision_times *out)
{
    pthread_mutex_lock(&v->clock);
    double more = os_now() - v->since;
    *out = (struct vision_times){v->spent[DECODING] + (v->stage == DECODING ? more : 0),
                                 v->spent[ENCODING] + (v->stage == ENCODING ? more : 0)};
    pthread_mutex_unlock(&v->clock);
}

enum status vision_flop(const char *dir, double patches, double *flop, struct err *e)
{
    struct vit v;
    struct project p;
    struct vit_config c;
    uint64_t bytes = 0;
    struct tensors t = {.bytes = &bytes};
    enum status rc = load(dir, &t, &v, &p, &c, e);
    *flop = rc ? 0 : vit_flop(&c, patches, c.layers);
    return rc;
}

/* Bytes to pixels. The memory it takes is set aside as a whole. */
static enum status decode(struct vision *v, const struct picture_job *j, struct picture_info *info,
                          uint8_t *rgb, struct err *e)
{
    enum status rc = mem_reserve(v->mem, info->decode_bytes, "decoding a picture", e);
    if (rc) err_wrap(e, "%s: %u x %u", info->format, info->width, info->height);
    if (rc) return rc;
    if (v->sandbox)
        rc = sandbox_decode(v->sandbox, j, info, rgb, e);
    else
        rc = picture_decode(j, info, rgb, e);
    mem_unreserve(v->mem, info->decode_bytes);
    return rc;
}

static enum status encode(struct vision *v, const uint8_t *rgb, const struct picture_info *info,
                          float **rows, struct err *e)
{
    struct patches patches;
    struct vit_run run;
    patch_init(&patches, &v->processor, rgb, info);
    enum status rc =
        mem_array(v->mem, rows, info->rows, sizeof(float) * v->vit.cfg.out, "picture rows", e);
    if (rc) return rc;
    rc = vit_begin(&run, &v->vit, &v->compute, &patches, e);
    if (!rc) {
        vit_embed(&run);
        vit_encode(&run);
        rc = project_apply(&v->project, &v->compute, run.x, info->grid_w, info->grid_h, *rows, e);
        vit_end(&run);
    }
    if (rc) {
        mem_free(v->mem, *rows);
        *rows = NULL;
    }
    return rc;
}

enum status vision_encode(struct vision *v, const void *bytes, size_t len,
                          struct picture_info *info, float **rows, struct err *e)
{
    struct picture_job j = {&v->processor, &v->limits, bytes, len};
    uint8_t *rgb = NULL;
    *rows = NULL;
    enter(v, DECODING);
    enum status rc = picture_probe(&j, info, e);
    if (!rc)
        rc = mem_array(v->mem, &rgb, (size_t)info->resized_w * info->resized_h, 3,
                       "resized picture", e);
    if (!rc) rc = decode(v, &j, info, rgb, e);
    enter(v, ENCODING);
    if (!rc) rc = encode(v, rgb, info, rows, e);
    enter(v, IDLE);
    mem_free(v->mem, rgb);
    return rc;
}
