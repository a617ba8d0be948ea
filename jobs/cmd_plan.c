/* `plan`: how memory would be shared out, before the night begins: for the jobs named, else for
 * jobs such as many have, and it says which. */
#include "jobs/cmd_queue.h"
#include "jobs/cmd_speed.h"
#include "vision/patch.h"

#include <stdio.h>

#define WIDTH       1920 /* of a picture, where none is known */
#define HEIGHT      1080
#define PIXEL_BYTES 8 /* to decode and resize */

static void assume(const struct cmd_model *m, const struct cmd_options *o, struct measure *need)
{
    struct picture_info info = {.width = WIDTH, .height = HEIGHT};
    *need = (struct measure){.images = 1, .picture = (uint64_t)WIDTH * HEIGHT * PIXEL_BYTES};
    patch_plan(&m->processor, o->max_patches, &info);
    need->picture_rows = o->max_patches ? cmd_model_image_rows(m) : info.rows;
}

static void tell(const struct cmd_model *m, const struct cmd_options *o)
{
    printf("assumed: many jobs, prompts of 512 rows, answers of 256 tokens");
    if (m->has_vision && o->max_patches)
        printf(", pictures of up to %u patches", o->max_patches);
    else if (m->has_vision)
        printf(", pictures of up to %d x %d (or --max-patches N)", WIDTH, HEIGHT);
    printf("; run plans from its jobs, and so does plan JOBS.jsonl\n");
}

int cmd_plan(const struct cmd_options *o)
{
    struct err e;
    struct cmd_model m;
    struct measure need;
    enum status rc = cmd_model_begin(&m, o, &e);
    if (rc) return cmd_fail(&e);
    assume(&m, o, &need);
    if (o->operands.n) rc = cmd_measure_first(o, &m, &need, &e);
    if (!rc) rc = cmd_speed_take(&m, o, NULL, &e);
    if (!rc) rc = cmd_model_plan(&m, o, &need, &e);
    if (!rc) rc = cmd_print_plan(&m, o->json, &e);
    if (!rc && !o->json && !o->operands.n) tell(&m, o);
    cmd_model_close(&m);
    return rc ? cmd_fail(&e) : EXIT_DONE;
}
