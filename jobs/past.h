/* Answers of earlier runs as drafts for this one. */
#ifndef NS_PAST_H
#define NS_PAST_H

#include "jobs/db.h"
#include "src/config.h"
#include "src/tok.h"

/* Tells `learn` of the latest answers, oldest first: ids [n], the first n_prompt the end of the
 * prompt. Bounded: some thousand answers, some megabytes of text. What cannot be read is left out.
 */
struct past {
    const struct tok *tok;
    const struct config *config;
    void (*learn)(void *user, const int32_t *ids, size_t n, size_t n_prompt);
    void *user;
};
enum status past_answers(struct db *db, const struct past *p, struct err *e);

#endif
