/* From the reference of a job's image to its bytes.
 *
 * A reference is a path as written in the input: absolute, relative, file:// (percent-decoded) or
 * a Windows path with backslashes. Nothing is ever fetched over the network. Inline images are
 * decoded from their byte range in the source file. */
#ifndef NS_IMAGE_REF_H
#define NS_IMAGE_REF_H

#include "jobs/job.h"

#define IMAGE_REF_MAX_BYTES (256ull << 20)

struct image_ref_map {
    const char *from, *to; /* a leading `from` of a reference becomes `to` */
};

struct image_ref_opts {
    const char *root; /* --image-root: relative references are looked up here alone; or NULL */
    const struct image_ref_map *maps;
    size_t n_maps;
    uint64_t max_bytes; /* of one image; 0: IMAGE_REF_MAX_BYTES */
};

/* Where a job came from. */
struct image_ref_source {
    const char *path;     /* the JSONL file; NULL for a job of a file on the command line */
    uint64_t line_offset; /* first byte of the job's line */
};

/* Syntax only: E_INVALID_REQUEST for http://, another scheme, an empty reference, a bad %-escape.
 */
enum status image_ref_check(const char *ref, struct err *e);

/* The absolute path of an existing file, malloc'ed. Relative: below o->root when given, else below
 * the folder of s->path, else below the working folder; two different files there are
 * E_INVALID_REQUEST. E_IMAGE_MISSING names every place that was tried. o may be NULL. */
enum status image_ref_resolve(const struct image_ref_opts *o, const struct image_ref_source *s,
                              const char *ref, char **path, struct err *e);

/* All bytes of a picture, from the budget: mem_free them; and their SHA-256 in hex, unless the
 * caller trusts what it has put there. path: from image_ref_resolve, or NULL for an inline image,
 * whose bytes must still be those of the import (E_IMAGE_CHANGED). E_IMAGE_MISSING,
 * E_IMAGE_UNREADABLE (also empty), E_IMAGE_TOO_LARGE. */
struct image_ref_bytes {
    struct mem *mem;
    unsigned char *at;
    size_t len;
    int64_t mtime_ns; /* of the file, since 1970; 0: inline */
    bool trusted;     /* sha256 is given */
    char sha256[JOB_SHA_CHARS];
};
enum status image_ref_load(struct image_ref_bytes *out, const struct image_ref_opts *o,
                           const struct image_ref_source *s, const struct job_image *image,
                           const char *path, struct err *e);
/* Size and time of a picture's file. E_IMAGE_MISSING, E_IMAGE_UNREADABLE. */
enum status image_ref_stat(const char *path, uint64_t *bytes, int64_t *mtime_ns, struct err *e);

#endif
