/* A model as commands use it: what it is, how memory is shared out for it, and the parts loaded.
 * cmd_model_begin reads small files only; cmd_model_plan reads headers; cmd_model_load loads. */
#ifndef NS_CMD_MODEL_H
#define NS_CMD_MODEL_H

#include "jobs/cmd.h"
#include "jobs/measure.h"
#include "src/engine.h"
#include "src/forecast.h"
#include "vision/vision.h"

struct cmd_model {
    const char *dir;
    char name[256]; /* of its folder */
    char sha256[JOB_SHA_CHARS];
    struct config config;
    bool has_vision;
    struct vision_processor processor;
    struct vision_limits limits;
    struct tok *tok;
    struct constrain_vocab *vocab;

    const struct kern *kern;
    unsigned threads;
    struct plan_model sizes;
    struct plan_speed speed; /* cmd_speed.h; all zero: not measured */
    struct plan plan;
    struct plan_mix mix;
    struct forecast_night night;          /* what the plan is expected to do */
    double planned_bytes_s, disk_bytes_s; /* of the disk, planned with and had by a run's own
                                             reads; 0: not known */
    struct forecast_night seen;           /* `night` at that speed */
    uint64_t store_bytes;                 /* for encoded pictures that wait */
    uint64_t picture_bytes;               /* to read and decode one picture */
    uint64_t short_of;      /* rows of the longest job when memory has no room for it; else 0 */
    uint64_t short_picture; /* bytes left to decode a picture, when some needs more; else 0 */

    bool no_read_ahead; /* set before cmd_model_load: counts that repeat exactly */
    route_fn route;     /* the same: told what routers choose; or NULL */

    struct mem mem;
    bool mem_open;
    struct pool *pool, *vision_pool;
    struct engine *engine;
    struct sandbox *sandbox;
    struct vision *vision;
};

/* What of pictures is accepted, by the options. */
void cmd_limits(struct vision_limits *l, const struct cmd_options *o);

enum status cmd_model_begin(struct cmd_model *m, const struct cmd_options *o, struct err *e);
/* need: of the queue; with images 0 the vision tower is left out. NULL: nothing is known, the
 * defaults. */
enum status cmd_model_plan(struct cmd_model *m, const struct cmd_options *o,
                           const struct measure *need, struct err *e);
/* images: load the vision tower too. */
enum status cmd_model_load(struct cmd_model *m, const struct cmd_options *o, struct err *e);
void cmd_model_close(struct cmd_model *m);

/* Rows of a picture of unknown size, at most. */
unsigned cmd_model_image_rows(const struct cmd_model *m);

/* --ram, or what this machine or its cgroup has less an eighth. */
uint64_t cmd_ram(const struct cmd_options *o);
/* The shares of a plan, one a line. */
enum status cmd_print_plan(const struct cmd_model *m, bool json, struct err *e);

#endif
