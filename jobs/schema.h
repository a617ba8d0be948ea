/* The tables of a queue file, and bringing an older file up to date. jobs/README.md explains them
 * to those who query the file themselves. */
#ifndef NS_SCHEMA_H
#define NS_SCHEMA_H

#include "jobs/db.h"

#define SCHEMA_APPLICATION_ID 0x6e736a71 /* "nsjq" */
#define SCHEMA_VERSION        4

/* Makes the tables in an empty file; migrates an older one. E_DB for another program's database or
 * a newer version than this program knows. */
enum status schema_apply(struct db *db, struct err *e);
/* The same checks without writing. */
enum status schema_check(struct db *db, struct err *e);

#endif
