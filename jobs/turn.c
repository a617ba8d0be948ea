/* The walk through the places, and who was passed over. Each job is counted once in a night. */
#include "jobs/turn.h"

/* The jobs of a priority with ids in [from, to). */
static enum status count(struct db *db, int64_t priority, int64_t from, int64_t to, int64_t *n,
                         struct err *e)
{
    return db_int(db, n, 0, e, "SELECT count(*) FROM jobs WHERE id>=?2 AND id<?3 AND priority=?1",
                  "iii", priority, from, to);
}

/* Begins with a priority: where work was interrupted, else at the oldest job. */
static enum status begin(struct db *db, struct turn *t, struct queue_worker *w, int64_t priority,
                         struct err *e)
{
    t->known = true;
    t->priority = w->priority = priority;
    t->oldest = t->before = 0;
    enum status rc =
        db_int(db, &t->taken, 0, e,
               "SELECT count(*) FROM jobs WHERE priority=?1 AND state<>'pending'", "i", priority);
    if (!rc)
        rc = db_int(db, &w->place, -1, e,
                    "SELECT min(j.place) FROM partial p JOIN jobs j ON j.id=p.job_id "
                    "WHERE j.state='pending' AND j.priority=?1",
                    "i", priority);
    return rc;
}

enum status turn_next(struct db *db, struct turn *t, struct queue_worker *w, struct err *e)
{
    sqlite3_stmt *s;
    w->input_order = t->input;
    if (t->input) return OK;
    enum status rc = db_stmt(db, &s,
                             "SELECT priority, id, place FROM jobs INDEXED BY jobs_next_input "
                             "WHERE state='pending' ORDER BY priority DESC, id LIMIT 1",
                             e);
    bool row = false;
    if (!rc) rc = db_step(db, s, &row, e);
    if (rc || !row) return rc;
    int64_t priority = sqlite3_column_int64(s, 0), oldest = sqlite3_column_int64(s, 1);
    int64_t place = sqlite3_column_int64(s, 2), n = 0;
    sqlite3_reset(s);
    if (!t->known || t->priority != priority) rc = begin(db, t, w, priority, e);
    if (!rc && oldest >= t->oldest)
        rc = count(db, priority, t->oldest, oldest, &n, e);
    else if (!rc) {
        rc = count(db, priority, oldest, t->oldest, &n, e);
        n = -n;
    }
    if (rc) return rc;
    t->before += n;
    t->oldest = oldest;
    int64_t passed = t->taken - t->before;
    if (w->place < 0 || passed > t->limit) w->place = place;
    w->input_order = passed > 2 * t->limit;
    return OK;
}

void turn_claimed(struct turn *t, struct queue_worker *w, const struct queue_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (jobs[i].priority != t->priority) continue;
        t->taken++;
        w->place = jobs[i].place;
    }
}
