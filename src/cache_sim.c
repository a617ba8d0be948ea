/* Cache policies on recorded routes.
 *
 * A trace becomes one list of ids with the start of each (token, layer). A run turns it into the
 * sequence of uses (keys in order, with the place of each key's next use), which every policy then
 * replays; they differ in what a resident expert is worth. */
#include "src/cache_sim.h"

#include "src/expert_heat.h"
#include "src/os.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX    ((size_t)1 << 30)
#define LINE_MAX    ((size_t)1 << 20) /* one line's JSON tree is some 40 times as large */
#define LAYERS_MAX  4096
#define EXPERTS_MAX 65536
#define KEYS_MAX    ((uint64_t)1 << 24)
#define NEVER       UINT32_MAX

struct cache_sim {
    struct mem *mem;
    uint32_t tokens, layers, experts, moe_layers;
    uint32_t *start; /* [tokens * layers + 1] into ids */
    uint16_t *ids;
};

struct reader {
    const char *name;
    size_t line;
    struct buf start, ids; /* uint32_t, uint16_t */
    uint32_t tokens, layers, largest;
};

static enum status bad_line(const struct reader *r, const char *what, struct err *e)
{
    return err_set(e, E_INPUT, "%s line %zu: %s", r->name, r->line, what);
}

static enum status add_layer(struct reader *r, const cJSON *list, struct err *e)
{
    uint32_t at = (uint32_t)(r->ids.len / sizeof(uint16_t));
    enum status rc = buf_add(&r->start, &at, sizeof at, e);
    if (!cJSON_IsArray(list)) return bad_line(r, "a layer is not a list", e);
    for (const cJSON *c = list->child; c && !rc; c = c->next) {
        double d = cJSON_IsNumber(c) ? c->valuedouble : -1;
        if (!(d >= 0 && d < EXPERTS_MAX) || d != (double)(uint16_t)d)
            return bad_line(r, "an expert id is not in 0..65535", e);
        uint16_t id = (uint16_t)d;
        if (id > r->largest) r->largest = id;
        rc = buf_add(&r->ids, &id, sizeof id, e);
    }
    return rc;
}

static enum status add_token(struct reader *r, const char *text, size_t len, struct err *e)
{
    if (len > LINE_MAX) return bad_line(r, "too long", e);
    const char *end = text;
    cJSON *json = cJSON_ParseWithLengthOpts(text, len, &end, false);
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(json, "layers");
    enum status rc = OK;
    if (!json || (size_t)(end - text) + strspn(end, " \t\r") != len)
        rc = bad_line(r, "not JSON", e);
    else if (!cJSON_IsArray(layers))
        rc = bad_line(r, "no list \"layers\"", e);
    uint32_t n = 0;
    for (const cJSON *c = rc ? NULL : layers->child; c && !rc; c = c->next, n++)
        rc = n == LAYERS_MAX ? bad_line(r, "more than 4096 layers", e) : add_layer(r, c, e);
    if (!rc && r->tokens && n != r->layers)
        rc = bad_line(r, "another number of layers than the line before", e);
    r->layers = n;
    r->tokens++;
    cJSON_Delete(json);
    return rc;
}

static enum status add_lines(struct reader *r, const char *text, size_t len, struct err *e)
{
    enum status rc = OK;
    for (size_t at = 0; at < len && !rc;) {
        const char *newline = memchr(text + at, '\n', len - at);
        size_t n = newline ? (size_t)(newline - text) - at : len - at;
        r->line++;
        if (strspn(text + at, " \t\r") < n) rc = add_token(r, text + at, n, e);
        at += n + 1;
    }
    if (!rc && !r->ids.len) rc = err_set(e, E_INPUT, "%s holds no routes", r->name);
    if (!rc && ((uint64_t)r->largest + 1) * r->layers > KEYS_MAX)
        rc = err_set(e, E_INPUT, "%s: %u layers of %u experts are too many", r->name, r->layers,
                     r->largest + 1);
    return rc;
}

static enum status from_reader(struct cache_sim **out, struct mem *mem, const struct reader *r,
                               struct err *e)
{
    struct cache_sim *s;
    enum status rc = mem_alloc(mem, &s, sizeof *s, "routes", e);
    if (rc) return rc;
    *s = (struct cache_sim){
        .mem = mem, .tokens = r->tokens, .layers = r->layers, .experts = r->largest + 1};
    uint32_t n = (uint32_t)(r->ids.len / sizeof *s->ids);
    rc = mem_alloc(mem, &s->start, r->start.len + sizeof n, "routes", e);
    if (!rc) rc = mem_alloc(mem, &s->ids, r->ids.len, "routes", e);
    if (rc) {
        cache_sim_close(s);
        return rc;
    }
    memcpy(s->start, r->start.data, r->start.len);
    s->start[(size_t)r->tokens * r->layers] = n;
    memcpy(s->ids, r->ids.data, r->ids.len);
    for (uint32_t l = 0; l < s->layers; l++) {
        bool moe = false;
        for (uint32_t t = 0; t < s->tokens && !moe; t++)
            moe = s->start[(size_t)t * s->layers + l] != s->start[(size_t)t * s->layers + l + 1];
        s->moe_layers += moe;
    }
    *out = s;
    return OK;
}

enum status cache_sim_parse(struct cache_sim **out, struct mem *mem, const char *name,
                            const char *text, size_t len, struct err *e)
{
    *out = NULL;
    struct reader r = {.name = name};
    enum status rc =
        len > FILE_MAX ? err_set(e, E_INPUT, "%s is too large", name) : add_lines(&r, text, len, e);
    if (!rc) rc = from_reader(out, mem, &r, e);
    buf_free(&r.start);
    buf_free(&r.ids);
    return rc;
}

enum status cache_sim_open(struct cache_sim **out, struct mem *mem, const char *path, struct err *e)
{
    *out = NULL;
    char *text;
    size_t len;
    enum status rc = os_read_file(path, FILE_MAX, &text, &len, e);
    if (rc) return rc;
    rc = cache_sim_parse(out, mem, path, text, len, e);
    free(text);
    return rc;
}

void cache_sim_close(struct cache_sim *s)
{
    if (!s) return;
    mem_free(s->mem, s->start);
    mem_free(s->mem, s->ids);
    mem_free(s->mem, s);
}

void cache_sim_facts(const struct cache_sim *s, struct cache_sim_facts *out)
{
    *out = (struct cache_sim_facts){s->tokens, s->moe_layers, s->experts};
}

const char *cache_sim_policy_name(enum cache_policy p)
{
    static const char *const names[CACHE_POLICIES] = {"lru", "lfu", "heat", "belady"};
    return names[p];
}

struct use {
    uint32_t key, sweep;
    uint32_t next;      /* place of this key's next use, or NEVER */
    uint32_t layer_end; /* place of the last use of this sweep and layer */
};

struct run {
    const struct cache_sim *s;
    enum cache_policy policy;
    uint32_t keys, sweeps;
    struct use *uses;
    size_t n_uses;
    uint32_t *resident; /* [slots] keys, n_resident of them */
    size_t slots, n_resident;
    struct known { /* [keys] */
        uint32_t last, next, count;
        bool used, resident;
    } * known;
    struct expert_heat heat;
};

/* One layer of one sweep: the union over all windows, ascending. */
static void add_layer_uses(struct run *r, uint32_t sweep, uint32_t layer, uint32_t sequences,
                           bool *wanted)
{
    const struct cache_sim *s = r->s;
    for (uint32_t q = 0; q < sequences; q++) {
        size_t at = ((size_t)q * r->sweeps + sweep) * s->layers + layer;
        for (uint32_t i = s->start[at]; i < s->start[at + 1]; i++) wanted[s->ids[i]] = true;
    }
    size_t first = r->n_uses;
    for (uint32_t x = 0; x < s->experts; x++)
        if (wanted[x])
            r->uses[r->n_uses++] = (struct use){.key = layer * s->experts + x, .sweep = sweep};
    for (size_t i = first; i < r->n_uses; i++) r->uses[i].layer_end = (uint32_t)(r->n_uses - 1);
    memset(wanted, 0, s->experts * sizeof *wanted);
}

static enum status list_uses(struct run *r, uint32_t sequences, struct err *e)
{
    const struct cache_sim *s = r->s;
    bool *wanted;
    uint32_t *next = NULL;
    enum status rc = mem_array(s->mem, &wanted, s->experts, sizeof *wanted, "cache simulation", e);
    if (!rc) rc = mem_array(s->mem, &next, r->keys, sizeof *next, "cache simulation", e);
    if (rc) goto out;
    for (uint32_t t = 0; t < r->sweeps; t++)
        for (uint32_t l = 0; l < s->layers; l++) add_layer_uses(r, t, l, sequences, wanted);
    for (uint32_t k = 0; k < r->keys; k++) next[k] = NEVER;
    for (size_t i = r->n_uses; i-- > 0;) {
        r->uses[i].next = next[r->uses[i].key];
        next[r->uses[i].key] = (uint32_t)i;
    }
out:
    mem_free(s->mem, wanted);
    mem_free(s->mem, next);
    return rc;
}

static double worth(const struct run *r, uint32_t key, uint32_t layer_end)
{
    const struct known *k = &r->known[key];
    switch (r->policy) {
    case CACHE_LRU:
        return k->last;
    case CACHE_LFU:
        return k->count;
    case CACHE_BELADY:
        return -(double)k->next;
    default: /* expert_cache keeps what is announced: the rest of this layer */
        return k->next <= layer_end ? 1e12 : expert_heat_worth(&r->heat, key);
    }
}

/* Makes room for one more and puts it there. */
static void bring(struct run *r, const struct use *u)
{
    size_t at = r->n_resident;
    if (at < r->slots) {
        r->n_resident++;
    } else {
        double least = 0;
        for (size_t i = 0; i < r->slots; i++) {
            double w = worth(r, r->resident[i], u->layer_end);
            if (i && w >= least) continue;
            least = w;
            at = i;
        }
        r->known[r->resident[at]].resident = false;
    }
    r->resident[at] = u->key;
    r->known[u->key].resident = true;
}

static void replay(struct run *r, struct cache_sim_result *out)
{
    for (size_t i = 0; i < r->n_uses; i++) {
        const struct use *u = &r->uses[i];
        struct known *k = &r->known[u->key];
        if (!i || u->sweep != u[-1].sweep) expert_heat_tick(&r->heat);
        out->uses++;
        out->first_uses += !k->used;
        out->hits += k->resident;
        if (!k->resident) bring(r, u);
        expert_heat_use(&r->heat, u->key);
        *k = (struct known){(uint32_t)i, u->next, k->count + 1, true, true};
    }
    out->misses = out->uses - out->hits;
    out->reads_per_token = (double)out->misses / (double)out->tokens;
}

enum status cache_sim_run(const struct cache_sim *s, const struct cache_sim_opts *o,
                          struct cache_sim_result *out, struct err *e)
{
    if (o->sequences < 1 || o->sequences > s->tokens)
        return err_set(e, E_USAGE, "%u sequences: the trace has %u tokens", o->sequences,
                       s->tokens);
    if (!(o->share >= 0 && o->share <= 1) || o->policy >= CACHE_POLICIES)
        return err_set(e, E_USAGE, "a cache of %g of all experts", o->share);
    struct run r = {.s = s, .policy = o->policy, .sweeps = s->tokens / o->sequences};
    r.keys = s->layers * s->experts;
    r.slots = (size_t)(o->share * s->moe_layers * s->experts);
    if (r.slots < 2) r.slots = 2;
    *out = (struct cache_sim_result){.tokens = (uint64_t)r.sweeps * o->sequences, .slots = r.slots};
    static const char what[] = "cache simulation";
    size_t ids = s->start[(size_t)s->tokens * s->layers];
    enum status rc = mem_array(s->mem, &r.uses, ids, sizeof *r.uses, what, e);
    if (!rc) rc = mem_array(s->mem, &r.resident, r.slots, sizeof *r.resident, what, e);
    if (!rc) rc = mem_array(s->mem, &r.known, r.keys, sizeof *r.known, what, e);
    if (!rc) rc = expert_heat_init(&r.heat, s->mem, r.keys, e);
    if (!rc) rc = list_uses(&r, o->sequences, e);
    if (!rc) replay(&r, out);
    expert_heat_free(&r.heat);
    mem_free(s->mem, r.known);
    mem_free(s->mem, r.resident);
    mem_free(s->mem, r.uses);
    return rc;
}
