/* `backup`: a copy of a queue, also while it is worked. */
#include "jobs/cmd_queue.h"

#include "jobs/backup.h"

#include <stdio.h>

int cmd_backup(const struct cmd_options *o)
{
    struct err e;
    struct cmd_queue q;
    if (!o->db) return cmd_usage("backup: needs --db FILE");
    if (!o->output) return cmd_usage("backup: needs --output FILE");
    enum status rc = cmd_queue_open(&q, o->db, true, LOCK_NONE, &e);
    if (rc) return cmd_fail(&e);
    rc = backup_queue(q.db, o->output, &e);
    cmd_queue_close(&q);
    if (!rc && !o->quiet) fprintf(stderr, "%s is a whole copy of %s\n", o->output, o->db);
    return rc ? cmd_fail(&e) : EXIT_DONE;
}
