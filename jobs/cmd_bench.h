/* `bench`: figures of this machine with this model, each beside the limit it is to be judged by.
 *
 * A section is a function that prints rows; its name is what --only takes. Limits (disk, memory,
 * arithmetic) are measured in the same run. Counts come before seconds. Figures that would take too
 * long, or do not fit into --ram, are told as skipped, with the reason. */
#ifndef NS_CMD_BENCH_H
#define NS_CMD_BENCH_H

#include "jobs/cmd_speed.h"
#include "src/bench_io.h"
#include "src/bench_run.h"

/* name, title */
#define BENCH_SECTIONS(X)                                                                          \
    X(machine, "what the plan is made from")                                                       \
    X(kern, "products of weights and rows, all threads; limits: registers alone, memory alone")    \
    X(vit, "pictures through the vision tower")                                                    \
    X(disk, "all experts in order through the cache, no arithmetic; limit: plain direct reads")    \
    X(overlap, "a sweep beside its reads alone and its arithmetic alone")                          \
    X(decode, "tokens of many sequences; limit: each needed, uncached expert read once")           \
    X(prefill, "rows of prompts")                                                                  \
    X(captions, "448 x 448 pictures, 32 words, answers of 64 tokens; end to end")                  \
    X(cache, "reads of cache policies on recorded routes")

struct cmd_bench {
    const struct cmd_options *o;
    struct cmd_model m;
    struct compute compute;
    uint64_t ram;
    double seconds;                /* of a figure, about */
    double most_s;                 /* a figure that takes longer is left out */
    struct bench_io_loop disk;     /* best plain loop; bytes_s 0: not measured yet */
    uint64_t disk_place;           /* of the files, where it goes on */
    const char *section, *printed; /* the one under way; the one whose head was printed last */
};

/* One figure of a row; text where it is not a number. */
struct bench_value {
    const char *name;
    double v;
    int digits; /* behind the point */
    const char *text;
};
void cmd_bench_row(struct cmd_bench *b, const struct bench_value *v, size_t n);
void cmd_bench_skip(struct cmd_bench *b, const char *what, const char *why);
/* E_BUDGET and E_STOPPED only leave a figure out; *rc becomes OK. True when it was one of them. */
bool cmd_bench_left_out(struct cmd_bench *b, const char *what, enum status *rc,
                        const struct err *e);

#define X(name, title) enum status cmd_bench_##name(struct cmd_bench *b, struct err *e);
BENCH_SECTIONS(X)
#undef X

/* Bytes a second of the best plain loop, now, over the next part of the files, in about so many
 * seconds: for disks that are not equally fast at all times. */
enum status cmd_bench_disk_now(struct cmd_bench *b, double seconds, double *bytes_s, struct err *e);
/* Floating point operations a second of all threads on registers alone. */
enum status cmd_bench_peak(const struct cmd_bench *b, double *peak, struct err *e);
struct bench_run_opts cmd_bench_run_opts(const struct cmd_bench *b);

#endif
