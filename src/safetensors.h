/* Reading safetensors checkpoints: one file or many shards with an index.
 *
 * Opening reads the headers only and checks them against the files' sizes: every tensor's bytes lie
 * inside its file, do not overlap the header and match dtype x shape. Nothing is sized from a
 * declared shape before that. Thread safe once open.
 *
 * Tensors whose names begin with SAFETENSORS_PAD fill the space between others (the format allows
 * no holes); they are checked and then forgotten. */
#ifndef NS_SAFETENSORS_H
#define NS_SAFETENSORS_H

#include "src/err.h"
#include "src/quant.h"

#include <stddef.h>
#include <stdint.h>

#define TENSOR_MAX_DIMS 5
#define SAFETENSORS_PAD "__pad__."

struct tensor_info {
    const char *name;
    enum dtype type;   /* DT_F32, DT_BF16, DT_U8 or DT_OTHER */
    const char *dtype; /* as the file names it: "BF16" */
    unsigned dims;
    uint64_t shape[TENSOR_MAX_DIMS];
    unsigned file;   /* index for safetensors_file */
    uint64_t offset; /* from the start of the file */
    uint64_t bytes;
};

struct safetensors;

/* dir: holds model.safetensors.index.json and its shards, or one model.safetensors (or any single
 * *.safetensors). want_direct: open shards for direct I/O where possible. E_MODEL names file,
 * tensor and what is wrong: missing shard, truncated shard (E_MODEL, "ends at byte X, tensor Y
 * needs Z"), duplicate tensor, index entry without tensor. */
enum status safetensors_open(struct safetensors **out, const char *dir, bool want_direct,
                             struct err *e);
void safetensors_close(struct safetensors *s);

/* NULL when there is none of that name. The pointer lives as long as s. */
const struct tensor_info *safetensors_find(const struct safetensors *s, const char *name);
size_t safetensors_count(const struct safetensors *s);
/* In order of name. */
const struct tensor_info *safetensors_at(const struct safetensors *s, size_t i);
size_t safetensors_files(const struct safetensors *s);
const char *safetensors_path(const struct safetensors *s, unsigned file);
/* True when this file is read with direct I/O. */
bool safetensors_direct(const struct safetensors *s, unsigned file);

/* What s holds in memory, bytes; it takes them outside any budget. */
uint64_t safetensors_memory(const struct safetensors *s);

/* Reads all bytes of a tensor into dst (t->bytes of them). E_IO names file and tensor. */
enum status safetensors_read(const struct safetensors *s, const struct tensor_info *t, void *dst,
                             struct err *e);
/* Reads bytes [offset, offset + len) of a file, as far as they exist: *got of them. A direct file
 * is read directly where offset and dst are multiples of OS_DIRECT_ALIGN, else through the page
 * cache.
 */
enum status safetensors_read_raw(const struct safetensors *s, unsigned file, uint64_t offset,
                                 void *dst, size_t len, size_t *got, struct err *e);

#endif
