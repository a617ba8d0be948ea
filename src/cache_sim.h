/* Replays recorded expert routes through cache policies and counts reads.
 *
 * A trace is one JSON object a line, one line per token of a document: {"layers": [[expert ids of
 * layer 0], ...]}; a dense layer has an empty list. To see what a batch does, the document is cut
 * into as many windows as there are sequences, and a sweep takes the next token of each: every
 * layer uses the union of their experts, in ascending order, each once. The policies move whole
 * experts and always keep what they just read, as expert_cache does. Pure: no threads, no clock. */
#ifndef NS_CACHE_SIM_H
#define NS_CACHE_SIM_H

#include "src/mem.h"

#include <stddef.h>
#include <stdint.h>

struct cache_sim;

/* E_INPUT names file and line; E_IO. End with cache_sim_close. */
enum status cache_sim_open(struct cache_sim **out, struct mem *mem, const char *path,
                           struct err *e);
/* The same from text in memory (name: for messages); text[len] is 0. */
enum status cache_sim_parse(struct cache_sim **out, struct mem *mem, const char *name,
                            const char *text, size_t len, struct err *e);
void cache_sim_close(struct cache_sim *s);

struct cache_sim_facts {
    uint32_t tokens, layers; /* layers: those with experts */
    uint32_t experts;        /* of one layer: largest id + 1 */
};
void cache_sim_facts(const struct cache_sim *s, struct cache_sim_facts *out);

enum cache_policy {
    CACHE_LRU,    /* gives up what was used longest ago */
    CACHE_LFU,    /* what was used least often */
    CACHE_HEAT,   /* expert_heat.h: what expert_cache does */
    CACHE_BELADY, /* what will be used last: no policy can read less */
    CACHE_POLICIES
};
const char *cache_sim_policy_name(enum cache_policy p);

struct cache_sim_opts {
    enum cache_policy policy;
    uint32_t sequences; /* 1..tokens; tokens left over are not used */
    double share;       /* of all experts that are cached, 0..1; at least two slots */
};

struct cache_sim_result {
    uint64_t tokens, slots;
    uint64_t uses;         /* experts of all layers and sweeps */
    uint64_t hits, misses; /* uses = hits + misses */
    uint64_t first_uses;   /* misses that an endless cache has too */
    double reads_per_token;
};

/* E_USAGE for options out of range. Takes slots x uses steps at most. */
enum status cache_sim_run(const struct cache_sim *s, const struct cache_sim_opts *o,
                          struct cache_sim_result *out, struct err *e);

#endif
