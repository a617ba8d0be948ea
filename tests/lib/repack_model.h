/* A small model to repack: two files with an index, experts out of order and with holes between
 * their tensors, other tensors of every kind, and files and folders beside them. */
#ifndef NS_REPACK_MODEL_H
#define NS_REPACK_MODEL_H

#include "src/repack.h"

#include <stdbool.h>

enum { RM_LAYERS = 3, RM_EXPERTS = 12, RM_IN = 64, RM_WIDTH = 96 };

/* Writes it to test_dir()/name: layers 1 (MXFP4) and 2 (BF16) have experts. */
const char *repack_model(const char *name);

/* Whether b has the tensors of a, type, shape and bytes, and no others. */
bool repack_model_same(const char *a, const char *b);
/* Whether both folders hold the same files with the same bytes. */
bool repack_model_same_files(const char *a, const char *b);

/* repack with no limit of memory; shard_bytes as in repack_opts. */
enum status repack_model_run(const char *from, const char *to, uint64_t shard_bytes,
                             struct repack_state *state, struct err *e);

#endif
