/* Choosing a token from logits. */
#ifndef NS_SAMPLE_H
#define NS_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

struct sample_params {
    double temperature; /* 0: greedy (lowest id on ties) */
    double top_p;       /* 1: off */
    uint32_t top_k;     /* 0: off */
    uint64_t seed;
};

#define SAMPLE_BROKEN (-1) /* not a token: the best logit is no finite number */

/* The draw depends on logits, params and position (0 = first output token) only. scratch: vocab
 * entries. NaN logits count as -inf where others are numbers; SAMPLE_BROKEN where none is, or one
 * is +inf. Where all are -inf: 0. */
struct sample_entry {
    float logit;
    int32_t id;
};
int32_t sample_token(const float *logits, size_t vocab, const struct sample_params *p,
                     uint64_t position, struct sample_entry *scratch);

#endif
