/* The window of waiting jobs, and the cost of sweeps. */
#include "jobs/order.h"

#include "jobs/place.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KIND_BYTES 256 /* of a text that tell its kind */
#define LONG_TEXT  256 /* bytes of text, rows of a picture that are worth sharing */
#define LONG_IMAGE 64
#define GROUPS     6
#define FADE       0.97 /* of the sums below, from sweep to sweep */
#define WORTH      0.75 /* a sweep with prompts must cost so much more, to wait for company */
#define DRAFTS_PAY 0.15 /* accepted for each sequence past its prompt, in a sweep with prompts */
#define MOST_SAVED 0.75 /* of a sequence's share of a sweep, by leaving it out */
/* Experts that a job needs more than those under way, against the one whose turn it is: the guess
 * is rough, and long and short jobs mixed fill the sweeps better than those of one kind. Where
 * prompts wait for company, kinds that come together save most, and any promise will do. */
#define PROMISE 0.7

struct order {
    struct order_opts o;
    struct flight **waiting; /* [o.window], in the order of their claims */
    size_t n;
    uint64_t picked, admitted;
    double waited; /* what idle places cost since the last admission */
    /* Of sweeps without and with prompts: fading sums over x sequences, y bytes, tokens, sequences
     * past their prompts, drafts accepted of these. */
    struct sweeps {
        double n, x, y, xx, xy, tokens, decode, accepted;
    } plain, with;
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
    if (!r->o.passed) r->o.passed = ORDER_PASSED;
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

bool order_alike(const struct flight *a, const struct flight *b)
{
    return place_beginning(a->job.place) == place_beginning(b->job.place);
}

/* Is what it begins with long enough to be worth keeping at hand? */
static bool is_long(const struct flight *f)
{
    bool worth = f->job.text_bytes >= LONG_TEXT;
    for (size_t i = 0; i < f->job.n_images; i++) worth |= f->job.images[i].rows >= LONG_IMAGE;
    return worth;
}

struct claim {
    int64_t priority;
    bool late;
    unsigned crowd; /* jobs under way that begin alike */
    bool group;     /* they are few enough, and it is long */
    double extra;
};

/* Does a go before b, which was claimed earlier? */
static bool before(const struct claim *a, const struct claim *b)
{
    if (a->priority != b->priority) return a->priority > b->priority;
    if (a->late != b->late) return a->late;
    if (a->late) return false;
    if (a->group != b->group) return a->group;
    if (a->crowd != b->crowd) return a->crowd < b->crowd;
    return a->extra < b->extra;
}

static double prompts_cost(const struct order *o);

/* The one whose turn it is in input order. */
static const struct flight *oldest(const struct order *o)
{
    const struct flight *f = o->waiting[0];
    for (size_t i = 1; i < o->n; i++)
        if (o->waiting[i]->job.priority > f->job.priority) f = o->waiting[i];
    return f;
}

/* Different beginnings of long jobs that are under way. */
static size_t groups_of(const struct flight *flights, size_t n)
{
    size_t groups = 0;
    for (size_t i = 0, k; i < n; i++) {
        if (!under_way(&flights[i]) || !is_long(&flights[i])) continue;
        for (k = 0; k < i; k++)
            if (under_way(&flights[k]) && order_alike(&flights[k], &flights[i])) break;
        groups += k == i;
    }
    return groups;
}

static size_t choose(const struct order *o, const struct flight *flights, size_t n)
{
    double extra[AFFINITY_KINDS] = {0};
    unsigned running[AFFINITY_KINDS] = {0};
    for (size_t i = 0; i < n; i++)
        if (under_way(&flights[i])) running[flights[i].kind]++;
    if (o->o.affinity) affinity_extra(o->o.affinity, running, extra);
    double usual = extra[oldest(o)->kind];
    double promise = prompts_cost(o) > 0 ? usual : usual * PROMISE;
    for (size_t k = 0; k < AFFINITY_KINDS; k++)
        if (extra[k] > promise) extra[k] = usual;
    size_t best = 0, groups = groups_of(flights, n), most = o->o.sequences * 3 / 4;
    if (most > GROUPS) most = GROUPS;
    struct claim first = {0};
    for (size_t i = 0; i < o->n; i++) {
        const struct flight *f = o->waiting[i];
        struct claim c = {.priority = f->job.priority,
                          .late = o->picked - f->turn > o->o.passed,
                          .extra = extra[f->kind]};
        for (size_t k = 0; k < n; k++)
            c.crowd += under_way(&flights[k]) && order_alike(f, &flights[k]);
        c.group = is_long(f) && (c.crowd || groups < most);
        if (!c.group && (is_long(f))) c.crowd = 0;
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

size_t order_cuts(const struct flight *f, const struct flight *flights, size_t n_flights,
                  size_t *cuts)
{
    struct share_rows mine = {f->ready.row_hash, f->ready.prompt.ids.n};
    size_t n = 0;
    for (size_t i = 0; i < n_flights; i++) {
        const struct flight *other = &flights[i];
        struct share_rows theirs = {other->ready.row_hash, other->ready.prompt.ids.n};
        if (other->where == FLIGHT_WAITING || other->where == FLIGHT_AHEAD) {
            if (!f->ready.n_images || !order_alike(f, other)) continue;
            theirs.hash = mine.hash;
            theirs.n = f->ready.images[0].first + f->ready.images[0].n;
        }
        if (other->where != FLIGHT_FREE && other != f) n = share_cut(cuts, n, &mine, &theirs);
    }
    return share_thin(cuts, n);
}

/* What an idle place costs: what the tokens cost that it would have given, at the mean, less what
 * its rows would have read (the slope of bytes over sequences; half the share until that is known,
 * and the slope is taken for no more: what one more needs, the others need less). */
static double idle_cost(const struct order *o)
{
    const struct sweeps *p = &o->plain;
    double share = p->x > 0 ? p->y / p->x : 0, saved = share / 2;
    double spread = p->xx * p->n - p->x * p->x;
    if (spread > 0.01 * p->x * p->x) saved = (p->xy * p->n - p->x * p->y) / spread;
    if (saved > share * MOST_SAVED) saved = share * MOST_SAVED;
    return saved > 0 ? share - saved : share;
}

/* What a sweep with prompts costs that its tokens would not have cost without: where every expert
 * is read anyway, drafts are free and give more of them. Not above 0: prompts need no company. */
static double prompts_cost(const struct order *o)
{
    const struct sweeps *p = &o->plain, *w = &o->with;
    if (w->n <= 0) return 0;
    if (p->n <= 0) return w->y / w->n;
    double more = w->y / w->n - w->tokens / w->n * (p->tokens > 0 ? p->y / p->tokens : 0);
    return more > WORTH * p->y / p->n ? more : 0;
}

/* More than seven eighths of the places never wait, nor more prompts than fit into one sweep. */
static size_t most_idle(const struct order *o)
{
    size_t most = (o->o.sequences * 7 + 7) / 8;
    double rows = o->admitted ? (double)o->last.prefill_rows / (double)o->admitted : 0;
    size_t fit = rows > 0 ? (size_t)((double)o->o.prefill_rows / rows) : most;
    if (fit < most) most = fit;
    return most ? most : 1;
}

/* An admission costs what a sweep with prompts costs more than its tokens are worth; waiting costs
 * so much for each place that could be filled and each sweep. When the second has come up to the
 * first, it is time: whatever comes later, that is at most twice what the best choice would have
 * cost, and the best choice when places become free evenly. Where drafts give several tokens in
 * sweeps with prompts, where they cost nothing, such sweeps cannot come often enough. */
bool order_admit(struct order *o, const struct order_now *now)
{
    const struct sweeps *with = &o->with;
    bool drafts_pay = o->last.spec.drafted && /* few prove nothing */
                      with->accepted + 1 > DRAFTS_PAY * with->decode;
    size_t idle = now->ready < now->free ? now->ready : now->free;
    bool last = !now->coming && now->ready <= now->free;
    double more = prompts_cost(o);
    if (!o->o.input && now->running && !last && !drafts_pay && more > 0 && idle < most_idle(o) &&
        (o->plain.n <= 0 || o->waited < more)) {
        o->waited += (double)idle * idle_cost(o);
        return false;
    }
    o->waited = 0;
    return true;
}

void order_admitted(struct order *o)
{
    o->admitted++;
}

void order_swept(struct order *o, const struct engine_stats *s, size_t running)
{
    double x = (double)running, bytes = (double)(s->expert_bytes - o->last.expert_bytes) +
                                        (double)(s->trunk_bytes - o->last.trunk_bytes);
    struct sweeps *w = s->prefill_rows > o->last.prefill_rows ? &o->with : &o->plain;
    w->n = w->n * FADE + 1;
    w->x = w->x * FADE + x;
    w->y = w->y * FADE + bytes;
    w->xx = w->xx * FADE + x * x;
    w->xy = w->xy * FADE + x * bytes;
    w->tokens = w->tokens * FADE + (double)(s->tokens - o->last.tokens);
    w->decode = w->decode * FADE + (double)(s->decode_rows - o->last.decode_rows);
    w->accepted = w->accepted * FADE + (double)(s->spec.accepted - o->last.spec.accepted);
    o->last = *s;
}
