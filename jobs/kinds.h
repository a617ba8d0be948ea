/* What was learned about kinds of prompts (src/affinity.h), kept in the queue file for later runs.
 * Only a guess: it may be deleted at any time. */
#ifndef NS_KINDS_H
#define NS_KINDS_H

#include "jobs/db.h"
#include "src/affinity.h"

enum status kinds_load(struct db *db, const char *model_sha256, struct affinity *a, struct err *e);
/* In one transaction; c: of the model. */
enum status kinds_store(struct db *db, const char *model_sha256, const struct affinity *a,
                        const struct config *c, struct err *e);

#endif
