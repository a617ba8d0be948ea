/* Speeds for the plan: measured in seconds when a queue meets a machine for the first time, then
 * kept in the queue file and corrected by what its runs showed. */
#ifndef NS_CMD_SPEED_H
#define NS_CMD_SPEED_H

#include "jobs/cmd_model.h"
#include "jobs/db.h"

/* Fills m->speed, from db where it is kept there. db NULL: measured, kept nowhere. */
enum status cmd_speed_take(struct cmd_model *m, const struct cmd_options *o, struct db *db,
                           struct err *e);

/* What a run did, for the correction. */
struct cmd_speed_run {
    const struct engine_stats *engine;
    double seconds;
    uint64_t done; /* jobs */
};
enum status cmd_speed_learn(struct cmd_model *m, const struct cmd_options *o, struct db *db,
                            const struct cmd_speed_run *run, struct err *e);

#endif
