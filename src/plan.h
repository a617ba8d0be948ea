/* How one memory budget is shared out (design.md 3), before anything is loaded.
 *
 * Takes the sizes of a model, the speed of the machine and what the jobs are like; gives sequences,
 * rows per sweep, drafts, expert slots and pinned layers, and the bytes of each share: those with
 * which the most tokens per second are expected (forecast.h). Layers come before experts, for every
 * sweep reads a layer that is not pinned. E_BUDGET states the floor when the budget cannot work. */
#ifndef NS_PLAN_H
#define NS_PLAN_H

#include "src/config.h"
#include "src/plan_speed.h"

#include <stdbool.h>
#include <stddef.h>

/* The jobs of a queue, on average. 0: not known; then many jobs of 512 rows and 256 tokens. */
struct plan_mix {
    uint64_t jobs;
    double prompt_rows;   /* pictures' rows among them */
    double output_tokens; /* that a job gives, not the most it may */
    double room_rows;     /* prompt and the most tokens it may give; 0: as `context` */
    double image_rows;    /* rows of a job's pictures; 0: there are none */
};

struct plan_request {
    uint64_t ram_bytes; /* --ram; bounds the peak resident size of the process */
    unsigned threads;
    size_t max_sequences; /* 0: planner chooses */
    size_t prefill_rows;  /* per sweep; 0: planner chooses */
    size_t expert_slots;  /* 0: planner chooses */
    bool no_drafts, no_sharing;
    size_t context; /* longest prompt + output expected, rows; 0: a default */
    uint64_t vision_weights, vision_scratch; /* 0 without images */
    double vision_flop;                      /* of an average picture's row */
    uint64_t jobs_bytes;                     /* what jobs/ holds beside the engine */
    const struct plan_speed *speed;          /* NULL: plan_speed_guess */
    struct plan_mix mix;
};

/* Sizes of a model's parts in bytes, from its files. */
struct plan_model {
    const struct config *config;
    uint64_t global_bytes;                   /* embedding, head, final norms */
    uint64_t layer_bytes[CONFIG_MAX_LAYERS]; /* outside the routed experts */
    uint64_t expert_slot_bytes;              /* one expert in its slot; 0: no experts */
    uint64_t expert_bytes;                   /* one expert as stored */
    uint64_t expert_count;                   /* of all layers */
    uint64_t table_bytes;                    /* places of experts, use counts */
    uint64_t header_bytes;                   /* names of tensors, outside the budget's count */
};

struct plan {
    uint64_t ram_bytes;
    uint64_t reserve_bytes; /* what struct mem does not count: code, stacks, libraries, headers */
    uint64_t jobs_bytes, vision_bytes;
    double vision_flop; /* of a picture's row */
    uint64_t table_bytes;
    uint64_t global_bytes, pinned_bytes,
        stream_bytes;        /* stream: buffers for layers that are not pinned */
    uint64_t sequence_bytes; /* of one sequence as long as the jobs are on average */
    uint64_t state_bytes;    /* of all sequences; at least one of `context` rows */
    uint64_t rows_bytes;     /* activations of a full sweep */
    uint64_t slot_bytes, cache_bytes;
    uint64_t prefix_bytes; /* shared beginnings; 0: none are kept */
    uint64_t draft_bytes;
    size_t draft_rows;   /* most drafted rows of a sweep; 0: no drafts */
    size_t draft_tokens; /* finished outputs kept for drafts */
    size_t sequences, prefill_rows, context;
    size_t pinned_layers; /* layers 0..pinned-1 stay loaded */
    size_t expert_slots;
    uint64_t floor_bytes; /* the least --ram that works */
    uint64_t total_bytes;
};

enum status plan_make(struct plan *out, const struct plan_model *m, const struct plan_request *r,
                      struct err *e);

/* Sizes from the checkpoint in dir; reads headers only. */
enum status plan_model_load(struct plan_model *m, struct config *config, const char *dir,
                            struct err *e);

#endif
