/* Which experts the next layer will need, told while this one computes, so that they are read
 * ahead.
 *
 * The next layer's router, applied early, ranks experts for each row. An expert gets points for its
 * ranks; how often experts with so many points, and not in memory, were then needed is counted, and
 * only those are worth a read of which nearly all the like were right: a wrong guess costs a read
 * and the place of something better. Sweeps of other sizes are counted apart, and so are layers
 * whose router is not at hand: there nobody has points, and thousands of rows need everything
 * anyway.
 *
 * Never decides a result. Not thread safe. */
#ifndef NS_GUESS_H
#define NS_GUESS_H

#include "src/mem.h"

#include <stdbool.h>

#define GUESS_ROWS 64 /* of a sweep are looked at */

struct guess;

enum status guess_open(struct guess **out, struct mem *mem, uint32_t experts, struct err *e);
void guess_close(struct guess *g);
/* What guess_open takes. */
uint64_t guess_bytes(uint32_t experts);

/* A guess for the layer with this number, in a sweep of so many rows. */
void guess_begin(struct guess *g, unsigned layer, size_t rows, bool router);
/* What the early router chose for one of at most GUESS_ROWS rows: ids [n], scores [experts]. */
void guess_row(struct guess *g, const uint32_t *ids, size_t n, const float *scores);
/* Is this expert worth a read, or, when in memory, keeping until then? */
bool guess_worth(struct guess *g, uint32_t expert, bool cached);
/* The layer was reached: start[x] != start[x + 1] where an expert is needed, start [experts + 1].
 */
void guess_judge(struct guess *g, unsigned layer, const uint32_t *start);

#endif
