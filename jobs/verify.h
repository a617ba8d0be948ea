/* Is a queue file what it should be? */
#ifndef NS_VERIFY_H
#define NS_VERIFY_H

#include "jobs/db.h"

/* SQLite's own check of the file, each finding through the callback; *n grows by how many. */
enum status verify_file(struct db *db, void (*tell)(void *user, const char *what), void *user,
                        uint64_t *n, struct err *e);
/* Each finding through the callback; *n: how many. SQLite's own check of the file, then what the
 * tables promise each other: one result for each finished job and none for others, tokens only of
 * unfinished ones, one job an id. */
enum status verify_queue(struct db *db, void (*tell)(void *user, const char *what), void *user,
                         uint64_t *n, struct err *e);
/* Does the file hold exactly what an export in OpenAI form would write now? *line: the first one
 * that is missing, altered or too much; 0: none. */
enum status verify_export(struct db *db, const char *path, uint64_t *line, struct err *e);

#endif
