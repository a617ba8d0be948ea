/* `export`: results as files, also while a run is under way. */
#include "jobs/cmd_queue.h"

int cmd_export(const struct cmd_options *o)
{
    struct err e;
    struct cmd_queue q;
    if (!o->db) return cmd_usage("export: needs --db FILE");
    if (!o->output && !o->errors_file && o->format != FORMAT_TXT)
        return cmd_usage("export: needs --output FILE");
    enum status rc = cmd_check_names(o, o->db, &e);
    if (!rc) rc = cmd_queue_open(&q, o->db, true, LOCK_NONE, &e);
    if (!rc) {
        rc = cmd_check_inputs(q.db, o, &e);
        if (!rc) rc = cmd_write_results(q.db, o, &e);
        cmd_queue_close(&q);
    }
    return rc ? cmd_fail(&e) : EXIT_DONE;
}
