/* `verify`: is a queue whole, and are its exports what they would be now? `merge`: shards back
 * together. */
#include "jobs/cmd_queue.h"

#include "jobs/export_line.h"
#include "jobs/merge.h"
#include "jobs/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One finding a line; user: the options. */
static void tell(void *user, const char *what)
{
    const struct cmd_options *o = user;
    struct buf b = {0};
    if (o->json && !export_quote(&b, what, strlen(what), NULL))
        printf("{\"finding\":%s}\n", b.data);
    else
        printf("%s\n", what);
    buf_free(&b);
}

/* Says of an export whether it is what would be written now. */
static enum status check_export(struct db *db, const struct cmd_options *o, const char *path,
                                uint64_t *n, struct err *e)
{
    struct buf what = {0};
    uint64_t line;
    enum status rc = verify_export(db, path, &line, e);
    if (rc || !line) return rc;
    rc = buf_addf(&what, e, "%s is not what an export writes now, from line %llu on", path,
                  (unsigned long long)line);
    if (!rc) tell((void *)(uintptr_t)o, what.data);
    buf_free(&what);
    ++*n;
    return rc;
}

int cmd_verify(const struct cmd_options *o)
{
    struct err e;
    struct cmd_queue q;
    uint64_t n = 0;
    if (!o->db) return cmd_usage("verify: needs --db FILE");
    enum status rc = cmd_queue_open(&q, o->db, true, LOCK_NONE, &e);
    if (rc) return cmd_fail(&e);
    rc = verify_queue(q.db, tell, (void *)(uintptr_t)o, &n, &e);
    for (size_t i = 0; i < o->operands.n && !rc; i++)
        rc = check_export(q.db, o, o->operands.at[i], &n, &e);
    cmd_queue_close(&q);
    if (rc) return cmd_fail(&e);
    if (o->json)
        printf("{\"findings\":%llu}\n", (unsigned long long)n);
    else if (!n && !o->quiet)
        printf("whole\n");
    return n ? EXIT_UNUSABLE : EXIT_DONE;
}

static void tell_merge(const struct merge_counts *c)
{
    fprintf(stderr, "%llu answers, %llu failures", (unsigned long long)c->answers,
            (unsigned long long)c->failures);
    if (c->doubles) fprintf(stderr, ", %llu in several queues", (unsigned long long)c->doubles);
    fprintf(stderr, "; %llu not finished, %llu of the inputs' jobs in no queue\n",
            (unsigned long long)c->unfinished, (unsigned long long)c->missing);
}

int cmd_merge(const struct cmd_options *o)
{
    struct err e;
    struct merge_counts c = {0};
    size_t n = o->operands.n;
    if (!o->output) return cmd_usage("merge: needs --output FILE");
    struct cmd_queue *q = calloc(n, sizeof *q);
    struct db **dbs = calloc(n, sizeof *dbs);
    enum status rc = q && dbs ? OK : err_set(&e, E_NOMEM, "merge: no memory");
    if (!rc) rc = cmd_check_names(o, NULL, &e);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = cmd_queue_open(&q[i], o->operands.at[i], true, LOCK_NONE, &e);
        dbs[i] = q[i].db;
        if (!rc) rc = cmd_check_inputs(dbs[i], o, &e);
    }
    if (!rc) rc = merge_queues(dbs, n, o->output, &c, &e);
    for (size_t i = 0; i < n && q; i++)
        if (q[i].db) cmd_queue_close(&q[i]);
    free(q);
    free(dbs);
    if (rc) return cmd_fail(&e);
    if (o->json)
        printf("{\"answers\":%llu,\"failures\":%llu,\"doubles\":%llu,\"unfinished\":%llu,"
               "\"missing\":%llu}\n",
               (unsigned long long)c.answers, (unsigned long long)c.failures,
               (unsigned long long)c.doubles, (unsigned long long)c.unfinished,
               (unsigned long long)c.missing);
    else if (!o->quiet)
        tell_merge(&c);
    if (c.unfinished || c.missing) return EXIT_LIMIT;
    return c.failures ? EXIT_SOME_FAILED : EXIT_DONE;
}
