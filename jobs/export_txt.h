/* A text file beside each picture, named like it: a.jpg -> a.txt, UTF-8. */
#ifndef NS_EXPORT_TXT_H
#define NS_EXPORT_TXT_H

#include "jobs/export.h"

/* Two answers never share a file silently (a.jpg and a.png in one folder, two questions about one
 * picture): E_USAGE names both before anything is written. A file that already is as it should be
 * is left alone; another is E_USAGE, or as `existing` says. */
enum status export_txt(struct db *db, enum export_existing existing, struct export_counts *out,
                       struct err *e);

#endif
