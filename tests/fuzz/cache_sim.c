/* Parses what it is given as a trace and replays it when it is one. */
#include "src/cache_sim.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mem mem;
    struct cache_sim *s;
    struct err e;
    char *text = malloc(size + 1);
    if (!text) abort();
    memcpy(text, data, size);
    text[size] = 0;
    mem_init(&mem, (uint64_t)1 << 24);
    if (cache_sim_parse(&s, &mem, "trace", text, size, &e) == OK) {
        for (int p = 0; p < CACHE_POLICIES; p++) {
            struct cache_sim_opts o = {(enum cache_policy)p, 1 + size % 3, 0.3};
            struct cache_sim_result r;
            if (cache_sim_run(s, &o, &r, &e) == OK && r.hits + r.misses != r.uses) abort();
        }
        cache_sim_close(s);
    }
    mem_close(&mem);
    free(text);
    return 0;
}
