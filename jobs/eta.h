/* How many rows are still to be computed, from token counts: prompts are known by their bytes and
 * pictures before they are tokenised; what those measure, and how long answers are, is learned from
 * the jobs so far. */
#ifndef NS_ETA_H
#define NS_ETA_H

#include <stdint.h>

#define ETA_IMAGE_ROWS 1024

/* Of some jobs together. */
struct eta_load {
    double jobs, text_bytes, image_rows; /* as far as known before; ETA_IMAGE_ROWS each otherwise */
};

struct eta {
    struct eta_load left;     /* not finished */
    struct eta_load prepared; /* those whose prompts were measured */
    double text_tokens, image_tokens;
    double answers, answer_tokens; /* finished ones */
};

/* A job's prompt is known. */
void eta_prompt(struct eta *t, const struct eta_load *job, uint64_t text_tokens,
                uint64_t image_tokens);
/* A job left the queue; answer_tokens 0 for those that failed early. */
void eta_finish(struct eta *t, const struct eta_load *job, uint64_t answer_tokens);
/* Rows of all that is left. Before anything was learned: 3 bytes a token, 128 an answer. */
double eta_rows(const struct eta *t);

#endif
