/* The public face of src/: a loaded model and the sequences that run through it, sweep by sweep.
 *
 * Rows in (token ids or image embeddings), tokens out. A sweep takes one decode row of each
 * sequence past its prompt and chunks of the prompts of others through all layers once. A
 * sequence's tokens depend on that sequence alone: not on what runs beside it, chunk sizes, cache,
 * threads or interruption. One caller thread at a time. */
#ifndef NS_ENGINE_H
#define NS_ENGINE_H

#include "src/affinity.h"
#include "src/config.h"
#include "src/layer.h"
#include "src/mem.h"
#include "src/plan.h"
#include "src/quant.h"
#include "src/sequence.h"

struct engine;

struct engine_opts {
    const char *model_dir;
    struct mem *mem;
    struct compute compute;
    struct plan plan; /* from plan_make: sequences, rows per sweep, cache slots, pinned layers */
    bool direct_io;
    bool no_read_ahead; /* read experts when they are needed: counts that repeat exactly */
    bool affinity;      /* learn which experts kinds of prompts use; takes affinity_bytes */
    size_t draft_fixed; /* draft that many tokens whenever possible; 0: adapt (plan.draft_rows 0:
                           never) */
    trace_fn trace;     /* tests: looks at intermediate rows; or NULL */
    route_fn route;     /* told what each layer's router chose; or NULL */
    void *trace_user;
};

enum status engine_open(struct engine **out, const struct engine_opts *o, struct err *e);
void engine_close(struct engine *g);
const struct config *engine_config(const struct engine *g);

/* E_PROMPT_TOO_LONG when it can never fit, E_BUDGET when there is no room at present. */
enum status engine_add(struct engine *g, const struct engine_sequence *s, struct err *e);
void engine_remove(struct engine *g, uint64_t tag);
size_t engine_running(const struct engine *g);

/* Called for each new token, in order. Return false to end the sequence: it is removed, later
 * tokens of the same sweep are dropped. logits [vocab] are those the token was drawn from. id
 * SAMPLE_BROKEN: they are no numbers, and the sequence ends without a token. */
typedef bool (*engine_token_fn)(void *user, uint64_t tag, int32_t id, const float *logits);

/* One sweep over whatever is running. An error leaves every sequence where it was before the sweep
 * began, as far as the caller can see: no tokens of it were reported. The engine is then only good
 * for closing. */
enum status engine_sweep(struct engine *g, engine_token_fn fn, void *user, struct err *e);

/* The output of a sequence that finished earlier (in another run): ids [n], the first n_prompt of
 * them prompt. Later drafts may come from it. Those that end in this engine are learned by
 * themselves. */
void engine_learn(struct engine *g, const int32_t *ids, size_t n, size_t n_prompt);

/* What engine_opts.affinity asked for, or NULL. */
struct affinity *engine_affinity(struct engine *g);

struct engine_stats {
    uint64_t sweeps, prefill_rows, decode_rows, draft_rows, tokens;
    uint64_t expert_uses, expert_fetches, expert_bytes, trunk_bytes;
    uint64_t expert_gets, expert_hits;
    uint64_t expert_least; /* bytes that the same sweeps need with any cache of this size */
    double sweep_s, expert_wait_s, trunk_wait_s;
    double read_s; /* with at least one read in flight: bytes / read_s is what the disk gave */
    struct spec_stats spec;
    struct prefix_stats prefix;
};
void engine_stats(const struct engine *g, struct engine_stats *out);

#endif
