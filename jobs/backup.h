/* A copy of a queue file, taken while it is worked. */
#ifndef NS_BACKUP_H
#define NS_BACKUP_H

#include "jobs/db.h"

/* Everything committed until now as a queue file of its own at path: another run goes on with it.
 * Written beside its place, checked by SQLite, synced, renamed. E_USAGE when path is there already;
 * E_DB when the copy is damaged, which says that db is. */
enum status backup_queue(struct db *db, const char *path, struct err *e);

#endif
