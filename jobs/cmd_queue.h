/* What commands on a queue file share: opening and locking it, working it, its results as files. */
#ifndef NS_CMD_QUEUE_H
#define NS_CMD_QUEUE_H

#include "jobs/cmd_model.h"
#include "jobs/db.h"
#include "jobs/import.h"

enum cmd_lock { LOCK_NONE, LOCK_SHARED, LOCK_ALONE };

struct cmd_queue {
    struct db *db;
    int lock; /* descriptor; -1: none */
    struct {
        const char *path;
        bool told;
        double before_stop_s;
    } wait; /* for other programs, the last one */
};

/* path: --db, which must outlive it. must_exist: do not make one. Warns on a network file system.
 * With a lock, SQLite's locks of other programs are waited for until a stop is wanted, without one
 * for a minute. */
enum status cmd_queue_open(struct cmd_queue *q, const char *path, bool must_exist,
                           enum cmd_lock lock, struct err *e);
void cmd_queue_close(struct cmd_queue *q);
/* Tests of crashes: NIGHTSHIFT_LEASE_MS, how long the leases of this process are; 0: as they are
 * for everybody. */
int64_t cmd_queue_lease_ms(void);

/* E_USAGE when an output is an operand, another output, the queue, or what SQLite and the lock keep
 * beside it. db: NULL for none. */
enum status cmd_check_names(const struct cmd_options *o, const char *db, struct err *e);
/* E_USAGE when an output is an input of the queue. */
enum status cmd_check_inputs(struct db *db, const struct cmd_options *o, struct err *e);
/* Can the outputs be written where they are to go? Leaves no trace. */
enum status cmd_check_outputs(const struct cmd_options *o, struct err *e);

/* Imports the operands; m: check pictures as this model takes them, or NULL. Tells of bad jobs on
 * standard error. */
enum status cmd_import(struct db *db, const struct cmd_options *o, const struct cmd_model *m,
                       struct import_counts *c, struct err *e);
/* One line about it on standard error. */
void cmd_tell_import(const struct cmd_options *o, const struct import_counts *c);
/* For --strict and --dry-run: what an import into `queue`, which need not be there, would do, tried
 * on a copy that is thrown away. E_INPUT with --strict when there is a bad job. */
enum status cmd_look_first(const struct cmd_options *o, const struct cmd_model *m,
                           const char *queue, struct err *e);

/* What the jobs of the operands are like. E_INPUT when none can run. */
enum status cmd_measure_first(const struct cmd_options *o, const struct cmd_model *m,
                              struct measure *need, struct err *e);

/* Works the queue until it is done or something ends it; m was begun, and is loaded when there is
 * something to do. Tells progress and a summary. *code: the exit code so far. */
enum status cmd_night(struct cmd_queue *q, const struct cmd_options *o, struct cmd_model *m,
                      int *code, struct err *e);

/* The results to o->output and o->errors_file, where given. */
enum status cmd_write_results(struct db *db, const struct cmd_options *o, struct err *e);

#endif
