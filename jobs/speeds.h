/* What was measured of machines with models, kept in the queue file as text (src/plan_speed.h). */
#ifndef NS_SPEEDS_H
#define NS_SPEEDS_H

#include "jobs/db.h"

/* *value: malloc'ed; NULL when nothing is kept under this key. */
enum status speeds_get(struct db *db, const char *key, char **value, struct err *e);
enum status speeds_put(struct db *db, const char *key, const char *value, struct err *e);

#endif
