/* Reading and checking config.json: first the fields, then what must hold between them. */
#include "src/config.h"

#include "src/json_conf.h"

#include <stdio.h>
#include <string.h>

#define MAX_WIDTH (1 << 20)

static uint32_t width(struct json_conf *c, const cJSON *o, const char *name, int64_t fallback)
{
    return (uint32_t)json_conf_int(c, o, name, fallback == 0 ? 0 : 1, MAX_WIDTH, fallback);
}

/* Marks the 1-based layer numbers of one list (kimi-k3 1.2). */
static void mark_layers(struct json_conf *c, const cJSON *la, const char *name, uint32_t layers,
                        uint8_t kind, uint8_t *out)
{
    const cJSON *list = json_conf_get(la, name), *v;
    if (!cJSON_IsArray(list)) {
        json_conf_fail(c, "linear_attn_config.%s is no list", name);
        return;
    }
    cJSON_ArrayForEach(v, list)
    {
        double d = cJSON_IsNumber(v) ? v->valuedouble : 0;
        if (!(d >= 1 && d <= layers) || d != (double)(uint32_t)d) {
            json_conf_fail(c, "linear_attn_config.%s: expected layer numbers 1 to %u", name,
                           layers);
            return;
        }
        uint8_t *at = &out[(uint32_t)d - 1];
        if (*at != UINT8_MAX)
            json_conf_fail(c, "linear_attn_config: layer %u is listed twice", (uint32_t)d);
        *at = kind;
    }
}

static void read_layers(struct json_conf *c, const cJSON *t, struct config *k)
{
    const cJSON *la = json_conf_object(c, t, "linear_attn_config", true);
    memset(k->kind, UINT8_MAX, sizeof k->kind);
    if (c->rc) return;
    mark_layers(c, la, "kda_layers", k->layers, LAYER_KDA, k->kind);
    mark_layers(c, la, "full_attn_layers", k->layers, LAYER_MLA, k->kind);
    for (uint32_t i = 0; i < k->layers; i++)
        if (k->kind[i] == UINT8_MAX)
            json_conf_fail(c, "linear_attn_config: layer %u of %u is in neither list", i + 1,
                           k->layers);

    k->kda_heads = width(c, la, "num_heads", CONF_REQUIRED);
    k->kda_dim = width(c, la, "head_dim", CONF_REQUIRED);
    k->conv = (uint32_t)json_conf_int(c, la, "short_conv_kernel_size", 2, 8, 4);
    k->kda_bounded = json_conf_get(la, "gate_lower_bound") != NULL;
    k->kda_lower_bound = (float)json_conf_real(c, la, "gate_lower_bound", -80, 0, -5);
    k->kda_full_gate = json_conf_bool(c, la, "use_full_rank_gate", false);
}

static void read_mla(struct json_conf *c, const cJSON *t, struct config *k)
{
    k->mla_heads = width(c, t, "num_attention_heads", CONF_REQUIRED);
    k->q_lora = width(c, t, "q_lora_rank", 0);
    k->kv_lora = width(c, t, "kv_lora_rank", CONF_REQUIRED);
    k->nope_dim = width(c, t, "qk_nope_head_dim", CONF_REQUIRED);
    k->rope_dim = width(c, t, "qk_rope_head_dim", 0);
    k->v_dim = width(c, t, "v_head_dim", CONF_REQUIRED);
    k->mla_gate = json_conf_bool(c, t, "mla_use_output_gate", false);
    if (!json_conf_bool(c, t, "mla_use_nope", false))
        json_conf_fail(c, "mla_use_nope is not true: rotary MLA is not supported");
}

static void read_moe(struct json_conf *c, const cJSON *t, struct config *k)
{
    k->experts = (uint32_t)json_conf_int(c, t, "num_experts", 0, 65536, 0);
    if (!k->experts) return;
    uint32_t first =
        (uint32_t)json_conf_int(c, t, "first_k_dense_replace", 0, CONFIG_MAX_LAYERS, 0);
    uint32_t freq = (uint32_t)json_conf_int(c, t, "moe_layer_freq", 1, CONFIG_MAX_LAYERS, 1);
    for (uint32_t i = 0; i < k->layers; i++) k->is_moe[i] = i >= first && i % freq == 0;
    int64_t most = k->experts < 256 ? k->experts : 256;
    k->top_k = (uint32_t)json_conf_int(c, t, "num_experts_per_token", 1, most, CONF_REQUIRED);
    k->shared_experts = (uint32_t)json_conf_int(c, t, "num_shared_experts", 0, 1024, 0);
    k->expert_width = width(c, t, "moe_intermediate_size", CONF_REQUIRED);
    k->latent = width(c, t, "routed_expert_hidden_size", 0);
    k->latent_norm = json_conf_bool(c, t, "latent_moe_use_norm", false);
    k->renormalize = json_conf_bool(c, t, "moe_renormalize", true);
    k->routed_scale = (float)json_conf_real(c, t, "routed_scaling_factor", 0, 1e6, 1);
    k->groups = (uint32_t)json_conf_int(c, t, "num_expert_group", 1, k->experts, 1);
    k->top_groups = (uint32_t)json_conf_int(c, t, "topk_group", 1, k->groups, 1);
    const char *act = json_conf_string(c, t, "moe_router_activation_func", false);
    k->router_sigmoid = !act || !strcmp(act, "sigmoid");
    if (act && strcmp(act, "sigmoid") && strcmp(act, "softmax"))
        json_conf_fail(c, "moe_router_activation_func is \"%s\", expected sigmoid or softmax", act);
    if (k->experts % k->groups || (k->groups > 1 && k->experts / k->groups < 2))
        json_conf_fail(c,
                       "num_expert_group %u does not divide %u experts into groups of two or more",
                       k->groups, k->experts);
    else if (k->experts / k->groups * k->top_groups < k->top_k)
        json_conf_fail(c, "topk_group %u of %u groups leaves fewer than %u experts", k->top_groups,
                       k->groups, k->top_k);
}

static void read_act(struct json_conf *c, const cJSON *t, struct config *k)
{
    const char *act = json_conf_string(c, t, "hidden_act", true);
    if (c->rc) return;
    if (!strcmp(act, "situ")) {
        k->act = ACT_SITU;
        k->situ_beta = (float)json_conf_real(c, t, "activation_situ_beta", 1e-3, 1e6, 1);
        k->situ_linear_beta =
            (float)json_conf_real(c, t, "activation_situ_linear_beta", 1e-3, 1e6, 0);
    } else if (!strcmp(act, "silu")) {
        k->act = ACT_SILU;
    } else {
        json_conf_fail(c, "hidden_act is \"%s\", expected situ or silu", act);
    }
}

/* Widths that are products: bounded here, so that code below may multiply them in 32 bits. */
static void check_products(struct json_conf *c, const struct config *k)
{
    const struct {
        const char *what;
        uint64_t value;
    } p[] = {
        {"linear_attn_config.num_heads * head_dim", (uint64_t)k->kda_heads * k->kda_dim},
        {"num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)",
         (uint64_t)k->mla_heads * (k->nope_dim + k->rope_dim)},
        {"num_attention_heads * (qk_nope_head_dim + v_head_dim)",
         (uint64_t)k->mla_heads * (k->nope_dim + k->v_dim)},
        {"num_shared_experts * moe_intermediate_size",
         (uint64_t)k->shared_experts * k->expert_width},
    };
    for (size_t i = 0; i < sizeof p / sizeof p[0]; i++)
        if (p[i].value > MAX_WIDTH)
            json_conf_fail(c, "%s is %llu, expected at most %d", p[i].what,
                           (unsigned long long)p[i].value, MAX_WIDTH);
}

static void read_text(struct json_conf *c, const cJSON *t, struct config *k)
{
    k->vocab = (uint32_t)json_conf_int(c, t, "vocab_size", 1, 1 << 22, CONF_REQUIRED);
    k->hidden = width(c, t, "hidden_size", CONF_REQUIRED);
    k->layers =
        (uint32_t)json_conf_int(c, t, "num_hidden_layers", 1, CONFIG_MAX_LAYERS, CONF_REQUIRED);
    k->dense_width = width(c, t, "intermediate_size", CONF_REQUIRED);
    k->eps = (float)json_conf_real(c, t, "rms_norm_eps", 0, 1, 1e-6);
    k->latent_eps = 1e-6f;
    k->attn_res_period =
        (uint32_t)json_conf_int(c, t, "attn_res_block_size", 1, CONFIG_MAX_LAYERS, 0);
    k->context = (uint32_t)json_conf_int(c, t, "max_position_embeddings", 1, 1 << 30, 1 << 20);
    if (json_conf_bool(c, t, "tie_word_embeddings", false))
        json_conf_fail(c, "tie_word_embeddings is true: tied heads are not supported");
    if (c->rc) return;
    read_act(c, t, k);
    read_layers(c, t, k);
    read_mla(c, t, k);
    read_moe(c, t, k);
    check_products(c, k);
}

static void read_eos(struct json_conf *c, const cJSON *o, struct config *k)
{
    const cJSON *v = json_conf_get(o, "eos_token_id"), *item;
    if (!v) return;
    k->n_eos = 0;
    int n = cJSON_IsArray(v) ? cJSON_GetArraySize(v) : 1;
    if (n < 1 || n > CONFIG_MAX_EOS) {
        json_conf_fail(c, "eos_token_id: expected 1 to %d ids", CONFIG_MAX_EOS);
        return;
    }
    for (item = cJSON_IsArray(v) ? v->child : v; item;
         item = cJSON_IsArray(v) ? item->next : NULL) {
        double d = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(d >= 0 && d < k->vocab) || d != (double)(int32_t)d) {
            json_conf_fail(c, "eos_token_id: expected ids below the vocabulary's %u", k->vocab);
            return;
        }
        k->eos[k->n_eos++] = (int32_t)d;
    }
}

static void read_top(struct json_conf *c, struct config *k)
{
    const cJSON *t = json_conf_object(c, c->root, "text_config", false);
    const cJSON *names = json_conf_get(c->root, "architectures");
    const cJSON *name = cJSON_IsArray(names) ? names->child : NULL;
    const char *type = json_conf_string(c, c->root, "model_type", true);
    if (c->rc) return;
    snprintf(k->architecture, sizeof k->architecture, "%s",
             cJSON_IsString(name) ? name->valuestring : "");
    snprintf(k->model_type, sizeof k->model_type, "%s", type);
    if (strcmp(type, "kimi_k3") && strcmp(type, "kimi_linear")) {
        json_conf_fail(c, "model_type is \"%s\", expected kimi_k3 or kimi_linear", k->model_type);
        return;
    }
    snprintf(k->text_prefix, sizeof k->text_prefix, "%s", t ? "language_model." : "");
    read_text(c, t ? t : c->root, k);
    k->has_vision = json_conf_object(c, c->root, "vision_config", false) != NULL;
    k->media_pad = (int32_t)json_conf_int(c, c->root, "media_placeholder_token_id", 0,
                                          (int64_t)k->vocab - 1, -1);
    if (k->has_vision && k->media_pad < 0)
        json_conf_fail(c, "media_placeholder_token_id is missing");
    if (t) read_eos(c, t, k);
    read_eos(c, c->root, k);
}

enum status config_load(struct config *k, const char *dir, struct err *e)
{
    *k = (struct config){.media_pad = -1};
    struct json_conf c;
    enum status rc = json_conf_open(&c, dir, "config.json", false, e);
    if (rc) return rc;
    read_top(&c, k);
    rc = c.rc;
    json_conf_close(&c);
    if (rc) return rc;

    rc = json_conf_open(&c, dir, "generation_config.json", true, e);
    if (rc) return rc;
    read_eos(&c, c.root, k);
    if (!k->n_eos) json_conf_fail(&c, "eos_token_id is missing here and in config.json");
    rc = c.rc;
    json_conf_close(&c);
    return rc;
}

uint32_t config_layers_of(const struct config *c, enum layer_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->layers; i++) n += c->kind[i] == kind;
    return n;
}

uint32_t config_moe_layers(const struct config *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->layers; i++) n += c->is_moe[i];
    return n;
}

uint64_t config_state_bytes(const struct config *c)
{
    uint64_t heads = c->kda_heads, dim = c->kda_dim;
    uint64_t per_layer = heads * dim * dim + 3 * heads * dim * (c->conv - 1);
    return config_layers_of(c, LAYER_KDA) * per_layer * sizeof(float);
}

uint64_t config_position_bytes(const struct config *c)
{
    return (uint64_t)config_layers_of(c, LAYER_MLA) * (c->kv_lora + c->rope_dim) * sizeof(float);
}
