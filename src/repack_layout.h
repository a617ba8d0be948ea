/* Where each tensor of a model goes when its files are written anew for reading experts.
 *
 * An expert is the tensors whose names share a beginning "...layers.L....experts.E."; its tensors
 * lie back to back in order of name, which is w1, w2, w3 and, of each, packed before scale. All
 * other tensors come first, in the order of the old files; then the experts by layer and number in
 * shards of their own, each at a multiple of OS_DIRECT_ALIGN and filled up to one by a padding
 * tensor (safetensors.h) where its size is none. Larger elements come before smaller ones, so that
 * each tensor is aligned for its type. The same model and shard size give the same layout. */
#ifndef NS_REPACK_LAYOUT_H
#define NS_REPACK_LAYOUT_H

#include "src/mem.h"
#include "src/safetensors.h"

struct repack_layout;

/* from: until repack_layout_free. shard_bytes: of a file, at most, unless one expert or tensor is
 * larger. E_USAGE when that makes more files than their names have digits for; E_MODEL when there
 * are no tensors or their sizes are beyond any disk. */
enum status repack_layout_open(struct repack_layout **out, struct mem *mem,
                               const struct safetensors *from, uint64_t shard_bytes, struct err *e);
void repack_layout_close(struct repack_layout *l);

size_t repack_layout_shards(const struct repack_layout *l);
uint64_t repack_layout_shard_bytes(const struct repack_layout *l, size_t shard);
uint64_t repack_layout_experts(const struct repack_layout *l);
/* "model-00001-of-00012.safetensors" */
#define REPACK_NAME_CHARS 40
void repack_layout_name(const struct repack_layout *l, size_t shard, char out[REPACK_NAME_CHARS]);

/* All that stands before the first tensor of a shard: whole blocks of OS_DIRECT_ALIGN. */
enum status repack_layout_header(const struct repack_layout *l, size_t shard, struct buf *out,
                                 struct err *e);
/* The part of the index that tells of this shard; the parts of all shards are the whole. */
enum status repack_layout_index(const struct repack_layout *l, size_t shard, struct buf *out,
                                struct err *e);

/* What follows the header of a shard, in order of place and without holes. */
struct repack_piece {
    const struct tensor_info *t; /* NULL: zeros */
    uint64_t offset, bytes;      /* in the new file */
    uint64_t pad;                /* number of the padding tensor */
};
struct repack_cursor {
    size_t at, first, end;
    uint64_t offset, pad;
};
void repack_layout_begin(const struct repack_layout *l, size_t shard, struct repack_cursor *c);
bool repack_layout_next(const struct repack_layout *l, struct repack_cursor *c,
                        struct repack_piece *p);

#endif
