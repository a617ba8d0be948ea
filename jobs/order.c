/* The window of waiting jobs, and the cost of sweeps. */
#include "jobs/order.h"

#include "jobs/place.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KIND_BYTES  256 /* of a text that tell its kind */
#define LONG_TEXT   256 /* bytes of text that are worth sharing */
#define FOLLOW      0.1 /* how fast the means below follow */
#define IDLE_FACTOR 2.0 /* see batch() */

struct order {
    struct order_opts o;
    struct flight **waiting; /* [o.window], in the order of their claims */
    size_t n;
    uint64_t picked, admitted;
    /* Bytes read by sweeps with and without prompts; below 0: none yet. Ended sequences a sweep. */
    double with, without, ended;
    struct engine_stats last;
};

enum status order_open(struct order **out, const struct order_opts *o, struct err *e)
{
    struct order *r = *out = calloc(1, sizeof *r);
    if (r) r->waiting = calloc(o->window, sizeof(struct flight *));
    if (!r || !r->waiting) {
        order_close(r);
        *out = NULL;
        return err_set(e, E_NOMEM, "order of jobs: no memory");
    }
    r->o = *o;
    r->with = r->without = r->ended = -1;
    return OK;
}

void order_close(struct order *o)
{
    if (!o) return;
    free(o->waiting);
    free(o);
}

size_t order_waiting(const struct order *o)
{
    return o->n;
}

size_t order_room(const struct order *o)
{
    return o->o.window - o->n;
}

/* The text of the last user message that has one: what is asked. */
static const struct chat_part *question(const struct job *j)
{
    for (size_t m = j->n_messages; m-- > 0;)
        for (size_t k = 0; j->messages[m].role == CHAT_USER && k < j->messages[m].n_parts; k++) {
            const struct chat_part *p = &j->messages[m].parts[k];
            if (!p->image && p->len) return p;
        }
    return NULL;
}

/* Of a job that cannot be read nothing is known; preparing it will tell. */
static unsigned kind_of(const struct order *o, const struct flight *f)
{
    struct job j;
    struct ids ids = {0};
    struct err why;
    if (!job_from_spec(&j, f->job.spec, f->job.spec_len, &why)) {
        const struct chat_part *p = question(&j);
        size_t len = p && p->len < KIND_BYTES ? p->len : KIND_BYTES;
        while (p && len < p->len && ((unsigned char)p->text[len] & 0xc0) == 0x80) len--;
        if (p) tok_encode(o->o.tok, p->text, len, false, &ids, &why);
    }
    unsigned kind = affinity_kind(o->o.affinity, ids.at, ids.n, f->job.n_images > 0);
    ids_free(&ids);
    job_free(&j);
    return kind;
}

void order_wait(struct order *o, struct flight *f)
{
    f->where = FLIGHT_WAITING;
    f->turn = o->picked;
    f->kind = o->o.affinity && !o->o.input ? kind_of(o, f) : 0;
    o->waiting[o->n++] = f;
}

static bool under_way(const struct flight *f)
{
    return f->where != FLIGHT_FREE && f->where != FLIGHT_WAITING;
}

static bool begin_alike(const struct queue_job *a, const struct queue_job *b)
{
    return (a->n_images || a->text_bytes >= LONG_TEXT) &&
           place_beginning(a->place) == place_beginning(b->place);
}

struct claim {
    int64_t priority;
    bool late, alike;
    double extra;
};

/* Does a go before b, which was claimed earlier? */
static bool before(const struct claim *a, const struct claim *b)
{
    if (a->priority != b->priority) return a->priority > b->priority;
    if (a->late != b->late) return a->late;
    if (a->late) return false;
    if (a->alike != b->alike) return a->alike;
    return a->extra < b->extra;
}

static size_t choose(const struct order *o, const struct flight *flights, size_t n)
{
    double extra[AFFINITY_KINDS] = {0};
    unsigned running[AFFINITY_KINDS] = {0};
    for (size_t i = 0; i < n; i++)
        if (under_way(&flights[i])) running[flights[i].kind]++;
    if (o->o.affinity) affinity_extra(o->o.affinity, running, extra);
    size_t best = 0;
    struct claim first = {0};
    for (size_t i = 0; i < o->n; i++) {
        const struct flight *f = o->waiting[i];
        struct claim c = {.priority = f->job.priority,
                          .late = o->picked - f->turn > ORDER_PASSED,
                          .extra = extra[f->kind]};
        for (size_t k = 0; k < n && !c.alike; k++)
            c.alike = under_way(&flights[k]) && begin_alike(&f->job, &flights[k].job);
        if (i && !before(&c, &first)) continue;
        first = c;
        best = i;
    }
    return best;
}

struct flight *order_next(struct order *o, const struct flight *flights, size_t n)
{
    if (o->n == 0) return NULL;
    size_t at = o->o.input ? 0 : choose(o, flights, n);
    struct flight *f = o->waiting[at];
    memmove(o->waiting + at, o->waiting + at + 1, (--o->n - at) * sizeof(struct flight *));
    o->picked++;
    return f;
}

/* How many jobs to admit at a time. Each admission costs K bytes more than a sweep without prompts;
 * places become free at the rate L a sweep and each idle one costs h a sweep; so sqrt(2 K L / h),
 * as for stock that is ordered in lots. h: a sweep with one row less reads less, but not in
 * proportion; half of a row's share stands for what it does not save. */
static size_t batch(const struct order *o)
{
    size_t most = (o->o.sequences + 1) / 2, n = most;
    if (o->with <= 0) return 1;
    if (o->without > 0) {
        double more = o->with - o->without, lost = o->without / (double)o->o.sequences;
        n = more > 0 ? (size_t)ceil(sqrt(2 * IDLE_FACTOR * more * o->ended / lost)) : 1;
    }
    /* More than fit into one sweep save nothing. */
    double rows = o->admitted ? (double)o->last.prefill_rows / (double)o->admitted : 1;
    size_t fit = rows > 0 ? (size_t)((double)o->o.prefill_rows / rows) : most;
    if (n > fit) n = fit;
    return n > most ? most : n < 1 ? 1 : n;
}

bool order_admit(const struct order *o, const struct order_now *now)
{
    if (o->o.input || !now->running) return true;
    if (!now->coming && now->ready <= now->free) return true;
    return (now->ready < now->free ? now->ready : now->free) >= batch(o);
}

void order_admitted(struct order *o)
{
    o->admitted++;
}

static void follow(double *mean, double x)
{
    *mean = *mean < 0 ? x : *mean + (x - *mean) * FOLLOW;
}

void order_swept(struct order *o, const struct engine_stats *s, size_t ended)
{
    double bytes = (double)(s->expert_bytes - o->last.expert_bytes) +
                   (double)(s->trunk_bytes - o->last.trunk_bytes);
    follow(s->prefill_rows > o->last.prefill_rows ? &o->with : &o->without, bytes);
    follow(&o->ended, (double)ended);
    o->last = *s;
}
