/* `plan`: how memory would be shared out, before the night begins. */
#include "jobs/cmd_speed.h"

int cmd_plan(const struct cmd_options *o)
{
    struct err e;
    struct cmd_model m;
    enum status rc = cmd_model_begin(&m, o, &e);
    if (rc) return cmd_fail(&e);
    rc = cmd_speed_take(&m, o, NULL, &e);
    if (!rc) rc = cmd_model_plan(&m, o, NULL, &e);
    if (!rc) rc = cmd_print_plan(&m, o->json, &e);
    cmd_model_close(&m);
    return rc ? cmd_fail(&e) : EXIT_DONE;
}
