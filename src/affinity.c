/* Kinds of prompts as points in the space of embeddings, and their use counts. */
#include "src/affinity.h"

#include <math.h>
#include <string.h>

#define FADE      0.7f  /* weight of each token against the one before */
#define TOKENS    32    /* later ones weigh nothing */
#define PICTURE   0.7f  /* how far apart prompts with and without a picture are */
#define NEAR      0.5f  /* cosine from which two prompts are of one kind */
#define PRIOR     12    /* rows: a kind less known than that is taken for the average */
#define MOST_ROWS 60000 /* counts are halved there, so that they follow the night and fit */
#define MAGIC     0x31666661u

struct kind {
    uint32_t texts; /* prompts that it is the mean of */
    uint32_t rows;
    float *sum;     /* [hidden + 1] of their features */
    uint16_t *uses; /* [pairs] */
};

struct affinity {
    struct mem *mem;
    const struct config *c;
    const struct linear *embed;
    size_t width, pairs; /* hidden + 1; layers * experts */
    unsigned last;       /* layer with experts */
    struct kind kind[AFFINITY_KINDS];
    size_t n;
    float *all;           /* [width]: sum of all features */
    double texts;         /* how many */
    float *feature, *row; /* [width] */
    float *mean;          /* [pairs]: chance that a row of any kind uses it */
    float *spare;         /* [pairs]: chance that none of those running does */
    float *sums;          /* [AFFINITY_KINDS][width] */
    uint16_t *counts;     /* [AFFINITY_KINDS][pairs] */
};

/* On disk before the feature and the uses. */
struct record {
    uint32_t magic, width, pairs, texts, rows, unused;
};

static size_t pairs_of(const struct config *c)
{
    return (size_t)c->layers * c->experts;
}

uint64_t affinity_bytes(const struct config *c)
{
    uint64_t width = c->hidden + 1, pairs = pairs_of(c);
    return (AFFINITY_KINDS + 3) * width * sizeof(float) + 2 * pairs * sizeof(float) +
           AFFINITY_KINDS * pairs * sizeof(uint16_t) + 4096;
}

enum status affinity_open(struct affinity **out, struct mem *mem, const struct config *c,
                          const struct linear *embed, struct err *e)
{
    static const char what[] = "kinds of prompts";
    struct affinity *a;
    enum status rc = mem_array(mem, &a, 1, sizeof *a, what, e);
    *out = rc ? NULL : a;
    if (rc) return rc;
    *a = (struct affinity){.mem = mem, .c = c, .embed = embed};
    a->width = c->hidden + 1;
    a->pairs = pairs_of(c);
    for (unsigned l = 0; l < c->layers; l++)
        if (c->is_moe[l]) a->last = l;
    rc = mem_array(mem, &a->all, a->width, sizeof *a->all, what, e);
    if (!rc) rc = mem_array(mem, &a->feature, a->width, sizeof *a->feature, what, e);
    if (!rc) rc = mem_array(mem, &a->row, a->width, sizeof *a->row, what, e);
    if (!rc) rc = mem_array(mem, &a->mean, a->pairs, sizeof *a->mean, what, e);
    if (!rc) rc = mem_array(mem, &a->spare, a->pairs, sizeof *a->spare, what, e);
    if (!rc) rc = mem_array(mem, &a->sums, AFFINITY_KINDS * a->width, sizeof *a->sums, what, e);
    if (!rc) rc = mem_array(mem, &a->counts, AFFINITY_KINDS * a->pairs, sizeof *a->counts, what, e);
    if (rc) {
        affinity_close(a);
        *out = NULL;
        return rc;
    }
    for (size_t k = 0; k < AFFINITY_KINDS; k++) {
        a->kind[k].sum = a->sums + k * a->width;
        a->kind[k].uses = a->counts + k * a->pairs;
    }
    return OK;
}

void affinity_close(struct affinity *a)
{
    if (!a) return;
    void *blocks[] = {a->all, a->feature, a->row, a->mean, a->spare, a->sums, a->counts};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) mem_free(a->mem, blocks[i]);
    mem_free(a->mem, a);
}

/* The faded mean of the embeddings, and the picture. */
static void feature_of(struct affinity *a, const int32_t *ids, size_t n, bool picture)
{
    size_t hidden = a->width - 1;
    float weight = 1, total = 0;
    memset(a->feature, 0, a->width * sizeof *a->feature);
    for (size_t i = 0; i < n && i < TOKENS; i++, weight *= FADE) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= a->c->vocab) continue;
        linear_row(a->embed, (size_t)ids[i], a->row);
        for (size_t d = 0; d < hidden; d++) a->feature[d] += weight * a->row[d];
        total += weight;
    }
    for (size_t d = 0; d < hidden && total > 0; d++) a->feature[d] /= total;
    a->feature[hidden] = picture ? 1 : 0;
}

/* Cosine of two features seen from the mean of all, the picture apart. */
static float likeness(const struct affinity *a, const float *x, const struct kind *k)
{
    size_t hidden = a->width - 1;
    double xx = 0, yy = 0, xy = 0, n = k->texts, all = a->texts;
    for (size_t d = 0; d < hidden; d++) {
        double m = a->all[d] / all, u = x[d] - m, v = k->sum[d] / n - m;
        xx += u * u;
        yy += v * v;
        xy += u * v;
    }
    double text = xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : xx == yy;
    double apart = x[hidden] - k->sum[hidden] / n;
    return (float)(text - apart * apart * PICTURE);
}

static void add(struct affinity *a, struct kind *k, const float *x)
{
    for (size_t d = 0; d < a->width; d++) {
        k->sum[d] += x[d];
        a->all[d] += x[d];
    }
    k->texts++;
    a->texts++;
}

unsigned affinity_kind(struct affinity *a, const int32_t *ids, size_t n, bool picture)
{
    size_t best = 0;
    float nearest = -2;
    feature_of(a, ids, n, picture);
    for (size_t k = 0; k < a->n; k++) {
        float like = likeness(a, a->feature, &a->kind[k]);
        if (like <= nearest) continue;
        nearest = like;
        best = k;
    }
    if (nearest < NEAR && a->n < AFFINITY_KINDS) best = a->n++;
    if (a->kind[best].texts < UINT32_MAX) add(a, &a->kind[best], a->feature);
    return (unsigned)best;
}

void affinity_used(struct affinity *a, unsigned kind, unsigned layer, const uint32_t *experts,
                   size_t n)
{
    struct kind *k = &a->kind[kind];
    uint16_t *uses = k->uses + (size_t)layer * a->c->experts;
    for (size_t i = 0; i < n; i++) uses[experts[i]]++;
    if (layer < a->last || ++k->rows < MOST_ROWS) return;
    k->rows /= 2;
    for (size_t p = 0; p < a->pairs; p++) k->uses[p] /= 2;
}

static void find_mean(struct affinity *a)
{
    double rows = (double)affinity_rows(a);
    for (size_t p = 0; p < a->pairs; p++) {
        double uses = 0;
        for (size_t k = 0; k < a->n; k++) uses += a->kind[k].uses[p];
        a->mean[p] = rows > 0 ? (float)(uses / rows) : 0;
    }
}

static float chance(const struct affinity *a, const struct kind *k, size_t p)
{
    return ((float)k->uses[p] + PRIOR * a->mean[p]) / ((float)k->rows + PRIOR);
}

static float power(float x, unsigned n)
{
    float y = 1;
    for (; n; n >>= 1, x *= x)
        if (n & 1) y *= x;
    return y;
}

void affinity_extra(struct affinity *a, const unsigned *running, double *extra)
{
    find_mean(a);
    for (size_t p = 0; p < a->pairs; p++) a->spare[p] = 1;
    for (size_t k = 0; k < a->n; k++)
        for (size_t p = 0; running[k] && p < a->pairs; p++)
            a->spare[p] *= power(1 - chance(a, &a->kind[k], p), running[k]);
    for (size_t k = 0; k < AFFINITY_KINDS; k++) {
        double sum = 0;
        for (size_t p = 0; k < a->n && p < a->pairs; p++)
            sum += (double)(chance(a, &a->kind[k], p) * a->spare[p]);
        extra[k] = sum;
    }
}

size_t affinity_kinds(const struct affinity *a)
{
    return a->n;
}

uint64_t affinity_rows(const struct affinity *a)
{
    uint64_t rows = 0;
    for (size_t k = 0; k < a->n; k++) rows += a->kind[k].rows;
    return rows;
}

size_t affinity_record_bytes(const struct config *c)
{
    return sizeof(struct record) + (c->hidden + 1) * sizeof(float) + pairs_of(c) * sizeof(uint16_t);
}

void affinity_write(const struct affinity *a, unsigned kind, void *record)
{
    const struct kind *k = &a->kind[kind];
    struct record head = {.magic = MAGIC, .width = (uint32_t)a->width, .pairs = (uint32_t)a->pairs};
    head.texts = k->texts;
    head.rows = k->rows;
    char *at = record;
    memcpy(at, &head, sizeof head);
    memcpy(at += sizeof head, k->sum, a->width * sizeof *k->sum);
    memcpy(at + a->width * sizeof *k->sum, k->uses, a->pairs * sizeof *k->uses);
}

static bool is_sound(const struct affinity *a, const struct kind *k, uint32_t rows)
{
    for (size_t d = 0; d < a->width; d++)
        if (!isfinite(k->sum[d])) return false;
    for (size_t p = 0; p < a->pairs; p++)
        if (k->uses[p] > rows) return false;
    return true;
}

bool affinity_read(struct affinity *a, const void *record, size_t bytes)
{
    struct record head;
    const char *at = record;
    if (a->n == AFFINITY_KINDS || bytes != affinity_record_bytes(a->c)) return false;
    memcpy(&head, at, sizeof head);
    if (head.magic != MAGIC || head.width != a->width || head.pairs != a->pairs) return false;
    if (head.texts == 0 || head.rows > MOST_ROWS) return false;
    struct kind *k = &a->kind[a->n];
    memcpy(k->sum, at += sizeof head, a->width * sizeof *k->sum);
    memcpy(k->uses, at + a->width * sizeof *k->sum, a->pairs * sizeof *k->uses);
    if (!is_sound(a, k, head.rows)) {
        memset(k->sum, 0, a->width * sizeof *k->sum);
        memset(k->uses, 0, a->pairs * sizeof *k->uses);
        return false;
    }
    k->texts = head.texts;
    k->rows = head.rows;
    for (size_t d = 0; d < a->width; d++) a->all[d] += k->sum[d];
    a->texts += k->texts;
    a->n++;
    return true;
}
