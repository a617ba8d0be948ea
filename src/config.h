/* config.json and generation_config.json of a model, checked (kimi-k3 1.2, 7).
 *
 * Every number is bounded and every switch known before anything is sized by it. K3 and Kimi-Linear
 * are settings of the same fields; nothing is hard-wired to K3's sizes. */
#ifndef NS_CONFIG_H
#define NS_CONFIG_H

#include "src/err.h"

#include <stdbool.h>
#include <stdint.h>

#define CONFIG_MAX_LAYERS 512
#define CONFIG_MAX_EOS    8

enum layer_kind { LAYER_KDA, LAYER_MLA };
enum act_kind { ACT_SITU, ACT_SILU };

struct config {
    char architecture[64], model_type[32];
    char text_prefix[32]; /* "language_model." or "" */
    uint32_t vocab, hidden, layers, dense_width;
    uint8_t kind[CONFIG_MAX_LAYERS];   /* enum layer_kind */
    uint8_t is_moe[CONFIG_MAX_LAYERS]; /* 1: routed experts, 0: dense */
    float eps;                         /* text norms */
    float latent_eps;                  /* q_a / kv_a norms: 1e-6 (kimi-k3 2.2) */
    enum act_kind act;
    float situ_beta, situ_linear_beta; /* linear_beta 0: none */
    uint32_t attn_res_period;          /* 0: plain residual layers */

    uint32_t experts, top_k, shared_experts, expert_width,
        latent; /* latent 0: experts act on the hidden vector */
    bool latent_norm, renormalize, router_sigmoid;
    float routed_scale;
    uint32_t groups, top_groups;

    uint32_t mla_heads, q_lora, kv_lora, nope_dim, rope_dim, v_dim; /* q_lora 0: one q_proj */
    bool mla_gate;

    uint32_t kda_heads, kda_dim, conv;
    bool kda_bounded; /* decay = lower_bound * sig(a z); else -a softplus(z) */
    float kda_lower_bound;
    bool kda_full_gate; /* g_proj; else g_b_proj(g_a_proj x) */

    uint32_t context; /* positions */
    bool has_vision;
    int32_t media_pad;
    int32_t eos[CONFIG_MAX_EOS];
    uint32_t n_eos;
};

/* E_MODEL: file, field, expected, found. */
enum status config_load(struct config *c, const char *dir, struct err *e);

uint32_t config_layers_of(const struct config *c, enum layer_kind kind);
uint32_t config_moe_layers(const struct config *c);

/* Bytes of one sequence's state that do not depend on its length (KDA matrices, conv windows), and
 * per position (MLA latents), F32 (kimi-k3 3.1). */
uint64_t config_state_bytes(const struct config *c);
uint64_t config_position_bytes(const struct config *c);

#endif
