/* A short list of snapshots, the most recently used first. */
#include "src/prefix.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ENTRIES 256

struct entry {
    struct prefix_key key;
    struct state state; /* capacity == length */
    uint64_t bytes;
    bool reserved; /* and not yet filled */
};

struct prefix_store {
    struct mem *mem;
    const struct config *config;
    uint64_t limit, used;
    struct entry entry[MAX_ENTRIES];
    size_t n;
    struct prefix_stats stats;
};

enum status prefix_open(struct prefix_store **out, struct mem *mem, const struct config *c,
                        uint64_t limit_bytes, struct err *e)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return err_set(e, E_NOMEM, "shared beginnings: no memory");
    (*out)->mem = mem;
    (*out)->config = c;
    (*out)->limit = limit_bytes;
    return OK;
}

static void drop(struct prefix_store *p, size_t i)
{
    state_free(&p->entry[i].state, p->mem);
    p->used -= p->entry[i].bytes;
    memmove(&p->entry[i], &p->entry[i + 1], (--p->n - i) * sizeof p->entry[0]);
    p->stats.dropped++;
}

void prefix_close(struct prefix_store *p)
{
    if (!p) return;
    prefix_settle(p);
    while (prefix_shrink(p)) {
    }
    free(p);
}

struct prefix_key prefix_empty(void)
{
    return (struct prefix_key){0x243f6a8885a308d3u, 0x13198a2e03707344u};
}

static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct prefix_key prefix_step(struct prefix_key k, uint64_t row)
{
    k.a = mixed(k.a ^ (row + 0x9e3779b97f4a7c15u));
    k.b = mixed(k.b + (row ^ 0xc2b2ae3d27d4eb4fu) * 0xff51afd7ed558ccdu) + k.a;
    return k;
}

static void to_front(struct prefix_store *p, size_t i)
{
    struct entry e = p->entry[i];
    memmove(&p->entry[1], &p->entry[0], i * sizeof e);
    p->entry[0] = e;
}

static bool is_named(const struct entry *e, struct prefix_key key, size_t length)
{
    return e->state.length == length && e->key.a == key.a && e->key.b == key.b;
}

static size_t index_of(const struct prefix_store *p, struct prefix_key key, size_t length)
{
    size_t i = 0;
    while (i < p->n && (p->entry[i].reserved || !is_named(&p->entry[i], key, length))) i++;
    return i;
}

/* Copies length rows; `to` has the capacity for them. */
static void copy_state(const struct config *c, struct state *to, const struct state *from)
{
    size_t mla = config_layers_of(c, LAYER_MLA);
    uint64_t fixed = config_state_bytes(c),
             kda = (uint64_t)c->kda_heads * c->kda_dim * c->kda_dim * sizeof(float);
    kda *= config_layers_of(c, LAYER_KDA);
    memcpy(to->kda, from->kda, kda);
    memcpy(to->conv, from->conv, fixed - kda);
    size_t row = (c->kv_lora + c->rope_dim) * sizeof(float);
    for (unsigned i = 0; i < mla; i++)
        memcpy(state_latent(to, c, i), state_latent(from, c, i), from->length * row);
    to->length = from->length;
}

size_t prefix_restore(struct prefix_store *p, const uint64_t *rows, size_t n, struct state *s)
{
    struct prefix_key key = prefix_empty();
    bool found = false;
    for (size_t i = 0; i < n && p->n; i++) {
        key = prefix_step(key, rows[i]);
        size_t at = index_of(p, key, i + 1);
        if (at == p->n) continue;
        to_front(p, at); /* the shorter ones too: they were used on the way */
        found = true;
    }
    if (!found) return 0;
    copy_state(p->config, s, &p->entry[0].state);
    p->stats.restored++;
    p->stats.rows_saved += s->length;
    return s->length;
}

size_t prefix_find(const struct prefix_store *p, const uint64_t *rows, size_t n)
{
    struct prefix_key key = prefix_empty();
    size_t longest = 0;
    for (size_t i = 0; i < n && p->n; i++) {
        key = prefix_step(key, rows[i]);
        if (index_of(p, key, i + 1) < p->n) longest = i + 1;
    }
    return longest;
}

bool prefix_reserve(struct prefix_store *p, struct prefix_key key, size_t length, struct state *s)
{
    for (size_t i = 0; i < p->n; i++)
        if (is_named(&p->entry[i], key, length)) return false;
    uint64_t bytes = state_bytes(p->config, length);
    if (bytes > p->limit) return false;
    while (p->n == MAX_ENTRIES || p->used + bytes > p->limit)
        if (!prefix_shrink(p)) return false;
    struct entry e = {.key = key, .bytes = bytes, .reserved = true};
    if (state_init(&e.state, p->mem, p->config, length, NULL)) return false;
    e.state.length = length;
    *s = e.state;
    p->entry[p->n++] = e;
    to_front(p, p->n - 1);
    p->used += bytes;
    p->stats.kept++;
    return true;
}

void prefix_settle(struct prefix_store *p)
{
    for (size_t i = 0; i < p->n; i++) p->entry[i].reserved = false;
}

void prefix_branched(struct prefix_store *p, size_t rows)
{
    p->stats.branched++;
    p->stats.rows_saved += rows;
}

bool prefix_shrink(struct prefix_store *p)
{
    if (!p->n || p->entry[p->n - 1].reserved) return false;
    drop(p, p->n - 1);
    return true;
}

void prefix_stats(const struct prefix_store *p, struct prefix_stats *out)
{
    *out = p->stats;
    out->bytes = p->used;
}
