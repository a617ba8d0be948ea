/* config.json: the published forms load, and every field that is out of range is named. */
#include "src/config.h"
#include "tests/lib/test.h"

#include <sys/stat.h>

static const char *const base =
    "{\"architectures\":[\"KimiK3ForConditionalGeneration\"],\"model_type\":\"kimi_k3\",\"eos_"
    "token_id\":20,"
    "\"media_placeholder_token_id\":30,\"vision_config\":{},\"text_config\":{\"vocab_size\":256,"
    "\"hidden_size\":64,"
    "\"num_hidden_layers\":6,\"rms_norm_eps\":1e-05,\"hidden_act\":\"situ\",\"activation_situ_"
    "beta\":4.0,"
    "\"activation_situ_linear_beta\":25.0,\"attn_res_block_size\":2,\"intermediate_size\":96,"
    "\"first_k_dense_replace\":1,\"moe_layer_freq\":1,\"num_experts\":8,\"num_experts_per_token\":"
    "2,"
    "\"num_shared_experts\":2,\"moe_intermediate_size\":32,\"routed_expert_hidden_size\":32,"
    "\"latent_moe_use_norm\":true,\"num_attention_heads\":2,\"q_lora_rank\":32,\"kv_lora_rank\":32,"
    "\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,\"v_head_dim\":16,\"mla_use_nope\":true,"
    "\"mla_use_output_gate\":true,\"max_position_embeddings\":4096,\"linear_attn_config\":{\"num_"
    "heads\":2,"
    "\"head_dim\":16,\"short_conv_kernel_size\":4,\"gate_lower_bound\":-5.0,\"use_full_rank_gate\":"
    "true,"
    "\"full_attn_layers\":[4,6],\"kda_layers\":[1,2,3,5]}}}";

/* Writes base with the first occurrence of `from` replaced, and loads it. */
static enum status load_with(const char *from, const char *to, struct config *c, struct err *e)
{
    static int n;
    char name[32], path[128], text[4096];
    snprintf(name, sizeof name, "c%d", n++);
    const char *dir = test_path(name), *at = strstr(base, from);
    if (!at) abort();
    mkdir(dir, 0700);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - base), base, to, at + strlen(from));
    snprintf(path, sizeof path, "%s/config.json", dir);
    test_write(path, text, strlen(text));
    return config_load(c, dir, e);
}

/* Layers, switches and sizes come out as written; the stop id comes from config.json when nothing
 * overrides it. */
TEST(k3_fields)
{
    struct config c;
    struct err e = {0};
    CHECK_OK(load_with("", "", &c, &e), e);
    CHECK_STR(c.text_prefix, "language_model.");
    CHECK_INT(c.kind[0], LAYER_KDA);
    CHECK_INT(c.kind[3], LAYER_MLA);
    CHECK_INT(c.kind[5], LAYER_MLA);
    CHECK_INT(c.is_moe[0], 0);
    CHECK_INT(c.is_moe[1], 1);
    CHECK(c.kda_bounded && c.kda_full_gate && c.mla_gate && c.latent_norm && c.has_vision);
    CHECK_INT(c.n_eos, 1);
    CHECK_INT(c.eos[0], 20);
    CHECK_INT(config_state_bytes(&c), 4 * (2 * 16 * 16 + 3 * 32 * 3) * 4);
    CHECK_INT(config_position_bytes(&c), 2 * (32 + 8) * 4);
}

/* A field without its bound gate is the softplus form; null counts as absent. */
TEST(null_is_absent)
{
    struct config c;
    struct err e = {0};
    CHECK_OK(load_with("\"gate_lower_bound\":-5.0", "\"gate_lower_bound\":null", &c, &e), e);
    CHECK(!c.kda_bounded);
    CHECK_OK(load_with("\"q_lora_rank\":32", "\"q_lora_rank\":null", &c, &e), e);
    CHECK_INT(c.q_lora, 0);
}

/* Each change is refused, and the message names the field. */
TEST(bad_fields_are_named)
{
    static const char *const cases[][3] = {
        {"\"vocab_size\":256", "\"vocab_size\":0", "vocab_size"},
        {"\"vocab_size\":256", "\"vocab_size\":1e30", "vocab_size"},
        {"\"vocab_size\":256", "\"vocab_size\":\"256\"", "vocab_size"},
        {"\"hidden_size\":64", "\"hidden_size\":-64", "hidden_size"},
        {"\"hidden_size\":64", "\"hidden_size\":64.5", "hidden_size"},
        {"\"hidden_size\":64,", "", "hidden_size is missing"},
        {"\"num_hidden_layers\":6", "\"num_hidden_layers\":7", "layer 7 of 7 is in neither list"},
        {"\"num_hidden_layers\":6", "\"num_hidden_layers\":5", "full_attn_layers"},
        {"[4,6]", "[4,5]", "listed twice"},
        {"[4,6]", "[4,0]", "full_attn_layers"},
        {"[4,6]", "\"4\"", "full_attn_layers"},
        {"\"situ\"", "\"gelu\"", "hidden_act"},
        {"\"num_experts_per_token\":2", "\"num_experts_per_token\":9", "num_experts_per_token"},
        {"\"mla_use_nope\":true", "\"mla_use_nope\":false", "mla_use_nope"},
        {"\"eos_token_id\":20", "\"eos_token_id\":256", "eos_token_id"},
        {"\"eos_token_id\":20", "\"eos_token_id\":[]", "eos_token_id"},
        {"\"eos_token_id\":20,", "", "eos_token_id is missing"},
        {"\"media_placeholder_token_id\":30,", "", "media_placeholder_token_id"},
        {"\"kimi_k3\"", "\"llama\"", "model_type"},
        {"\"num_heads\":2", "\"num_heads\":100000", "num_heads * head_dim"},
        {"\"v_head_dim\":16", "\"v_head_dim\":1000000", "v_head_dim"},
        {"{\"vocab_size\"", "{\"tie_word_embeddings\":true,\"vocab_size\"", "tie_word_embeddings"},
        {"}}}", "}}", "config.json is not a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config c;
        struct err e = {0};
        CHECK_ERR(load_with(cases[i][0], cases[i][1], &c, &e), E_MODEL, e, cases[i][2]);
        CHECK_HAS(e.text, "config.json");
    }
    struct config c;
    struct err e = {0};
    CHECK_ERR(config_load(&c, test_path("no such folder"), &e), E_MODEL, e, "does not exist");
}

TEST_MAIN
