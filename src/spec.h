/* Speculation: drafts by n-gram lookup (design.md 5). Drafts never change a result, only how many
 * sweeps it takes.
 *
 * Three places are searched for what followed the last tokens before: the sequence's own prompt and
 * output, the outputs of those that run beside it (some are ahead of it), and the outputs of
 * finished sequences (a ring of tokens, the oldest forgotten). All
 * matching places vote for the next token, longer matches with more weight; a draft goes on while
 * the chance that it is accepted whole, learned from what was accepted so far (of its kind, and of
 * this sequence), is worth the cost of one more row: what a row more adds to the seconds or to the
 * bytes of a sweep, whichever is more, against what a token costs. A sweep with prompts in it reads
 * nearly all experts anyway, so the two kinds of sweep are told apart. One caller at a time. */
#ifndef NS_SPEC_H
#define NS_SPEC_H

#include "src/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPEC_MAX_DRAFT 16

struct spec;

struct spec_opts {
    struct mem *mem;
    size_t ring_tokens; /* finished outputs kept; 16 bytes each */
    size_t fixed;       /* draft that many tokens whenever anything matches; 0: adapt */
    bool no_clock;      /* go by bytes alone: drafts that repeat exactly */
};

enum status spec_open(struct spec **out, const struct spec_opts *o, struct err *e);
void spec_close(struct spec *s);

/* Drafts for the coming sweep cost what they cost in one with prompts, or without. live [n]: the
 * sequences that run, borrowed until the next call. */
struct spec_text {
    const int32_t *ids; /* [n], the first n_prompt of them prompt */
    size_t n, n_prompt;
};
void spec_begin(struct spec *s, bool prompts, const struct spec_text *live, size_t n);

/* What follows known[0..n): up to max ids. One for each sequence, zeroed at first. */
struct spec_draft {
    int32_t ids[SPEC_MAX_DRAFT];
    uint8_t bucket[SPEC_MAX_DRAFT]; /* how sure each was; for spec_judge */
    size_t n;
    float hoped,
        right; /* of this sequence so far: tokens by the chances of their kinds, in truth */
};
void spec_draft(struct spec *s, const int32_t *known, size_t n, size_t max, struct spec_draft *out);
/* A draft whose ids [n <= SPEC_MAX_DRAFT] stand in out already: the form of the answer gave them.
 * False, and no draft, where such do not pay. */
bool spec_take(struct spec *s, size_t n, struct spec_draft *out);
/* The first `accepted` ids of a draft were right; all after the first wrong one were never judged.
 */
void spec_judge(struct spec *s, struct spec_draft *d, size_t accepted);
/* A sequence is done: remember its output, with the last tokens of its prompt before it. */
void spec_learn(struct spec *s, const int32_t *known, size_t n, size_t n_prompt);
/* A sweep is done. */
struct spec_sweep {
    bool prompts;                /* some of the rows are of prompts */
    size_t rows, drafts, tokens; /* drafts: of the rows */
    double seconds, bytes;       /* bytes: read for it */
};
void spec_cost(struct spec *s, const struct spec_sweep *w);

struct spec_stats {
    uint64_t drafts, drafted, accepted;
};
void spec_stats(const struct spec *s, struct spec_stats *out);

#endif
