/* Memory, settings and small questions of a job; reading and writing are in job_parse, job_field,
 * job_message and job_spec. */
#include "jobs/job.h"

#include "jobs/job_build.h"

#include <sha256.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 2048

struct job_arena {
    struct job_arena *older;
    size_t used, size;
    _Alignas(16) char bytes[];
};

enum status job_alloc(struct job *j, void *out_ptr, size_t bytes, struct err *e)
{
    struct job_arena *a = j->arena;
    if (bytes > SIZE_MAX / 4) return err_set(e, E_NOMEM, "job: impossible size");
    bytes = (bytes + 15) & ~(size_t)15;
    if (!a || a->size - a->used < bytes) {
        size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        a = calloc(1, sizeof *a + size);
        if (!a) return err_set(e, E_NOMEM, "job: no memory for %zu bytes", size);
        a->size = size;
        a->older = j->arena;
        j->arena = a;
    }
    *(void **)out_ptr = a->bytes + a->used;
    a->used += bytes;
    return OK;
}

enum status job_grow(struct job *j, const struct job_array *a, struct err *e)
{
    if (a->n < *a->cap) return OK;
    void *p;
    size_t cap = *a->cap ? *a->cap * 2 : 4;
    enum status rc = job_alloc(j, &p, cap * a->size, e);
    if (rc) return rc;
    if (a->n) memcpy(p, *a->at, a->n * a->size);
    *a->at = p;
    *a->cap = cap;
    return OK;
}

enum status job_copy(struct job *j, const char **out, const char *text, size_t len, struct err *e)
{
    char *p;
    enum status rc = job_alloc(j, &p, len + 1, e);
    if (rc) return rc;
    memcpy(p, text, len);
    *out = p;
    return OK;
}

void job_free(struct job *j)
{
    while (j->arena) {
        struct job_arena *older = j->arena->older;
        free(j->arena);
        j->arena = older;
    }
    *j = (struct job){0};
}

const char *job_form_name(enum job_form form)
{
    static const char *const names[JOB_FORMS] = {"openai", "anthropic", "messages", "short",
                                                 "file"};
    return names[form];
}

const struct job_settings job_default_settings = {
    .has = (JOB_HAS_TIMEOUT << 1) - 1,
    .max_tokens = 1024,
    .top_p = 1,
};

void job_settings_fill(struct job_settings *s, const struct job_settings *from)
{
    unsigned take = from->has & ~s->has;
    if (take & JOB_HAS_MAX_TOKENS) s->max_tokens = from->max_tokens;
    if (take & JOB_HAS_TEMPERATURE) s->temperature = from->temperature;
    if (take & JOB_HAS_TOP_P) s->top_p = from->top_p;
    if (take & JOB_HAS_TOP_K) s->top_k = from->top_k;
    if (take & JOB_HAS_SEED) s->seed = from->seed;
    if (take & JOB_HAS_STOP) {
        s->stops = from->stops;
        s->n_stops = from->n_stops;
    }
    if (take & JOB_HAS_EFFORT) s->effort = from->effort;
    if (take & JOB_HAS_PRIORITY) s->priority = from->priority;
    if (take & JOB_HAS_TIMEOUT) s->timeout_s = from->timeout_s;
    s->has |= take;
}

void job_set_image_size(struct job *j, size_t i, unsigned width, unsigned height)
{
    j->images[i].part->width = width;
    j->images[i].part->height = height;
}

uint64_t job_shard_hash(const struct job *j)
{
    const char *key = j->custom_id ? j->custom_id : "";
    if (j->n_images) key = j->images[0].ref ? j->images[0].ref : j->images[0].sha256;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA2_CTX c;
    SHA256Init(&c);
    SHA256Update(&c, (const uint8_t *)key, strlen(key));
    SHA256Final(digest, &c);
    uint64_t h = 0;
    for (int i = 0; i < 8; i++) h = h << 8 | digest[i];
    return h;
}

bool job_in_shard(const struct job *j, uint32_t k, uint32_t n)
{
    uint64_t h = j->custom_id ? job_shard_hash(j) : 0;
    return n == 0 || h % n == k - 1;
}
