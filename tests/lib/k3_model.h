/* A model of the Kimi K3 architecture with made-up weights, of any size: every switch of K3 on,
 * MXFP4 experts laid out as in the published files (six tensors of an expert back to back, experts
 * not in order of id), activations of ordinary size. It says nothing of sense.
 *
 * The router's use of experts is skewed by the spread of its correction biases. With topics, a
 * range of the words draws the experts of one topic. The same sizes give the same bytes on every
 * machine. */
#ifndef NS_K3_MODEL_H
#define NS_K3_MODEL_H

#include "tests/lib/ckpt.h"
#include "tests/lib/fake_tok.h"

/* name, standard, tiny, least, most, help */
#define COUNTS(X)                                                                                  \
    X(seed, 1, 1, 0, 1e15, "of all values")                                                        \
    X(shard_mb, 1024, 1, 1, 1e6, "largest shard")                                                  \
    X(hidden, 2048, 64, 32, 65536, "width of the text model")                                      \
    X(layers, 16, 6, 2, 500, "of the text model; layer 0 has a dense MLP")                         \
    X(full_every, 4, 4, 1, 500, "each so many-eth layer and the last are MLA, the others KDA")     \
    X(attn_res, 4, 2, 1, 500, "layers of an attention residual block")                             \
    X(dense_width, 9664, 96, 32, 1e6, "MLP of layer 0")                                            \
    X(experts, 128, 16, 2, 65536, "routed experts of a layer")                                     \
    X(top_k, 8, 4, 1, 1024, "experts of a token")                                                  \
    X(shared, 2, 2, 1, 1024, "shared experts")                                                     \
    X(latent, 1024, 32, 32, 65536, "width the routed experts work in")                             \
    X(expert_width, 1792, 32, 32, 65536, "of an expert")                                           \
    X(kda_heads, 16, 2, 1, 1024, "")                                                               \
    X(kda_dim, 128, 32, 2, 1024, "of a head")                                                      \
    X(mla_heads, 16, 2, 1, 1024, "")                                                               \
    X(q_lora, 448, 32, 1, 65536, "query latent")                                                   \
    X(kv_lora, 256, 32, 1, 65536, "key and value latent: what the cache holds")                    \
    X(nope, 128, 16, 1, 1024, "of a query head")                                                   \
    X(rope, 64, 8, 1, 1024, "of a query head, the shared key part")                                \
    X(v_dim, 128, 16, 1, 1024, "of a value head")                                                  \
    X(vocab, 16384, 640, FAKE_TOK_MIN_VOCAB, 1e6, "")                                              \
    X(context, 32768, 4096, 16, 1 << 30, "positions")                                              \
    X(vit_layers, 27, 27, 1, 500, "of the vision tower")                                           \
    X(vit_width, 1024, 32, 4, 65536, "")                                                           \
    X(vit_qkv, 1536, 48, 4, 65536, "width of all its heads; a head is a multiple of 4")            \
    X(vit_heads, 12, 3, 1, 1024, "")                                                               \
    X(vit_mlp, 4096, 64, 1, 1e6, "")                                                               \
    X(pos_grid, 64, 8, 2, 1024, "side of its position table")                                      \
    X(patch_limit, 65536, 256, 4, 1e6, "patches of a picture")                                     \
    X(side_limit, 512, 32, 2, 4096, "patches along a side")                                        \
    X(topics, 0, 0, 0, 1000, "topics that words and experts are divided into")                     \
    X(jobs, 0, 0, 0, 1e7, "prompts in DIR/jobs.jsonl")                                             \
    X(job_words, 64, 16, 1, 1e6, "tokens of such a prompt, about")                                 \
    X(job_tokens, 32, 8, 1, 1e6, "its max_tokens")
#define REALS(X)                                                                                   \
    X(bias_spread, 0.12, 0.12, 0, 10, "standard deviation of the router's correction biases")      \
    X(topic_strength, 4, 4, 0, 1000, "pull of a topic on its experts")                             \
    X(topic_share, 1, 1, 0, 100,                                                                   \
      "size of the topic's part of a word's embedding against the word's own")

struct k3_sizes {
#define X(name, standard, tiny, least, most, help) uint64_t name;
    COUNTS(X)
#undef X
#define X(name, standard, tiny, least, most, help) double name;
    REALS(X)
#undef X
};

/* Why no model can have these sizes, or NULL. */
const char *k3_impossible(const struct k3_sizes *s);
/* The list of tensors into c (ckpt_init'ed). *topics: what the list refers to; free it after
 * ckpt_write. */
enum status k3_tensors(const struct k3_sizes *s, struct ckpt *c, int16_t **topics, struct err *e);
/* config.json, generation_config.json, preprocessor_config.json and the tokenizer's files into dir.
 */
enum status k3_config_write(const struct k3_sizes *s, const char *dir, struct err *e);

#endif
