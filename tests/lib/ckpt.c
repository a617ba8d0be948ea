/* Plans the shards, then writes one after the other: header, values made block by block. */
#include "tests/lib/ckpt.h"

#include "src/kern.h"
#include "src/mem.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

#define BLOCK ((size_t)1 << 16) /* values made at a time */

static const char *const dtype_names[] = {"BF16", "F32", "U8"};
static const unsigned dtype_bytes[] = {2, 4, 1};

void ckpt_init(struct ckpt *c, uint64_t seed, uint64_t shard_bytes)
{
    *c = (struct ckpt){.seed = seed, .shard_bytes = shard_bytes};
}

void ckpt_free(struct ckpt *c)
{
    for (size_t i = 0; i < c->n; i++) free(c->at[i].name);
    free(c->at);
    free(c->starts);
    *c = (struct ckpt){0};
}

enum status ckpt_add(struct ckpt *c, const struct ckpt_tensor *t, int start, struct err *e,
                     const char *fmt, ...)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 256;
        void *at = realloc(c->at, cap * sizeof *c->at);
        if (at) c->at = at;
        void *starts = realloc(c->starts, cap);
        if (starts) c->starts = starts;
        if (!at || !starts) return err_set(e, E_NOMEM, "list of tensors: no memory");
        c->cap = cap;
    }
    va_list ap;
    va_start(ap, fmt);
    char *name;
    int len = vasprintf(&name, fmt, ap);
    va_end(ap);
    if (len < 0) return err_set(e, E_NOMEM, "tensor name: no memory");
    c->at[c->n] = *t;
    c->at[c->n].name = name;
    c->starts[c->n++] = (uint8_t)start;
    return OK;
}

static uint64_t values(const struct ckpt_tensor *t)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < t->dims; i++) n *= t->shape[i];
    return n;
}

static uint64_t bytes(const struct ckpt_tensor *t)
{
    return values(t) * dtype_bytes[t->dtype];
}

uint64_t ckpt_bytes(const struct ckpt *c)
{
    uint64_t n = 0;
    for (size_t i = 0; i < c->n; i++) n += bytes(&c->at[i]);
    return n;
}

float ckpt_sign(uint64_t seed, int topic, uint64_t column)
{
    unsigned long long s = seed ^ (uint64_t)(topic + 1) << 40 ^ (column / 64 + 1) << 8;
    return test_rand(&s) >> (column % 64) & 1 ? 1.0f : -1.0f;
}

/* Near enough to a normal distribution: four 16-bit uniforms added, standard deviation 1. */
static float normal(unsigned long long *rng)
{
    unsigned long long r = test_rand(rng);
    int sum = (int16_t)r + (int16_t)(r >> 16) + (int16_t)(r >> 32) + (int16_t)(r >> 48);
    return (float)sum * (1.0f / 37837.23f);
}

static float uniform(unsigned long long *rng)
{
    return (float)(test_rand(rng) >> 40) * 0x1p-24f;
}

/* Values [first, first + n) of t. */
static void fill_floats(const struct ckpt *c, const struct ckpt_tensor *t, uint64_t first,
                        float *out, size_t n, unsigned long long *rng)
{
    float a = (float)t->a, b = (float)t->b;
    uint64_t cols = t->dims ? t->shape[t->dims - 1] : 1;
    for (size_t i = 0; i < n; i++) {
        switch (t->fill) {
        case FILL_UNIFORM:
            out[i] = a + (b - a) * uniform(rng);
            break;
        case FILL_LOG_UNIFORM:
            out[i] = first + i < t->used ? logf(a + (b - a) * uniform(rng)) : 0;
            break;
        case FILL_AROUND:
            out[i] = b + a * normal(rng);
            break;
        default:
            out[i] = a * normal(rng);
        }
    }
    if (t->fill != FILL_TOPIC) return;
    for (size_t i = 0; i < n; i++) {
        int topic = t->topics[(first + i) / cols];
        if (topic >= 0) out[i] += b * ckpt_sign(c->seed, topic, (first + i) % cols);
    }
}

static void fill_bytes(const struct ckpt_tensor *t, uint8_t *out, size_t n, unsigned long long *rng)
{
    for (size_t i = 0; i < n; i += 8) {
        unsigned long long r = test_rand(rng);
        for (size_t j = 0; j < 8 && i + j < n; j++, r >>= 8) {
            int step = (r & 3) == 0 ? -1 : (r & 3) == 1 ? 1 : 0;
            out[i + j] = t->fill == FILL_CODES ? (uint8_t)r : (uint8_t)(127 + (int)t->a + step);
        }
    }
}

static bool write_values(const struct ckpt *c, const struct ckpt_tensor *t, FILE *f)
{
    static float wide[BLOCK];
    static uint16_t half[BLOCK];
    unsigned long long rng = c->seed;
    for (const char *p = t->name; *p; p++) rng = (rng ^ (unsigned char)*p) * 0x100000001b3ull;
    uint64_t total = values(t);
    for (uint64_t at = 0; at < total; at += BLOCK) {
        size_t n = total - at < BLOCK ? (size_t)(total - at) : BLOCK;
        const void *from = wide;
        if (t->dtype == CKPT_U8) {
            fill_bytes(t, (uint8_t *)half, n, &rng);
            from = half;
        } else {
            fill_floats(c, t, at, wide, n, &rng);
        }
        if (t->dtype == CKPT_BF16) {
            for (size_t i = 0; i < n; i++) half[i] = f32_to_bf16(wide[i]);
            from = half;
        }
        if (fwrite(from, dtype_bytes[t->dtype], n, f) != n) return false;
    }
    return true;
}

/* The tensors [first, end) of the shard that begins with `first`; an atom (a tensor and those
 * joined to it) stays whole. */
static size_t shard_end(const struct ckpt *c, size_t first)
{
    uint64_t total = 0;
    size_t i = first;
    while (i < c->n) {
        uint64_t atom = bytes(&c->at[i]);
        size_t next = i + 1;
        for (; next < c->n && c->starts[next] == CKPT_JOINED; next++) atom += bytes(&c->at[next]);
        if (i > first && (c->starts[i] == CKPT_NEW_SHARD || total + atom > c->shard_bytes)) break;
        total += atom;
        i = next;
    }
    return i;
}

static enum status shard_header(const struct ckpt *c, size_t first, size_t end, struct buf *out,
                                struct err *e)
{
    uint64_t at = 0;
    enum status rc = buf_addf(out, e, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = first; i < end && !rc; i++) {
        const struct ckpt_tensor *t = &c->at[i];
        rc = buf_addf(out, e, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name,
                      dtype_names[t->dtype]);
        for (unsigned d = 0; d < t->dims && !rc; d++)
            rc = buf_addf(out, e, "%s%" PRIu64, d ? "," : "", t->shape[d]);
        if (!rc)
            rc = buf_addf(out, e, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at,
                          at + bytes(t));
        at += bytes(t);
    }
    if (!rc) rc = buf_addf(out, e, "}");
    while (!rc && out->len % 8) rc = buf_addf(out, e, " ");
    return rc;
}

static enum status write_shard(const struct ckpt *c, size_t first, size_t end, const char *path,
                               struct err *e)
{
    struct buf header = {0};
    enum status rc = shard_header(c, first, end, &header, e);
    if (rc) goto out;
    FILE *f = fopen(path, "wb");
    if (!f) {
        rc = err_errno(e, errno, "%s: cannot create", path);
        goto out;
    }
    uint64_t len = header.len;
    bool good = fwrite(&len, sizeof len, 1, f) == 1 && fwrite(header.data, len, 1, f) == 1;
    for (size_t i = first; i < end && good; i++) good = write_values(c, &c->at[i], f);
    int errnum = errno;
    if (fclose(f) != 0 && good) {
        good = false;
        errnum = errno;
    }
    if (!good) rc = err_errno(e, errnum, "%s: cannot write", path);
out:
    buf_free(&header);
    return rc;
}

enum status ckpt_write(const struct ckpt *c, const char *dir, struct err *e)
{
    struct buf index = {0};
    char path[4096];
    size_t shards = 0, shard = 0;
    for (size_t i = 0; i < c->n; i = shard_end(c, i)) shards++;
    enum status rc = buf_addf(
        &index, e, "{\"metadata\":{\"total_size\":%" PRIu64 "},\"weight_map\":{", ckpt_bytes(c));
    for (size_t first = 0, end; first < c->n && !rc; first = end) {
        end = shard_end(c, first);
        char name[64];
        snprintf(name, sizeof name, "model-%05zu-of-%06zu.safetensors", ++shard, shards);
        snprintf(path, sizeof path, "%s/%s", dir, name);
        rc = write_shard(c, first, end, path, e);
        for (size_t i = first; i < end && !rc; i++)
            rc = buf_addf(&index, e, "%s\n\"%s\":\"%s\"", i ? "," : "", c->at[i].name, name);
    }
    if (!rc) rc = buf_addf(&index, e, "}}\n");
    if (!rc) {
        snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
        test_write(path, index.data, index.len);
    }
    buf_free(&index);
    return rc;
}
