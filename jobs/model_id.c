/* The identity of a checkpoint.
 *
 * Reading terabytes to tell two models apart is out of the question, so weights are sampled: small
 * tensors whole, the beginning of large ones. A fine-tune that leaves the norms alone still changes
 * the projections. Of experts one a layer stands for all: their tensors are by far the most, and
 * each is a read of its own. */
#include "jobs/model_id.h"

#include "src/mem.h"
#include "src/os.h"
#include "src/safetensors.h"

#include <sha2.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_BYTES  ((size_t)64 << 10) /* read whole up to this */
#define SAMPLE_BYTES ((size_t)4 << 10)  /* read of larger ones */
#define MOST_BYTES   ((uint64_t)16 << 20)
#define MOST_READS   4096

static enum status hash_file(SHA2_CTX *c, const char *path, struct err *e)
{
    struct os_file f;
    enum status rc = os_open(&f, path, false, e);
    if (rc) return rc;
    char block[1 << 16];
    for (uint64_t at = 0; at < f.size && !rc;) {
        size_t n = f.size - at < sizeof block ? (size_t)(f.size - at) : sizeof block;
        rc = os_read_at(&f, at, block, n, path, e);
        if (!rc) SHA256Update(c, (const uint8_t *)block, n);
        at += n;
    }
    os_close(&f);
    return rc;
}

static void hash_tensor(SHA2_CTX *c, const struct tensor_info *t)
{
    unsigned char shape[8 * TENSOR_MAX_DIMS];
    for (unsigned i = 0; i < 8 * t->dims; i++)
        shape[i] = (unsigned char)(t->shape[i / 8] >> (8 * (i % 8)));
    SHA256Update(c, (const uint8_t *)t->name, strlen(t->name) + 1);
    SHA256Update(c, (const uint8_t *)t->dtype, strlen(t->dtype) + 1);
    SHA256Update(c, (const uint8_t *)&(unsigned char){(unsigned char)t->dims}, 1);
    SHA256Update(c, shape, 8 * t->dims);
}

static size_t sample_of(const struct tensor_info *t)
{
    const char *expert = strstr(t->name, ".experts.");
    if (expert && strncmp(expert, ".experts.0.", 11) != 0) return 0;
    return t->bytes <= SMALL_BYTES ? (size_t)t->bytes : SAMPLE_BYTES;
}

static enum status hash_weights(SHA2_CTX *c, const struct safetensors *s, struct err *e)
{
    uint64_t left = MOST_BYTES;
    size_t reads = 0, got;
    uint8_t *bytes = malloc(SMALL_BYTES);
    enum status rc = bytes ? OK : err_set(e, E_NOMEM, "no memory to identify the model");
    for (size_t i = 0; i < safetensors_count(s) && !rc && reads < MOST_READS; i++) {
        const struct tensor_info *t = safetensors_at(s, i);
        size_t n = sample_of(t);
        if (n == 0 || n > left) continue;
        rc = safetensors_read_raw(s, t->file, t->offset, bytes, n, &got, e);
        if (rc) break;
        if (got < n)
            rc =
                err_set(e, E_MODEL, "%s: %s ends too early", safetensors_path(s, t->file), t->name);
        SHA256Update(c, bytes, got);
        left -= n;
        reads++;
    }
    free(bytes);
    return rc;
}

enum status model_id(const char *dir, char sha256[65], struct err *e)
{
    static const char *const small[] = {"config.json", "generation_config.json", "tiktoken.model",
                                        "tokenizer_config.json", "preprocessor_config.json"};
    SHA2_CTX c;
    SHA256Init(&c);
    struct safetensors *s;
    enum status rc = safetensors_open(&s, dir, false, e);
    if (rc) return rc;
    for (size_t i = 0; i < sizeof small / sizeof *small && !rc; i++) {
        struct buf path = {0};
        SHA256Update(&c, (const uint8_t *)small[i], strlen(small[i]) + 1);
        rc = buf_addf(&path, e, "%s/%s", dir, small[i]);
        if (!rc && os_exists(path.data)) rc = hash_file(&c, path.data, e);
        buf_free(&path);
    }
    for (size_t i = 0; i < safetensors_count(s) && !rc; i++) hash_tensor(&c, safetensors_at(s, i));
    if (!rc) rc = hash_weights(&c, s, e);
    safetensors_close(s);
    if (rc) return rc;
    SHA256End(&c, sha256);
    return OK;
}
