/* Writes a checkpoint of made-up weights as safetensors shards with an index, streaming: memory
 * holds the list of tensors, never their values. Every tensor's values depend on the seed and its
 * own name alone, so a model of the same seed is the same bytes whatever else it holds. For benches
 * and tests. */
#ifndef NS_CKPT_H
#define NS_CKPT_H

#include "src/err.h"

#include <stddef.h>
#include <stdint.h>

enum ckpt_dtype { CKPT_BF16, CKPT_F32, CKPT_U8 };

/* What the values are; a and b as told. */
enum ckpt_fill {
    FILL_NORMAL,      /* mean 0, standard deviation a */
    FILL_AROUND,      /* mean b, standard deviation a */
    FILL_UNIFORM,     /* in [a, b) */
    FILL_LOG_UNIFORM, /* log of uniform in [a, b); the tensor's entries from `used` on are 0 */
    FILL_CODES,       /* U8: random E2M1 pairs, root mean square 2.926 */
    FILL_SCALES, /* U8: E8M0 exponents around 127 + a: a quarter one less, a quarter one more */
    FILL_TOPIC /* [rows][cols]: normal as FILL_NORMAL plus b times the sign vector of topics[row] (<
                  0: none) */
};

struct ckpt_tensor {
    char *name;
    enum ckpt_dtype dtype;
    unsigned dims;
    uint64_t shape[4];
    enum ckpt_fill fill;
    double a, b;
    uint64_t used;
    const int16_t *topics; /* [shape[0]], the caller's until ckpt_write returns */
};

struct ckpt {
    struct ckpt_tensor *at;
    size_t n, cap;
    uint8_t *starts; /* per tensor: CKPT_JOINED, CKPT_FREE or CKPT_NEW_SHARD */
    uint64_t seed, shard_bytes;
};
/* Where a tensor may lie: in the shard of the one before, in a new shard if it would grow too
 * large, in a new shard. */
enum { CKPT_JOINED, CKPT_FREE, CKPT_NEW_SHARD };

void ckpt_init(struct ckpt *c, uint64_t seed, uint64_t shard_bytes);
void ckpt_free(struct ckpt *c);
/* Copies t; its name is made from fmt. */
enum status ckpt_add(struct ckpt *c, const struct ckpt_tensor *t, int start, struct err *e,
                     const char *fmt, ...) PRINTF_LIKE(5, 6);
uint64_t ckpt_bytes(const struct ckpt *c);
/* All shards, then model.safetensors.index.json, into the existing folder dir. */
enum status ckpt_write(const struct ckpt *c, const char *dir, struct err *e);

/* +1 or -1: entry `column` of topic's sign vector, the same for every tensor of this seed. */
float ckpt_sign(uint64_t seed, int topic, uint64_t column);

#endif
