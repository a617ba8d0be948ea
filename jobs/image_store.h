/* Encoded pictures by the hash of their bytes, so that one that many jobs use is encoded once.
 *
 * Rows are borrowed and given back; what nobody borrows stays as long as there is room and goes
 * oldest first. The limit bounds the bytes of rows in memory: a caller that wants to add a picture
 * waits until others gave enough back. One thread adds, any may release. */
#ifndef NS_IMAGE_STORE_H
#define NS_IMAGE_STORE_H

#include "vision/vision.h"

#include <stdbool.h>

struct image_store;

/* One picture; the fields stay as they are while it is borrowed. */
struct image_rows {
    char sha256[65];
    struct picture_info info;
    float *rows; /* [info.rows][hidden], from the store's mem */
    size_t bytes;
    /* the store's own */
    unsigned borrowed;
    struct image_rows *older, *newer;
};

enum status image_store_open(struct image_store **out, struct mem *mem, uint64_t limit_bytes,
                             struct err *e);
/* Nothing may be borrowed any more. */
void image_store_close(struct image_store *s);

/* Borrow; NULL when it is not there. */
struct image_rows *image_store_get(struct image_store *s, const char *sha256);
void image_store_release(struct image_store *s, struct image_rows *r);

/* Makes room for `bytes` more. own: bytes that the caller itself borrows, which it cannot wait for.
 * Waits while others' pictures fill the limit; returns at once when only the caller's do (then a
 * job of many pictures may exceed it), or after image_store_wake. */
void image_store_room(struct image_store *s, size_t bytes, size_t own);
/* Drops all that nobody borrows, and waits until something borrowed by others came back. False when
 * there was nothing to drop and nothing to wait for. */
bool image_store_relieve(struct image_store *s, size_t own);
/* Does somebody wait, by either, for what others borrow? */
bool image_store_full(struct image_store *s);
/* Adds and borrows; takes over rows. E_NOMEM: rows are freed. */
enum status image_store_put(struct image_store *s, struct image_rows **out, const char *sha256,
                            const struct picture_info *info, float *rows, size_t bytes,
                            struct err *e);
/* Ends all waiting, for good. */
void image_store_wake(struct image_store *s);

#endif
