/* The ring of finished outputs with an index of token pairs, the vote, and what drafts are worth.
 */
#include "src/spec.h"

#include <stdlib.h>
#include <string.h>

#define PAIR          2    /* tokens that the index looks up */
#define CONTEXT       8    /* prompt tokens kept before an output: its first tokens can be found */
#define MOST_MATCH    16   /* longer matches count the same */
#define MOST_PLACES   48   /* places that vote */
#define LOOK_BACK     4096 /* own tokens searched */
#define NONE          UINT32_MAX
#define LEN_BUCKETS   4
#define SHARE_BUCKETS 4
#define GIVEN         (LEN_BUCKETS * SHARE_BUCKETS) /* bucket of what the form gave */
#define BUCKETS       (GIVEN + 1)
#define FORGIVE       (1.0 / 16384)
#define DEFAULT_COST  0.25 /* of one more row, in units of what a token costs */
#define LEAST_COST    0.05
#define FORGET        0.002 /* of a known cost, for each sweep that tells none */
#define PRIOR         4     /* tokens: a kind of draft less tried counts as one of any kind */
#define LEAST_PRIOR   0.3   /* which is never taken to be worse: new kinds get their chance */
#define KEEP          0.97  /* of the sums, from sweep to sweep */
#define OWN_PRIOR     2     /* tokens: how much a sequence must show before it counts */

struct spec {
    struct mem *mem;
    size_t fixed;
    int32_t *ring;  /* [size]; -1 between outputs */
    uint32_t *prev; /* [size]: earlier place with the same hash of the pair that ends here */
    uint32_t *head; /* [table] */
    size_t size, table, at, used;
    struct bucket {
        double tried, right;
    } bucket[BUCKETS], all; /* all: of any kind */
    /* Of sweeps without and with prompts: decaying sums over x rows that were no drafts, d drafts,
     * y seconds and bytes. */
    struct cost {
        double n, x, d, xx, xd, dd, tokens, y[2], xy[2], dy[2];
    } cost[2];
    bool no_clock;
    const struct spec_text *live; /* [n_live], of the coming sweep */
    size_t n_live;
    double last[2]; /* what a draft was known to cost last */
    double least;   /* chance that makes up for a row of the coming sweep */
    struct spec_stats stats;
};

/* A place whose last tokens match: text[0..end), the candidate is text[end]. */
struct place {
    const int32_t *text;
    size_t end, limit;
    unsigned match;
};

struct places {
    struct place at[MOST_PLACES];
    size_t n;
};

enum status spec_open(struct spec **out, const struct spec_opts *o, struct err *e)
{
    *out = NULL;
    struct spec *s = calloc(1, sizeof *s);
    if (!s) return err_set(e, E_NOMEM, "drafts: no memory");
    s->mem = o->mem;
    s->fixed = o->fixed;
    s->no_clock = o->no_clock;
    s->last[0] = s->last[1] = s->least = DEFAULT_COST;
    s->size = o->ring_tokens < 64 ? 64 : o->ring_tokens;
    for (s->table = 64; s->table < s->size; s->table *= 2) {
    }
    enum status rc = mem_array(o->mem, &s->ring, s->size, sizeof *s->ring, "drafts", e);
    if (!rc) rc = mem_array(o->mem, &s->prev, s->size, sizeof *s->prev, "drafts", e);
    if (!rc) rc = mem_array(o->mem, &s->head, s->table, sizeof *s->head, "drafts", e);
    if (rc) {
        spec_close(s);
        return rc;
    }
    memset(s->head, 0xff, s->table * sizeof *s->head);
    s->all = (struct bucket){PRIOR, PRIOR / 2.0};
    *out = s;
    return OK;
}

void spec_close(struct spec *s)
{
    if (!s) return;
    mem_free(s->mem, s->ring);
    mem_free(s->mem, s->prev);
    mem_free(s->mem, s->head);
    free(s);
}

static size_t hash_pair(const struct spec *s, const int32_t *end)
{
    uint64_t h = (uint64_t)(uint32_t)end[-1] * 0x9e3779b97f4a7c15u ^
                 (uint64_t)(uint32_t)end[-2] * 0xc2b2ae3d27d4eb4fu;
    return (size_t)(h >> 20) & (s->table - 1);
}

static unsigned match_length(const int32_t *a, size_t a_end, const int32_t *b, size_t b_end)
{
    unsigned n = 0;
    while (n < MOST_MATCH && n < a_end && n < b_end && a[a_end - 1 - n] >= 0 &&
           a[a_end - 1 - n] == b[b_end - 1 - n])
        n++;
    return n;
}

static void add_place(struct places *p, const int32_t *text, size_t end, size_t limit,
                      unsigned match)
{
    if (p->n < MOST_PLACES && match >= PAIR)
        p->at[p->n++] = (struct place){text, end, limit, match};
}

/* With the tokens before it that let its first ones be found. */
static size_t output_begins(size_t n_prompt)
{
    return n_prompt > CONTEXT ? n_prompt - CONTEXT : 0;
}

static void search_own(const int32_t *known, size_t n, struct places *p)
{
    size_t low = n > LOOK_BACK ? n - LOOK_BACK : 0;
    for (size_t end = n - 1; end >= low + PAIR && p->n < MOST_PLACES / 3; end--)
        if (known[end - 1] == known[n - 1] && known[end - 2] == known[n - 2])
            add_place(p, known, end, n, match_length(known, end, known, n));
}

static void search_live(const struct spec *s, const int32_t *known, size_t n, struct places *p)
{
    for (size_t i = 0; i < s->n_live; i++) {
        const struct spec_text *t = &s->live[i];
        if (t->ids == known) continue;
        size_t low = output_begins(t->n_prompt);
        if (t->n > LOOK_BACK && low < t->n - LOOK_BACK) low = t->n - LOOK_BACK;
        for (size_t end = t->n - 1; end >= low + PAIR && p->n < MOST_PLACES * 2 / 3; end--)
            if (t->ids[end - 1] == known[n - 1] && t->ids[end - 2] == known[n - 2])
                add_place(p, t->ids, end, t->n, match_length(t->ids, end, known, n));
    }
}

/* A place overwritten since it was indexed no longer holds the pair, or is newer than its successor
 * in the chain: both end the walk. */
static void search_ring(const struct spec *s, const int32_t *known, size_t n, struct places *p)
{
    uint32_t at = s->head[hash_pair(s, known + n)];
    size_t age = 0;
    while (at != NONE && p->n < MOST_PLACES) {
        size_t here = (s->at + s->size - at) % s->size; /* tokens written since */
        if (here <= age) break; /* 0: the oldest place, which may be its own successor */
        age = here;
        size_t end = (size_t)at + 1;
        if (end < s->size)
            add_place(p, s->ring, end, s->size, match_length(s->ring, end, known, n));
        at = s->prev[at];
    }
}

static unsigned bucket_of(unsigned match, double share)
{
    unsigned len = match <= 2 ? 0 : match <= 4 ? 1 : match <= 8 ? 2 : 3;
    unsigned sure = share < 0.5 ? 0 : share < 0.75 ? 1 : share < 0.95 ? 2 : 3;
    return len * SHARE_BUCKETS + sure;
}

/* The next token by weighted vote of all places, -1 when none has any. *share: of the votes;
 * *match: the longest. */
static int32_t vote(const struct places *p, size_t step, double *share, unsigned *match)
{
    double total = 0, best_weight = 0;
    int32_t best = -1;
    *match = 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct place *a = &p->at[i];
        if (a->end + step >= a->limit || a->text[a->end + step] < 0) continue;
        int32_t id = a->text[a->end + step];
        double weight = 0;
        for (size_t j = 0; j < p->n; j++) {
            const struct place *b = &p->at[j];
            if (b->end + step < b->limit && b->text[b->end + step] == id)
                weight += b->match * b->match;
        }
        total += a->match * a->match;
        if (a->match > *match) *match = a->match;
        if (weight > best_weight) {
            best_weight = weight;
            best = id;
        }
    }
    *share = total > 0 ? best_weight / total : 0;
    return best;
}

static void keep_agreeing(struct places *p, size_t step, int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
        struct place a = p->at[i];
        if (a.end + step < a.limit && a.text[a.end + step] == id) p->at[n++] = a;
    }
    p->n = n;
}

/* What one more draft adds to y, with the other rows as they are: a least squares fit of both.
 * Below 0: not known. */
static double slope(const struct cost *c, int k)
{
    double xx = c->xx * c->n - c->x * c->x, dd = c->dd * c->n - c->d * c->d;
    double xd = c->xd * c->n - c->x * c->d, det = xx * dd - xd * xd;
    double xy = c->xy[k] * c->n - c->x * c->y[k], dy = c->dy[k] * c->n - c->d * c->y[k];
    if (c->n < 4 || dd < 1e-3 * c->n * c->n) return -1;
    return det > 1e-3 * xx * dd ? (dy * xx - xy * xd) / det : dy / dd;
}

/* What one more draft costs, as a share of what a token costs without prompts. Below 0: not known.
 */
static double row_cost(const struct spec *s, bool prompts)
{
    const struct cost *c = &s->cost[prompts], *plain = &s->cost[0];
    double most = 0;
    if (plain->n < 4) plain = c;
    for (int k = s->no_clock; k < 2; k++) {
        double by = slope(c, k);
        if (plain->tokens <= 0 || (by <= 0 && !prompts)) return -1;
        if (plain->y[k] > 0 && by * plain->tokens > most * plain->y[k])
            most = by * plain->tokens / plain->y[k];
    }
    return most < LEAST_COST ? LEAST_COST : most > 1 ? 1 : most;
}

void spec_begin(struct spec *s, bool prompts, const struct spec_text *live, size_t n)
{
    s->live = live;
    s->n_live = n;
    double cost = row_cost(s, prompts), *last = &s->last[prompts];
    *last = cost < 0 ? *last + (DEFAULT_COST - *last) * FORGET : cost;
    s->least = *last;
}

/* The chance that a draft of this kind is right. */
static double chance_of(const struct spec *s, const struct bucket *b)
{
    double any = s->all.right / s->all.tried;
    if (any < LEAST_PRIOR) any = LEAST_PRIOR;
    return (b->right + PRIOR * any) / (b->tried + PRIOR);
}

/* What was given up is tried again one day: the text may have changed. So slowly that the tries
 * cost nothing. */
static void forgive(struct bucket *b)
{
    b->right += (b->tried / 2 - b->right) * FORGIVE;
}

void spec_draft(struct spec *s, const int32_t *known, size_t n, size_t max, struct spec_draft *out)
{
    out->n = 0;
    if (max > SPEC_MAX_DRAFT) max = SPEC_MAX_DRAFT;
    if (s->fixed && max > s->fixed) max = s->fixed;
    if (n < PAIR + 1 || !max) return;
    struct places p = {.n = 0};
    search_own(known, n, &p);
    search_live(s, known, n, &p);
    search_ring(s, known, n, &p);
    double chance = 1, least = s->fixed ? 0 : s->least;
    double own = (out->right + OWN_PRIOR) / (out->hoped + OWN_PRIOR);
    if (own > 1) own = 1;
    while (out->n < max && p.n) {
        double share;
        unsigned match;
        int32_t id = vote(&p, out->n, &share, &match);
        if (id < 0) break;
        unsigned b = bucket_of(match + (unsigned)out->n, share);
        chance *= own * chance_of(s, &s->bucket[b]);
        if (chance < least) {
            if (out->n == 0) forgive(&s->bucket[b]);
            break;
        }
        keep_agreeing(&p, out->n, id);
        out->bucket[out->n] = (uint8_t)b;
        out->ids[out->n++] = id;
    }
    s->stats.drafts += out->n > 0;
    s->stats.drafted += out->n;
}

bool spec_take(struct spec *s, size_t n, struct spec_draft *out)
{
    struct bucket *b = &s->bucket[GIVEN];
    out->n = 0;
    if (n == 0) return false;
    if (!s->fixed && chance_of(s, b) < s->least) {
        forgive(b);
        return false;
    }
    out->n = n;
    memset(out->bucket, GIVEN, n);
    s->stats.drafts++;
    s->stats.drafted += n;
    return true;
}

static void note(struct bucket *b, bool right)
{
    b->tried = b->tried * 0.998 + 1;
    b->right = b->right * 0.998 + right;
}

void spec_judge(struct spec *s, struct spec_draft *d, size_t accepted)
{
    s->stats.accepted += accepted;
    for (size_t i = 0; i < d->n && i <= accepted; i++) {
        struct bucket *b = &s->bucket[d->bucket[i]];
        d->hoped += (float)chance_of(s, b);
        d->right += i < accepted;
        note(b, i < accepted);
        note(&s->all, i < accepted);
    }
}

static void put(struct spec *s, int32_t id)
{
    size_t at = s->at;
    s->ring[at] = id;
    s->prev[at] = NONE;
    if (at && id >= 0 && s->ring[at - 1] >= 0) {
        size_t h = hash_pair(s, s->ring + at + 1);
        s->prev[at] = s->head[h];
        s->head[h] = (uint32_t)at;
    }
    s->at = (at + 1) % s->size;
    if (s->used < s->size) s->used++;
}

void spec_learn(struct spec *s, const int32_t *known, size_t n, size_t n_prompt)
{
    size_t from = output_begins(n_prompt);
    if (n - from + 1 >= s->size) return;
    for (size_t i = from; i < n; i++) put(s, known[i]);
    put(s, -1);
}

void spec_cost(struct spec *s, const struct spec_sweep *w)
{
    struct cost *c = &s->cost[w->prompts];
    double d = (double)w->drafts, x = (double)w->rows - d, y[2] = {w->seconds, w->bytes};
    c->n = c->n * KEEP + 1;
    c->x = c->x * KEEP + x;
    c->d = c->d * KEEP + d;
    c->xx = c->xx * KEEP + x * x;
    c->xd = c->xd * KEEP + x * d;
    c->dd = c->dd * KEEP + d * d;
    c->tokens = c->tokens * KEEP + (double)w->tokens;
    for (int k = 0; k < 2; k++) {
        c->y[k] = c->y[k] * KEEP + y[k];
        c->xy[k] = c->xy[k] * KEEP + x * y[k];
        c->dy[k] = c->dy[k] * KEEP + d * y[k];
    }
}

void spec_stats(const struct spec *s, struct spec_stats *out)
{
    *out = s->stats;
}
