/* SQLite's window to the disk with a switch: the n-th write, sync or truncation from now fails,
 * once or for ever; and the n-th allocation of SQLite. Syncs that do not fail are only counted. */
#ifndef NS_FAULT_VFS_H
#define NS_FAULT_VFS_H

#include <stdbool.h>

#define FAULT_VFS "fault"

/* Once a process, before SQLite is used. */
void fault_vfs_register(void);

struct fault_vfs {
    long disk;   /* counts down; the operation that reaches 0 fails; below 0: off */
    long memory; /* the same for allocations */
    bool forever;
    int code;    /* what a failed disk operation says: SQLITE_FULL, SQLITE_IOERR_WRITE, ... */
    long seen;   /* disk operations so far */
    long failed; /* faults handed out */
};
extern struct fault_vfs fault_vfs;
/* Everything off, counters at 0. */
void fault_vfs_reset(void);

#endif
