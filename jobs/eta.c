/* Averages, nothing more. */
#include "jobs/eta.h"

void eta_prompt(struct eta *t, const struct eta_load *job, uint64_t text_tokens,
                uint64_t image_tokens)
{
    t->prepared.jobs += job->jobs;
    t->prepared.text_bytes += job->text_bytes;
    t->prepared.image_rows += job->image_rows;
    t->text_tokens += (double)text_tokens;
    t->image_tokens += (double)image_tokens;
}

void eta_finish(struct eta *t, const struct eta_load *job, uint64_t answer_tokens)
{
    t->left.jobs -= job->jobs;
    t->left.text_bytes -= job->text_bytes;
    t->left.image_rows -= job->image_rows;
    if (answer_tokens == 0) return;
    t->answers++;
    t->answer_tokens += (double)answer_tokens;
}

static double ratio(double a, double b, double otherwise)
{
    return b > 0 ? a / b : otherwise;
}

double eta_rows(const struct eta *t)
{
    double rows = t->left.text_bytes * ratio(t->text_tokens, t->prepared.text_bytes, 1.0 / 3) +
                  t->left.image_rows * ratio(t->image_tokens, t->prepared.image_rows, 1) +
                  t->left.jobs * ratio(t->answer_tokens, t->answers, 128);
    return rows > 0 ? rows : 0;
}
