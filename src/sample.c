/* Greedy and seeded sampling. All arithmetic in double, candidates in one fixed order (logit
 * descending, id ascending), so that a draw is reproducible bit for bit. */
#include "src/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Candidates this far (in units of temperature) below the best have no say: their share is under
 * 1e-17. */
#define FAR_BELOW 40.0

static int32_t greedy(const float *logits, size_t vocab)
{
    int32_t best = 0;
    float most = -INFINITY;
    bool nan = false;
    for (size_t i = 0; i < vocab; i++) {
        nan |= isnan(logits[i]);
        if (logits[i] > most) {
            most = logits[i];
            best = (int32_t)i;
        }
    }
    return most == INFINITY || (most == -INFINITY && nan) ? SAMPLE_BROKEN : best;
}

/* Uniform in [0, 1) from (seed, position): the finaliser of splitmix64. */
static double uniform(uint64_t seed, uint64_t position)
{
    uint64_t z = seed + (position + 1) * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < 2; i++) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
    }
    return (double)(z >> 11) * 0x1p-53;
}

static int descending(const void *pa, const void *pb)
{
    const struct sample_entry *a = pa, *b = pb;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

int32_t sample_token(const float *logits, size_t vocab, const struct sample_params *p,
                     uint64_t position, struct sample_entry *scratch)
{
    int32_t best = greedy(logits, vocab);
    if (best == SAMPLE_BROKEN || !(p->temperature > 0) || p->top_k == 1) return best;
    double top = (double)logits[best], t = p->temperature;
    if (!isfinite(top)) return best;

    size_t n = 0;
    for (size_t i = 0; i < vocab; i++)
        if (((double)logits[i] - top) / t >= -FAR_BELOW)
            scratch[n++] = (struct sample_entry){logits[i], (int32_t)i};
    qsort(scratch, n, sizeof *scratch, descending);
    if (p->top_k && n > p->top_k) n = p->top_k;

    double total = 0;
    for (size_t i = 0; i < n; i++) total += exp(((double)scratch[i].logit - top) / t);
    /* nucleus: the fewest best candidates whose share reaches top_p */
    double kept = 0;
    size_t m = 0;
    while (m < n && (m == 0 || kept < p->top_p * total))
        kept += exp(((double)scratch[m++].logit - top) / t);

    double target = uniform(p->seed, position) * kept, sum = 0;
    for (size_t i = 0; i < m; i++) {
        sum += exp(((double)scratch[i].logit - top) / t);
        if (target < sum) return scratch[i].id;
    }
    return scratch[m - 1].id;
}
