/* A model's files written anew for reading experts (repack_layout.h), the rest copied.
 *
 * Every file appears under its name only when it is whole, on the disk, and was read back from
 * there and found equal to the source. So a run that was killed goes on where it was: what stands
 * under its name is compared with the source once more and kept, or written again where it is
 * damaged. The index comes last. */
#ifndef NS_REPACK_H
#define NS_REPACK_H

#include "src/mem.h"

#include <stdbool.h>
#include <stdint.h>

#define REPACK_SHARD_BYTES ((uint64_t)16 << 30)

struct repack_state {
    const char *file;            /* the one at work */
    bool checking;               /* else writing */
    uint64_t done, total;        /* bytes written or compared, and to be so */
    uint64_t bytes, experts;     /* of the new folder */
    size_t files, written, kept; /* so far */
    size_t damaged;              /* files among the written that were there, but damaged */
};

struct repack_opts {
    struct mem *mem;
    const char *from, *to;
    uint64_t shard_bytes; /* 0: REPACK_SHARD_BYTES */
    /* After every piece of some 2 MiB at most; true: stop (E_STOPPED), to go on another time. May
     * be NULL. */
    bool (*progress)(void *user, const struct repack_state *s);
    void *user;
};

/* Takes a few MiB beside the tables of tensors. Hidden folders and *.safetensors files that are no
 * part of the model are not copied.
 *
 * E_USAGE: `to` is `from`, or holds files that are not of this repack. E_LOCKED: another one writes
 * there. E_NOSPACE: too little room; nothing was written, or what was is whole. E_IO: reading or
 * writing failed, or what was read back is not what was written. E_MODEL: as safetensors_open.
 * state: the counts at the end, also after errors. */
enum status repack(const struct repack_opts *o, struct repack_state *state, struct err *e);

#endif
