/* A plan in words: its shares, and what is expected of them. */
#ifndef NS_PLAN_TEXT_H
#define NS_PLAN_TEXT_H

#include "src/forecast.h"

/* One share a line, "name  size  note"; n: what is expected, or NULL. */
enum status plan_text(struct buf *out, const struct plan *p, const struct plan_model *m,
                      const struct forecast_night *n, struct err *e);
/* The same as one JSON object, without a newline. */
enum status plan_text_json(struct buf *out, const struct plan *p, const struct plan_model *m,
                           const struct forecast_night *n, struct err *e);
/* "1.25 GB", for bytes and for anything else counted in thousands. */
#define PLAN_TEXT_SIZE 24
void plan_text_size(char out[PLAN_TEXT_SIZE], double bytes, const char *unit);

#endif
