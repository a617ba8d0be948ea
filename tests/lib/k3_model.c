/* The tensors of a made-up model, layer by layer, with the spreads that keep activations of
 * ordinary size. */
#include "tests/lib/k3_model.h"

#include "tests/lib/test.h"

struct maker {
    struct k3_sizes s;
    struct ckpt *ckpt;
    int16_t *token_topics;  /* [vocab] */
    int16_t *expert_topics; /* [layers][experts] */
    enum status rc;
    struct err e;
};

/* What the parts of the program that reads the model ask of its numbers. */
const char *k3_impossible(const struct k3_sizes *s)
{
    if (s->top_k > s->experts) return "top_k is larger than experts";
    if (s->latent % 32 || s->expert_width % 32) return "latent and expert_width: multiples of 32";
    if (s->vit_qkv % s->vit_heads || s->vit_qkv / s->vit_heads % 4)
        return "vit_qkv: a multiple of 4 for each of vit_heads";
    if (s->topics > s->experts) return "more topics than experts";
    return NULL;
}

static struct ckpt_tensor linear_gain(uint64_t out, uint64_t in, double gain)
{
    return (struct ckpt_tensor){.dtype = CKPT_BF16,
                                .dims = 2,
                                .shape = {out, in},
                                .fill = FILL_NORMAL,
                                .a = gain / sqrt((double)in)};
}

static struct ckpt_tensor linear(uint64_t out, uint64_t in)
{
    return linear_gain(out, in, 1);
}

static struct ckpt_tensor norm(uint64_t n)
{
    return (struct ckpt_tensor){
        .dtype = CKPT_BF16, .dims = 1, .shape = {n}, .fill = FILL_AROUND, .a = 0.1, .b = 1};
}

static struct ckpt_tensor f32(uint64_t n, enum ckpt_fill fill, double a, double b)
{
    return (struct ckpt_tensor){
        .dtype = CKPT_F32, .dims = 1, .shape = {n}, .fill = fill, .a = a, .b = b, .used = n};
}

#define ADD(m, start, tensor, ...)                                                                 \
    do {                                                                                           \
        struct ckpt_tensor t_ = (tensor);                                                          \
        if (!(m)->rc) (m)->rc = ckpt_add((m)->ckpt, &t_, start, &(m)->e, __VA_ARGS__);             \
    } while (0)

static bool is_mla(const struct k3_sizes *s, uint64_t layer)
{
    return (layer + 1) % s->full_every == 0 || layer + 1 == s->layers;
}

#define LAYER "language_model.model.layers.%u."

static void kda(struct maker *m, unsigned i)
{
    const struct k3_sizes *s = &m->s;
    uint64_t wide = s->kda_heads * s->kda_dim;
    static const char *const inputs[] = {"q_proj", "k_proj", "v_proj", "g_proj"};
    for (int n = 0; n < 4; n++)
        ADD(m, CKPT_FREE, linear(wide, s->hidden), LAYER "self_attn.%s.weight", i, inputs[n]);
    ADD(m, CKPT_FREE, linear(s->kda_dim, s->hidden), LAYER "self_attn.f_a_proj.weight", i);
    ADD(m, CKPT_FREE, linear(wide, s->kda_dim), LAYER "self_attn.f_b_proj.weight", i);
    ADD(m, CKPT_FREE, linear(s->kda_heads, s->hidden), LAYER "self_attn.b_proj.weight", i);
    ADD(m, CKPT_FREE, linear_gain(s->hidden, wide, 4), LAYER "self_attn.o_proj.weight", i);
    struct ckpt_tensor conv = f32(wide, FILL_AROUND, 0.2, 0.5);
    conv.dims = 3;
    conv.shape[1] = 1;
    conv.shape[2] = 4;
    for (const char *p = "qkv"; *p; p++)
        ADD(m, CKPT_FREE, conv, LAYER "self_attn.%c_conv1d.weight", i, *p);
    /* one value a head, padded with zeros as published; decays from slow to fast */
    uint64_t padded = s->kda_heads > s->kda_dim ? s->kda_heads : s->kda_dim;
    struct ckpt_tensor a_log = f32(padded, FILL_LOG_UNIFORM, 1, 8);
    a_log.used = s->kda_heads;
    ADD(m, CKPT_FREE, a_log, LAYER "self_attn.A_log", i);
    ADD(m, CKPT_FREE, f32(wide, FILL_UNIFORM, -2, 0.5), LAYER "self_attn.dt_bias", i);
    ADD(m, CKPT_FREE, f32(s->kda_dim, FILL_AROUND, 0.1, 1), LAYER "self_attn.o_norm.weight", i);
}

static void mla(struct maker *m, unsigned i)
{
    const struct k3_sizes *s = &m->s;
    uint64_t query = s->mla_heads * (s->nope + s->rope), value = s->mla_heads * s->v_dim;
    uint64_t pair = s->mla_heads * (s->nope + s->v_dim);
    ADD(m, CKPT_FREE, linear(s->q_lora, s->hidden), LAYER "self_attn.q_a_proj.weight", i);
    ADD(m, CKPT_FREE, norm(s->q_lora), LAYER "self_attn.q_a_layernorm.weight", i);
    ADD(m, CKPT_FREE, linear(query, s->q_lora), LAYER "self_attn.q_b_proj.weight", i);
    ADD(m, CKPT_FREE, linear(s->kv_lora + s->rope, s->hidden),
        LAYER "self_attn.kv_a_proj_with_mqa.weight", i);
    ADD(m, CKPT_FREE, norm(s->kv_lora), LAYER "self_attn.kv_a_layernorm.weight", i);
    ADD(m, CKPT_FREE, linear(pair, s->kv_lora), LAYER "self_attn.kv_b_proj.weight", i);
    ADD(m, CKPT_FREE, linear(value, s->hidden), LAYER "self_attn.g_proj.weight", i);
    ADD(m, CKPT_FREE, linear_gain(s->hidden, value, 2), LAYER "self_attn.o_proj.weight", i);
}

/* gate (w1), down (w2) and up (w3) of one expert, packed with scales, back to back */
static void expert(struct maker *m, unsigned i, unsigned id)
{
    const struct k3_sizes *s = &m->s;
    for (int w = 1; w <= 3; w++) {
        uint64_t out = w == 2 ? s->latent : s->expert_width;
        uint64_t in = w == 2 ? s->expert_width : s->latent;
        /* codes have a root mean square of 2.926, scales around one exponent of 1.25 */
        double exponent = nearbyint(log2(1 / sqrt((double)in) / (2.926 * 1.25)));
        struct ckpt_tensor codes = {
            .dtype = CKPT_U8, .dims = 2, .shape = {out, in / 2}, .fill = FILL_CODES};
        struct ckpt_tensor scales = {.dtype = CKPT_U8,
                                     .dims = 2,
                                     .shape = {out, in / 32},
                                     .fill = FILL_SCALES,
                                     .a = exponent};
        ADD(m, w == 1 ? CKPT_FREE : CKPT_JOINED, codes,
            LAYER "block_sparse_moe.experts.%u.w%d.weight_packed", i, id, w);
        ADD(m, CKPT_JOINED, scales, LAYER "block_sparse_moe.experts.%u.w%d.weight_scale", i, id, w);
    }
}

static void shuffle(uint32_t *order, uint64_t n, unsigned long long *rng)
{
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint64_t i = n; i > 1; i--) {
        uint64_t j = test_rand(rng) % i;
        uint32_t t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
}

#define MOE LAYER "block_sparse_moe."

static void moe(struct maker *m, unsigned i)
{
    const struct k3_sizes *s = &m->s;
    uint64_t shared = s->shared * s->expert_width;
    struct ckpt_tensor gate = linear(s->experts, s->hidden);
    if (s->topics) {
        gate.fill = FILL_TOPIC;
        gate.b = s->topic_strength / (double)s->hidden;
        gate.topics = m->expert_topics + i * s->experts;
    }
    ADD(m, CKPT_FREE, gate, MOE "gate.weight", i);
    ADD(m, CKPT_FREE, f32(s->experts, FILL_NORMAL, s->bias_spread, 0),
        MOE "gate.e_score_correction_bias", i);
    ADD(m, CKPT_FREE, linear(s->latent, s->hidden), MOE "routed_expert_down_proj.weight", i);
    ADD(m, CKPT_FREE, norm(s->latent), MOE "routed_expert_norm.weight", i);
    ADD(m, CKPT_FREE, linear(s->hidden, s->latent), MOE "routed_expert_up_proj.weight", i);
    ADD(m, CKPT_FREE, linear(shared, s->hidden), MOE "shared_experts.gate_proj.weight", i);
    ADD(m, CKPT_FREE, linear(shared, s->hidden), MOE "shared_experts.up_proj.weight", i);
    ADD(m, CKPT_FREE, linear_gain(s->hidden, shared, 2), MOE "shared_experts.down_proj.weight", i);

    /* in the file as on nobody's list: by another order than the ids */
    uint32_t *order = calloc(s->experts, sizeof *order);
    if (!order) abort();
    unsigned long long rng = s->seed + 7919 * (i + 1);
    shuffle(order, s->experts, &rng);
    for (uint64_t n = 0; n < s->experts; n++) expert(m, i, order[n]);
    free(order);
}

static void layer(struct maker *m, unsigned i)
{
    const struct k3_sizes *s = &m->s;
    ADD(m, CKPT_FREE, norm(s->hidden), LAYER "input_layernorm.weight", i);
    ADD(m, CKPT_FREE, norm(s->hidden), LAYER "post_attention_layernorm.weight", i);
    ADD(m, CKPT_FREE, norm(s->hidden), LAYER "self_attention_res_norm.weight", i);
    ADD(m, CKPT_FREE, linear(1, s->hidden), LAYER "self_attention_res_proj.weight", i);
    ADD(m, CKPT_FREE, norm(s->hidden), LAYER "mlp_res_norm.weight", i);
    ADD(m, CKPT_FREE, linear(1, s->hidden), LAYER "mlp_res_proj.weight", i);
    if (is_mla(s, i))
        mla(m, i);
    else
        kda(m, i);
    if (i > 0) {
        moe(m, i);
        return;
    }
    ADD(m, CKPT_FREE, linear(s->dense_width, s->hidden), LAYER "mlp.gate_proj.weight", i);
    ADD(m, CKPT_FREE, linear(s->dense_width, s->hidden), LAYER "mlp.up_proj.weight", i);
    ADD(m, CKPT_FREE, linear_gain(s->hidden, s->dense_width, 2), LAYER "mlp.down_proj.weight", i);
}

static void globals(struct maker *m)
{
    const struct k3_sizes *s = &m->s;
    /* larger than what a sub-layer adds, so that a word's topic is seen through all layers */
    struct ckpt_tensor embedding = {.dtype = CKPT_BF16,
                                    .dims = 2,
                                    .shape = {s->vocab, s->hidden},
                                    .fill = s->topics ? FILL_TOPIC : FILL_NORMAL,
                                    .a = 3,
                                    .b = 3 * s->topic_share,
                                    .topics = m->token_topics};
    ADD(m, CKPT_NEW_SHARD, embedding, "language_model.model.embed_tokens.weight");
    ADD(m, CKPT_FREE, norm(s->hidden), "language_model.model.norm.weight");
    ADD(m, CKPT_FREE, norm(s->hidden), "language_model.model.output_attn_res_norm.weight");
    ADD(m, CKPT_FREE, linear(1, s->hidden), "language_model.model.output_attn_res_proj.weight");
    /* leans to words of the topic that the hidden row carries, so that answers stay with it */
    embedding.a = 2 / sqrt((double)s->hidden);
    embedding.b = s->topic_share * 64 / (double)s->hidden;
    ADD(m, CKPT_FREE, embedding, "language_model.lm_head.weight");
}

#define BLOCK "vision_tower.encoder.blocks.%u."

static void vision(struct maker *m)
{
    const struct k3_sizes *s = &m->s;
    uint64_t d = s->vit_width;
    struct ckpt_tensor patch = linear(d, 588), grid = linear_gain(1, 1, 0.3);
    patch.dims = 4;
    patch.shape[1] = 3;
    patch.shape[2] = patch.shape[3] = 14;
    grid.dims = 3;
    grid.shape[0] = grid.shape[1] = s->pos_grid;
    grid.shape[2] = d;
    ADD(m, CKPT_NEW_SHARD, patch, "vision_tower.patch_embed.proj.weight");
    ADD(m, CKPT_FREE, grid, "vision_tower.patch_embed.pos_emb.weight");
    for (unsigned i = 0; i < s->vit_layers; i++) {
        ADD(m, CKPT_FREE, norm(d), BLOCK "norm0.weight", i);
        ADD(m, CKPT_FREE, norm(d), BLOCK "norm1.weight", i);
        ADD(m, CKPT_FREE, linear(3 * s->vit_qkv, d), BLOCK "wqkv.weight", i);
        ADD(m, CKPT_FREE, linear(d, s->vit_qkv), BLOCK "wo.weight", i);
        ADD(m, CKPT_FREE, linear(s->vit_mlp, d), BLOCK "mlp.fc0.weight", i);
        ADD(m, CKPT_FREE, linear(d, s->vit_mlp), BLOCK "mlp.fc1.weight", i);
    }
    ADD(m, CKPT_FREE, norm(d), "vision_tower.encoder.final_layernorm.weight");
    ADD(m, CKPT_NEW_SHARD, linear(4 * d, 4 * d), "mm_projector.proj.0.weight");
    ADD(m, CKPT_FREE, linear(s->hidden, 4 * d), "mm_projector.proj.2.weight");
    ADD(m, CKPT_FREE, norm(s->hidden), "mm_projector.post_norm.weight");
}

/* Words fall to topics by ranges of ids; the experts of each layer by a draw of their own. */
static void draw_topics(struct maker *m)
{
    const struct k3_sizes *s = &m->s;
    struct fake_tok tok;
    fake_tok_init(&tok, (uint32_t)s->vocab);
    uint64_t words = tok.ranks - tok.first_word;
    for (uint64_t id = 0; id < s->vocab; id++)
        m->token_topics[id] = id < tok.first_word || id >= tok.ranks
                                  ? -1
                                  : (int16_t)((id - tok.first_word) * s->topics / words);
    uint32_t *order = calloc(s->experts, sizeof *order);
    if (!order) abort();
    unsigned long long rng = s->seed ^ 0x70;
    for (uint64_t l = 0; l < s->layers; l++) {
        shuffle(order, s->experts, &rng);
        for (uint64_t x = 0; x < s->experts; x++)
            m->expert_topics[l * s->experts + x] = (int16_t)(order[x] * s->topics / s->experts);
    }
    free(order);
}

enum status k3_tensors(const struct k3_sizes *s, struct ckpt *c, int16_t **topics, struct err *e)
{
    struct maker m = {.s = *s, .ckpt = c};
    *topics = malloc((s->vocab + s->layers * s->experts) * sizeof **topics);
    if (!*topics) return err_set(e, E_NOMEM, "topics: no memory");
    m.token_topics = *topics;
    m.expert_topics = *topics + s->vocab;
    draw_topics(&m);
    for (unsigned i = 0; i < s->layers; i++) layer(&m, i);
    globals(&m);
    vision(&m);
    if (m.rc) *e = m.e;
    return m.rc;
}
