/* Points, and how often they were right. Counts decay, for texts change; before there is evidence
 * nothing is guessed, and what was not guessed is judged as well, so evidence costs no read. */
#include "src/guess.h"

#include <string.h>

#define CLASSES 14   /* of sweeps: rows up to 1, 3, 7, 15 ... */
#define POINTS  64   /* of an expert, at most POINTS - 1 */
#define WORTH   0.97 /* of the like were right */
#define MOST    1000 /* then all count half */
#define WASTE   0.01 /* reads of wrong guesses, of all; past that nothing is guessed for a while */

struct tally {
    float seen, right;
};

struct guess {
    struct mem *mem;
    uint32_t experts;
    struct tally tally[2][CLASSES][POINTS]; /* without and with a router */
    struct tally *now;                      /* [POINTS] of the guess under way */
    bool open;                              /* a guess waits to be judged */
    unsigned layer;
    uint8_t *points; /* [experts] */
    uint8_t *asked;  /* [experts] 1: not in memory; 2: and guessed */
    double reads, wrong;
};

uint64_t guess_bytes(uint32_t experts)
{
    return sizeof(struct guess) + 2 * (uint64_t)experts + 192;
}

enum status guess_open(struct guess **out, struct mem *mem, uint32_t experts, struct err *e)
{
    struct guess *g = *out = NULL;
    enum status rc = mem_alloc(mem, &g, sizeof *g, "guesses", e);
    if (rc) return rc;
    g->mem = mem;
    g->experts = experts;
    rc = mem_array(mem, &g->points, experts, 1, "guesses", e);
    if (!rc) rc = mem_array(mem, &g->asked, experts, 1, "guesses", e);
    if (rc)
        guess_close(g);
    else
        *out = g;
    return rc;
}

void guess_close(struct guess *g)
{
    if (!g) return;
    mem_free(g->mem, g->points);
    mem_free(g->mem, g->asked);
    mem_free(g->mem, g);
}

void guess_begin(struct guess *g, unsigned layer, size_t rows, bool router)
{
    unsigned class = 0;
    while (rows > 1 && class + 1 < CLASSES) {
        rows /= 2;
        class ++;
    }
    g->now = g->tally[router][class];
    g->layer = layer;
    g->open = true;
    memset(g->points, 0, g->experts);
    memset(g->asked, 0, g->experts);
}

void guess_row(struct guess *g, const uint32_t *ids, size_t n, const float *scores)
{
    for (size_t i = 0; i < n; i++) {
        unsigned points = 1;
        for (size_t j = 0; j < n; j++) points += scores[ids[j]] < scores[ids[i]];
        points += g->points[ids[i]];
        g->points[ids[i]] = (uint8_t)(points < POINTS ? points : POINTS - 1);
    }
}

bool guess_worth(struct guess *g, uint32_t expert, bool cached)
{
    const struct tally *t = &g->now[g->points[expert]];
    /* Laplace: few right ones prove little. */
    bool worth = t->right + 1 >= WORTH * (t->seen + 2) && g->wrong <= WASTE * g->reads;
    g->asked[expert] = cached ? 0 : worth ? 2 : 1;
    return worth;
}

void guess_judge(struct guess *g, unsigned layer, const uint32_t *start)
{
    if (!g->open || g->layer != layer) return;
    g->open = false;
    for (uint32_t x = 0; x < g->experts; x++) {
        if (!g->asked[x]) continue;
        struct tally *t = &g->now[g->points[x]];
        bool needed = start[x] != start[x + 1];
        g->reads += needed;
        g->wrong += !needed && g->asked[x] == 2;
        t->seen++;
        t->right += needed;
        if (t->seen < MOST) continue;
        t->seen /= 2;
        t->right /= 2;
    }
}
