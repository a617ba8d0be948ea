/* `add` puts jobs into a queue, `work` works one; several workers may share it. */
#include "jobs/cmd_queue.h"

int cmd_add(const struct cmd_options *o)
{
    struct err e;
    struct cmd_queue q;
    struct import_counts c;
    if (!o->db) return cmd_usage("add: needs --db FILE");
    cmd_catch_signals();
    enum status rc = o->strict || o->dry_run ? cmd_look_first(o, NULL, o->db, &e) : OK;
    if (!rc && !o->dry_run) {
        rc = cmd_queue_open(&q, o->db, false, LOCK_NONE, &e);
        if (rc) return cmd_fail(&e);
        rc = cmd_import(q.db, o, NULL, &c, &e);
        if (!rc) cmd_tell_import(o, &c);
        cmd_queue_close(&q);
    }
    if (rc == E_STOPPED) return cmd_stop_exit();
    return rc ? cmd_fail(&e) : EXIT_DONE;
}

int cmd_work(const struct cmd_options *o)
{
    struct err e;
    struct cmd_queue q = {.lock = -1};
    struct cmd_model m;
    int code = EXIT_DONE;
    if (!o->db) return cmd_usage("work: needs --db FILE");
    cmd_catch_signals();
    enum status rc = cmd_model_begin(&m, o, &e);
    if (rc) return cmd_fail(&e);
    rc = cmd_queue_open(&q, o->db, true, LOCK_SHARED, &e);
    if (!rc) rc = cmd_night(&q, o, &m, &code, &e);
    cmd_queue_close(&q);
    cmd_model_close(&m);
    return cmd_end(rc, &e, code);
}
