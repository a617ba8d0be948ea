/* A merge of sorted streams: each queue gives its lines in order, the least goes out.
 *
 * Numbers of inputs differ from queue to queue, so that each queue gets a table from its own to
 * those of the merge: inputs are numbered as they are met, queue by queue. That keeps every
 * queue's own order as long as all were given their inputs in one order, which is checked. */
#include "jobs/merge.h"

#include "jobs/export_line.h"
#include "src/os.h"

#include <stdlib.h>
#include <string.h>

#define MOST_INPUTS 100000

struct input {
    char *key; /* hash of the bytes, or path */
    int64_t items, found;
};

struct stream {
    struct db *db;
    int64_t *number; /* [n_numbers]: of the merge, by the queue's own */
    size_t n_numbers;
    struct export_lines at;
    bool more;
};

struct merge {
    struct input *inputs;
    size_t n_inputs;
    struct stream *streams;
    size_t n;
    struct merge_counts *out;
};

static enum status number_of(struct merge *m, const char *key, int64_t items, size_t *out,
                             struct err *e)
{
    for (size_t i = 0; i < m->n_inputs; i++)
        if (!strcmp(m->inputs[i].key, key)) {
            if (items > m->inputs[i].items) m->inputs[i].items = items;
            *out = i;
            return OK;
        }
    if (m->n_inputs == MOST_INPUTS)
        return err_set(e, E_USAGE, "merge: more than %d inputs", MOST_INPUTS);
    struct input *p = realloc(m->inputs, (m->n_inputs + 1) * sizeof *p);
    char *copy = strdup(key);
    if (p) m->inputs = p;
    if (!p || !copy) {
        free(copy);
        return err_set(e, E_NOMEM, "merge: no memory");
    }
    p[m->n_inputs] = (struct input){.key = copy, .items = items};
    *out = m->n_inputs++;
    return OK;
}

static enum status read_inputs(struct merge *m, struct stream *x, struct err *e)
{
    sqlite3_stmt *s;
    int64_t most = 0, last = -1;
    bool row = true;
    enum status rc = db_int(x->db, &most, 0, e, "SELECT max(id) FROM inputs", "");
    if (rc) return rc;
    if (most < 0 || most > MOST_INPUTS)
        return err_set(e, E_DB, "%s: input number %lld", db_path(x->db), (long long)most);
    x->n_numbers = (size_t)most + 1;
    x->number = calloc(x->n_numbers, sizeof *x->number);
    if (!x->number) return err_set(e, E_NOMEM, "merge: no memory");
    rc = db_stmt(x->db, &s,
                 "SELECT i.id, CASE WHEN i.kind='lines' THEN i.sha256 ELSE i.path END, CASE WHEN "
                 "i.kind='lines' THEN i.items ELSE 0 END, i.mine FROM inputs i WHERE i.id>0 "
                 "ORDER BY i.id",
                 e);
    while (!rc) {
        rc = db_step(x->db, s, &row, e);
        if (rc || !row) break;
        size_t number = 0;
        rc = number_of(m, (const char *)sqlite3_column_text(s, 1), sqlite3_column_int64(s, 2),
                       &number, e);
        if (!rc && (int64_t)number <= last)
            rc = err_set(e, E_USAGE, "%s was given its inputs in another order than the others",
                         db_path(x->db));
        if (rc) break;
        last = (int64_t)number;
        x->number[sqlite3_column_int64(s, 0)] = last;
        m->inputs[number].found += sqlite3_column_int64(s, 3);
    }
    if (row) sqlite3_reset(s);
    return rc;
}

static enum status advance(struct stream *x, struct err *e)
{
    enum status rc = export_line_next(&x->at, x->db, &x->more, e);
    if (rc || !x->more || (x->at.input >= 0 && (uint64_t)x->at.input < x->n_numbers)) return rc;
    return err_set(e, E_DB, "%s: a job of input %lld, the last one is %zu", db_path(x->db),
                   (long long)x->at.input, x->n_numbers - 1);
}

static int compare(const struct stream *a, const struct stream *b)
{
    int64_t i = a->number[a->at.input], k = b->number[b->at.input];
    if (i != k) return i < k ? -1 : 1;
    return a->at.line < b->at.line ? -1 : a->at.line > b->at.line;
}

/* The stream with the least line; among equal ones the first with an answer, else the first. */
static struct stream *least(struct merge *m)
{
    struct stream *best = NULL;
    for (size_t i = 0; i < m->n; i++) {
        struct stream *x = &m->streams[i];
        if (!x->more) continue;
        int c = best ? compare(x, best) : -1;
        if (c < 0 || (c == 0 && best->at.failed && !x->at.failed)) best = x;
    }
    return best;
}

static enum status step(struct merge *m, struct os_publish *p, struct stream *best, struct err *e)
{
    os_publish_write(p, best->at.text.data, best->at.text.len);
    *(best->at.failed ? &m->out->failures : &m->out->answers) += 1;
    enum status rc = OK;
    for (size_t i = 0; i < m->n && !rc; i++) {
        struct stream *x = &m->streams[i];
        if (x == best || !x->more || compare(x, best) != 0) continue;
        m->out->doubles++;
        m->inputs[x->number[x->at.input]].found--;
        rc = advance(x, e);
    }
    return rc ? rc : advance(best, e);
}

static enum status count_rest(struct merge *m, struct err *e)
{
    enum status rc = OK;
    for (size_t i = 0; i < m->n && !rc; i++) {
        int64_t n = 0;
        rc = db_int(m->streams[i].db, &n, 0, e,
                    "SELECT count(*) FROM jobs WHERE line>0 AND state NOT IN "
                    "('done','failed','cancelled')",
                    "");
        m->out->unfinished += (uint64_t)n;
    }
    for (size_t i = 0; i < m->n_inputs; i++)
        if (m->inputs[i].items > m->inputs[i].found)
            m->out->missing += (uint64_t)(m->inputs[i].items - m->inputs[i].found);
    return rc;
}

static void close_merge(struct merge *m)
{
    for (size_t i = 0; m->streams && i < m->n; i++) {
        free(m->streams[i].number);
        buf_free(&m->streams[i].at.text);
    }
    for (size_t i = 0; i < m->n_inputs; i++) free(m->inputs[i].key);
    free(m->inputs);
    free(m->streams);
}

enum status merge_queues(struct db *const *dbs, size_t n, const char *path,
                         struct merge_counts *out, struct err *e)
{
    struct merge m = {.n = n, .out = out};
    struct os_publish p;
    bool begun = false;
    *out = (struct merge_counts){0};
    m.streams = calloc(n, sizeof *m.streams);
    enum status rc = m.streams ? OK : err_set(e, E_NOMEM, "merge: no memory");
    for (size_t i = 0; i < n && !rc; i++) {
        m.streams[i].db = dbs[i];
        rc = read_inputs(&m, &m.streams[i], e);
        if (!rc) rc = advance(&m.streams[i], e);
    }
    if (!rc) rc = os_publish_begin(&p, path, e);
    begun = !rc;
    for (struct stream *best; !rc && (best = least(&m));) rc = step(&m, &p, best, e);
    if (!rc) rc = count_rest(&m, e);
    if (!rc)
        rc = os_publish_commit(&p, e);
    else if (begun)
        os_publish_abort(&p);
    close_merge(&m);
    return rc;
}
