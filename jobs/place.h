/* Where a job stands in a queue: a number that is near for jobs that begin alike.
 *
 * The beginning of the conversation decides, coarse to fine: all system text, then the first part
 * (a picture by its content, or the first bytes of a text), the second one, and all the rest. Each
 * is a few bits of a hash; jobs that agree so far stand together, so that a queue of any length is
 * claimed group by group through an index. Two groups that meet by chance cost nothing but that.
 * Exact common beginnings are share.h's business. */
#ifndef NS_PLACE_H
#define NS_PLACE_H

#include "jobs/job.h"

/* sha256[i]: of image i's bytes, "" where it is not known. Never below 0; below PLACE_SYSTEM
 * without a system message. */
int64_t place_of(const struct job *j, const char *const *sha256);

#define PLACE_SYSTEM ((int64_t)1 << 51)
/* Equal for places of the same system text and first part. */
static inline int64_t place_beginning(int64_t place)
{
    return place >> 25;
}

#endif
