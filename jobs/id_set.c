/* A hash table with open addressing, at most three quarters full. */
#include "jobs/id_set.h"

#include <sha256.h>
#include <stdlib.h>
#include <string.h>

/* The slot of key, or the free one where it belongs. */
static struct id_slot *find(const struct id_set *s, uint64_t key)
{
    size_t i = key & (s->cap - 1);
    while (s->slots[i].key && s->slots[i].key != key) i = (i + 1) & (s->cap - 1);
    return &s->slots[i];
}

static enum status grow(struct id_set *s, struct err *e)
{
    struct id_set larger = {.cap = s->cap ? s->cap * 2 : 1024, .n = s->n};
    larger.slots = calloc(larger.cap, sizeof *larger.slots);
    if (!larger.slots) return err_set(e, E_NOMEM, "no memory for %zu ids", larger.cap);
    for (size_t i = 0; i < s->cap; i++)
        if (s->slots[i].key) *find(&larger, s->slots[i].key) = s->slots[i];
    free(s->slots);
    *s = larger;
    return OK;
}

static uint64_t key_of(const char *id)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    uint64_t key;
    SHA2_CTX sha;
    SHA256Init(&sha);
    SHA256Update(&sha, (const uint8_t *)id, strlen(id));
    SHA256Final(digest, &sha);
    memcpy(&key, digest, sizeof key);
    return key ? key : 1;
}

enum status id_set_add(struct id_set *s, const char *id, uint64_t place, uint64_t *first,
                       struct err *e)
{
    if (s->n >= s->cap / 4 * 3) {
        enum status rc = grow(s, e);
        if (rc) return rc;
    }
    uint64_t key = key_of(id);
    struct id_slot *slot = find(s, key);
    if (!slot->key) {
        *slot = (struct id_slot){key, place};
        s->n++;
    }
    *first = slot->place;
    return OK;
}

void id_set_free(struct id_set *s)
{
    free(s->slots);
    *s = (struct id_set){0};
}
