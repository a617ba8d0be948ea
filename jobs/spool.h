/* Encoded pictures on disk, beside the database: what memory has no room for, and what another run
 * encoded, need not be encoded again.
 *
 * One file a picture in a folder of its own, named by the picture's hash; its first bytes hold a
 * checksum of the rest and the scope: everything else that the rows depend on. What does not fit
 * both is as good as absent, so a torn or foreign file does no harm, and no failure to write does.
 * The folder is bounded: the oldest go first. One caller at a time. */
#ifndef NS_SPOOL_H
#define NS_SPOOL_H

#include "vision/vision.h"

#include <stdbool.h>

struct spool;

struct spool_opts {
    const char *dir;   /* made when the first picture is kept */
    const char *scope; /* model and settings that rows depend on */
    uint64_t limit_bytes;
    size_t width; /* floats of a row */
};

/* E_NOMEM alone. */
enum status spool_open(struct spool **out, const struct spool_opts *o, struct err *e);
/* forget: nobody needs the pictures any more, the folder goes. */
void spool_close(struct spool *s, bool forget);

/* The rows of a picture [info->rows][width], from mem; info's format is not kept. *rows NULL: not
 * there. E_BUDGET when memory has no room. */
enum status spool_get(struct spool *s, const char *sha256, struct mem *mem,
                      struct picture_info *info, float **rows, struct err *e);
void spool_put(struct spool *s, const char *sha256, const struct picture_info *info,
               const float *rows);

struct spool_stats {
    uint64_t kept, found, damaged, dropped, bytes; /* bytes: on disk now */
};
void spool_stats(const struct spool *s, struct spool_stats *out);

#endif
