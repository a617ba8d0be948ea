/* What order and drafts were worth, at the end of a run. */
#include "jobs/cmd_order.h"

#include "jobs/progress.h"

#include <stdio.h>

static double per(uint64_t a, uint64_t b)
{
    return b ? (double)a / (double)b : 0;
}

void cmd_tell_order(const struct pipeline_report *r)
{
    const struct engine_stats *g = &r->engine;
    uint64_t jobs = r->done + r->failed;
    char each[24], least[24];
    if (!g->sweeps || !jobs) return;
    progress_bytes(each, sizeof each, per(g->expert_bytes, jobs));
    progress_bytes(least, sizeof least, per(g->expert_least, jobs));
    fprintf(stderr,
            "a job: %s of experts read (these sweeps need %s), %.1f prompt rows computed; hit rate "
            "%.0f %%\n",
            each, least, per(g->prefill_rows, jobs), 100 * per(g->expert_hits, g->expert_gets));
    fprintf(stderr,
            "a sweep: %.1f rows, %.1f tokens, %.2f a sequence; shared beginnings saved %llu rows\n",
            per(g->prefill_rows + g->decode_rows + g->draft_rows, g->sweeps),
            per(g->tokens, g->sweeps), per(g->decode_rows + g->spec.accepted, g->decode_rows),
            (unsigned long long)g->prefix.rows_saved);
    if (g->spec.drafted)
        fprintf(stderr, "drafts: %llu tokens, %.0f %% accepted, %.2f a draft\n",
                (unsigned long long)g->spec.drafted, 100 * per(g->spec.accepted, g->spec.drafted),
                per(g->spec.accepted, g->spec.drafts));
}
