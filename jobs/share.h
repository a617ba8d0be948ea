/* Where prompts part: beginnings that several of them share are computed once (src/prefix.h). */
#ifndef NS_SHARE_H
#define NS_SHARE_H

#include "src/sequence.h"

/* Shorter beginnings are not worth a copy of the state. Every prompt begins with the same markup.
 */
#define SHARE_LEAST 16
#define SHARE_CUTS  SEQUENCE_CUTS

struct share_rows {
    const uint64_t *hash; /* [n] what each row is */
    size_t n;
};

/* What a row is: a token, or row `at` of the picture with this hash. */
uint64_t share_token(int32_t id);
uint64_t share_picture(const char *sha256, size_t at);

/* Adds to cuts [0..n) (ascending) the length that a shares with b, when it is worth keeping and
 * before the end of a; returns the new n, at most SHARE_CUTS. Longer ones win. */
size_t share_cut(size_t *cuts, size_t n, const struct share_rows *a, const struct share_rows *b);

/* Drops cuts less than SHARE_APART rows after the one before: each costs a copy of the state.
 * Returns the new n. */
#define SHARE_APART 16
size_t share_thin(size_t *cuts, size_t n);

#endif
