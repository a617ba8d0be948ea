/* How fast the disk gives experts: a plain loop of direct reads over the same files, and a sweep
 * over all experts through the cache with its readers, without arithmetic. */
#ifndef NS_BENCH_IO_H
#define NS_BENCH_IO_H

#include "src/expert_io.h"
#include "src/mem.h"
#include "src/safetensors.h"

#include <stdbool.h>

/* One reading loop: so many threads, each reading blocks of so many bytes, in file order. */
struct bench_io_loop {
    unsigned threads;
    size_t block;
    double bytes_s;
};
#define BENCH_IO_LOOPS 6

struct bench_io_opts {
    struct mem *mem;
    const struct safetensors *files;
    const struct expert_io *io;
    const uint8_t *is_moe; /* [layers] */
    unsigned layers, experts;
    bool direct;     /* as the files were opened */
    double seconds;  /* for each figure, about */
    size_t region;   /* experts, from the first: all loops stay in the part of the files that has
                        these, so that they meet the same state of what caches there are. 0: all of
                        the files */
    uint64_t *place; /* where the last loop ended, bytes of all files; each goes on there, so that
                        what some cache below the file system still holds is not read again. NULL:
                        for bench_io_experts, which begins anywhere */
};

/* The loops to try. */
extern const struct bench_io_loop bench_io_loops[BENCH_IO_LOOPS];
/* Runs one; its block becomes smaller where the files are small. */
enum status bench_io_plain(const struct bench_io_opts *o, struct bench_io_loop *l, struct err *e);

/* Through the cache, all experts once in order, or as far as the time goes; first: the one to begin
 * with, which becomes the one to go on with. */
struct bench_io_stream {
    size_t slots, experts;
    double bytes_s, wait_s;
};
enum status bench_io_stream(const struct bench_io_opts *o, size_t slots, size_t *first,
                            struct bench_io_stream *out, struct err *e);

/* Whole experts from all over the files, READERS_THREADS at a time, into slots
 * [n_slots][slot_bytes]; the last ones stay there: at [n_slots] says where each begins, keys
 * [n_slots] which it is. */
struct bench_io_slots {
    char *slots; /* from mem; NULL at first */
    size_t n, slot_bytes;
    size_t *at;
    uint32_t *keys;
};
enum status bench_io_experts(const struct bench_io_opts *o, struct bench_io_slots *s,
                             double *bytes_s, struct err *e);

#endif
