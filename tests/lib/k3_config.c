/* The text files of a made-up model: configuration as published for K3, with other numbers. */
#include "tests/lib/k3_model.h"

#include "src/mem.h"
#include "tests/lib/test.h"

#include <inttypes.h>

/* The 1-based numbers of the layers of one kind. */
static void layer_list(struct buf *b, const struct k3_sizes *s, bool mla, struct err *e)
{
    const char *comma = "";
    for (uint64_t i = 0; i < s->layers; i++) {
        if (((i + 1) % s->full_every == 0 || i + 1 == s->layers) != mla) continue;
        buf_addf(b, e, "%s%" PRIu64, comma, i + 1);
        comma = ",";
    }
}

#define N(name, value) buf_addf(b, e, "  \"%s\": %" PRIu64 ",\n", name, value)

static void attention(struct buf *b, const struct k3_sizes *s, struct err *e)
{
    N("num_attention_heads", s->mla_heads);
    N("num_key_value_heads", s->mla_heads);
    N("q_lora_rank", s->q_lora);
    N("kv_lora_rank", s->kv_lora);
    N("qk_nope_head_dim", s->nope);
    N("qk_rope_head_dim", s->rope);
    N("v_head_dim", s->v_dim);
    buf_addf(b, e,
             "  \"mla_use_nope\": true,\n  \"mla_use_output_gate\": true,\n"
             "  \"linear_attn_config\": {\"num_heads\": %" PRIu64 ", \"head_dim\": %" PRIu64
             ", \"short_conv_kernel_size\": 4, \"gate_lower_bound\": -5.0,\n"
             "   \"use_full_rank_gate\": true, \"full_attn_layers\": [",
             s->kda_heads, s->kda_dim);
    layer_list(b, s, true, e);
    buf_addf(b, e, "], \"kda_layers\": [");
    layer_list(b, s, false, e);
    buf_addf(b, e, "]},\n");
}

static void experts(struct buf *b, const struct k3_sizes *s, struct err *e)
{
    N("num_experts", s->experts);
    N("num_experts_per_token", s->top_k);
    N("num_shared_experts", s->shared);
    N("moe_intermediate_size", s->expert_width);
    N("routed_expert_hidden_size", s->latent);
    N("intermediate_size", s->dense_width);
    buf_addf(b, e,
             "  \"first_k_dense_replace\": 1,\n  \"moe_layer_freq\": 1,\n"
             "  \"latent_moe_use_norm\": true,\n  \"moe_router_activation_func\": \"sigmoid\",\n"
             "  \"moe_renormalize\": true,\n  \"routed_scaling_factor\": 1.0,\n"
             "  \"use_grouped_topk\": true,\n  \"topk_method\": \"noaux_tc\",\n"
             "  \"num_expert_group\": 1,\n  \"topk_group\": 1,\n"
             "  \"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
             "\"mxfp4-pack-quantized\", \"quantization_status\": \"compressed\",\n"
             "   \"config_groups\": {\"group_0\": {\"format\": \"mxfp4-pack-quantized\", "
             "\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 4, \"type\": \"float\",\n"
             "    \"strategy\": \"group\", \"group_size\": 32, \"symmetric\": true, \"dynamic\": "
             "false, \"scale_dtype\": \"torch.uint8\"}}},\n"
             "   \"ignore\": [\"re:.*self_attn.*\", \"re:.*shared_experts.*\", "
             "\"re:.*mlp\\\\.(gate|up|gate_up|down)_proj.*\", \"re:.*lm_head.*\", "
             "\"re:.*vision_tower.*\", \"re:.*mm_projector.*\"]},\n");
}

static void vision(struct buf *b, const struct k3_sizes *s, struct err *e)
{
    N("vt_hidden_size", s->vit_width);
    N("qkv_hidden_size", s->vit_qkv);
    N("vt_num_attention_heads", s->vit_heads);
    N("vt_num_hidden_layers", s->vit_layers);
    N("vt_intermediate_size", s->vit_mlp);
    N("init_pos_emb_height", s->pos_grid);
    N("init_pos_emb_width", s->pos_grid);
    N("mm_hidden_size", s->vit_width);
    N("text_hidden_size", s->hidden);
    buf_addf(b, e,
             "  \"init_pos_emb_time\": 4,\n  \"pos_emb_type\": \"divided_fixed\",\n"
             "  \"pos_emb_interpolation_mode\": \"bilinear\",\n  \"patch_size\": 14,\n"
             "  \"merge_kernel_size\": [2, 2],\n  \"merge_type\": \"sd2_tpool\",\n"
             "  \"norm_type\": \"rmsnorm\",\n  \"mlp_type\": \"mlp2\",\n"
             "  \"activation_func\": \"gelu_pytorch_tanh\",\n  \"attn_bias\": false,\n"
             "  \"linear_bias\": false,\n  \"patch_embed_proj_bias\": false,\n"
             "  \"mm_projector_type\": \"patchmergerv2\",\n  \"projector_hidden_act\": \"gelu\",\n"
             "  \"projector_ln_eps\": 1e-05\n");
}

static void config_text(struct buf *b, const struct k3_sizes *s, struct err *e)
{
    struct fake_tok tok;
    fake_tok_init(&tok, (uint32_t)s->vocab);
    buf_addf(b, e,
             "{\n \"architectures\": [\"KimiK3ForConditionalGeneration\"],\n"
             " \"model_type\": \"kimi_k3\",\n \"dtype\": \"bfloat16\",\n \"bos_token_id\": %u,\n"
             " \"eos_token_id\": %u,\n \"pad_token_id\": %u,\n"
             " \"media_placeholder_token_id\": %u,\n \"tie_word_embeddings\": false,\n"
             " \"text_config\": {\n  \"model_type\": \"kimi_linear\",\n",
             tok.bos, tok.end_of_message, tok.pad, tok.media_pad);
    N("vocab_size", s->vocab);
    N("hidden_size", s->hidden);
    N("num_hidden_layers", s->layers);
    N("attn_res_block_size", s->attn_res);
    N("max_position_embeddings", s->context);
    attention(b, s, e);
    experts(b, s, e);
    buf_addf(b, e,
             "  \"rms_norm_eps\": 1e-05,\n  \"hidden_act\": \"situ\",\n"
             "  \"activation_situ_beta\": 4.0,\n  \"activation_situ_linear_beta\": 25.0,\n"
             "  \"num_nextn_predict_layers\": 0,\n  \"tie_word_embeddings\": false\n },\n"
             " \"vision_config\": {\n");
    vision(b, s, e);
    buf_addf(b, e, " }\n}\n");
}

static void publish(struct buf *b, const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    test_write(path, b->data, b->len);
    b->len = 0;
}

enum status k3_config_write(const struct k3_sizes *s, const char *dir, struct err *e)
{
    struct fake_tok tok;
    struct buf b = {0};
    fake_tok_init(&tok, (uint32_t)s->vocab);
    *e = (struct err){0};
    config_text(&b, s, e);
    publish(&b, dir, "config.json");
    buf_addf(&b, e, "{\"max_length\": %" PRIu64 ", \"eos_token_id\": %u}\n", s->context,
             tok.end_of_message);
    publish(&b, dir, "generation_config.json");
    buf_addf(&b, e,
             "{\"media_proc_cfg\": {\"in_patch_limit\": %" PRIu64 ", \"patch_size\": 14, "
             "\"merge_kernel_size\": 2,\n \"image_mean\": [0.5, 0.5, 0.5], \"image_std\": [0.5, "
             "0.5, 0.5], \"fixed_output_tokens\": null, \"patch_limit_on_one_side\": %" PRIu64
             ",\n \"transparent_bg_config\": {\"pattern\": \"chessboard\", \"square_size\": 8, "
             "\"start\": \"top_left\", \"white\": 255, \"gray\": 180, \"fill_stage\": "
             "\"after_resize\"}}}\n",
             s->patch_limit, s->side_limit);
    publish(&b, dir, "preprocessor_config.json");
    buf_free(&b);
    if (e->code) return e->code;
    return fake_tok_write(&tok, dir, e);
}
