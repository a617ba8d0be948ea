/* The made-up models of the benches are models of the real layout. */
#include "src/config.h"
#include "src/safetensors.h"
#include "src/tok.h"
#include "tests/lib/k3_model.h"
#include "tests/lib/test.h"

/* The sizes of the demo model. */
static struct k3_sizes demo_sizes(void)
{
    struct k3_sizes s = {
#define X(name, standard, tiny, least, most, help) .name = tiny,
        COUNTS(X) REALS(X)
#undef X
    };
    s.hidden = 160;
    s.layers = 8;
    s.attn_res = 3;
    s.dense_width = 320;
    s.experts = 32;
    s.latent = s.expert_width = s.q_lora = s.kv_lora = 64;
    s.kda_heads = s.mla_heads = 4;
    s.nope = s.v_dim = 32;
    s.rope = 16;
    s.vocab = 1000;
    s.vit_width = s.vit_qkv = 96;
    s.vit_heads = 4;
    s.vit_mlp = 192;
    s.pos_grid = 16;
    return s;
}

static enum status write_model(const struct k3_sizes *s, struct err *e)
{
    struct ckpt c;
    int16_t *topics = NULL;
    ckpt_init(&c, s->seed, s->shard_mb << 20);
    enum status rc = k3_tensors(s, &c, &topics, e);
    if (!rc) rc = k3_config_write(s, test_dir(), e);
    if (!rc) rc = ckpt_write(&c, test_dir(), e);
    ckpt_free(&c);
    free(topics);
    return rc;
}

/* With the demo model's sizes it has the demo model's tensors: names, types and shapes. */
TEST(tensors_of_the_demo_model)
{
    struct err e;
    struct k3_sizes s = demo_sizes();
    struct safetensors *made, *demo;
    CHECK_OK(write_model(&s, &e), e);
    CHECK_OK(safetensors_open(&made, test_dir(), false, &e), e);
    CHECK_OK(safetensors_open(&demo, "examples/demo-model", false, &e), e);
    CHECK_INT(safetensors_count(made), safetensors_count(demo));
    CHECK(safetensors_files(made) > 3);
    for (size_t i = 0; i < safetensors_count(demo); i++) {
        const struct tensor_info *want = safetensors_at(demo, i), *got = safetensors_at(made, i);
        CHECK_STR(got->name, want->name);
        CHECK_INT(got->type, want->type);
        CHECK_INT(got->dims, want->dims);
        CHECK(!memcmp(got->shape, want->shape, want->dims * sizeof *want->shape));
    }
    safetensors_close(made);
    safetensors_close(demo);
}

/* An expert's six tensors lie back to back in the published order, the experts of a layer not in
 * order of id. */
TEST(experts_back_to_back)
{
    struct err e;
    struct safetensors *made;
    CHECK_OK(safetensors_open(&made, test_dir(), false, &e), e);
    uint64_t before = 0;
    unsigned backwards = 0;
    for (unsigned x = 0; x < 32; x++) {
        const char *parts[] = {"w1.weight_packed", "w1.weight_scale",  "w2.weight_packed",
                               "w2.weight_scale",  "w3.weight_packed", "w3.weight_scale"};
        uint64_t at = 0;
        for (int p = 0; p < 6; p++) {
            char name[128];
            snprintf(name, sizeof name,
                     "language_model.model.layers.2.block_sparse_moe.experts.%u.%s", x, parts[p]);
            const struct tensor_info *t = safetensors_find(made, name);
            CHECK(t != NULL);
            if (p) CHECK_INT(t->offset, at);
            if (!p && t->offset < before) backwards++;
            if (!p) before = t->offset;
            at = t->offset + t->bytes;
        }
    }
    CHECK(backwards > 4);
    safetensors_close(made);
}

/* Its configuration is accepted and has every switch of K3 on. */
TEST(config_is_k3)
{
    struct err e;
    struct config made, demo;
    CHECK_OK(config_load(&made, test_dir(), &e), e);
    CHECK_OK(config_load(&demo, "examples/demo-model", &e), e);
    CHECK(made.kda_bounded && made.kda_full_gate && made.mla_gate && made.latent_norm);
    CHECK(made.renormalize && made.router_sigmoid && made.has_vision);
    CHECK_INT(made.act, ACT_SITU);
    CHECK(!memcmp(made.kind, demo.kind, made.layers));
    CHECK(!memcmp(made.is_moe, demo.is_moe, made.layers));
    CHECK_INT(made.n_eos, 1);
}

/* Words of two and of three syllables are one token each, specials are where the configuration
 * says. */
static void words_of(uint32_t vocab, const char *dir)
{
    struct err e;
    struct tok *t;
    struct fake_tok f;
    fake_tok_init(&f, vocab);
    CHECK_OK(fake_tok_write(&f, dir, &e), e);
    CHECK_OK(tok_open(&t, dir, vocab, &e), e);
    for (uint32_t id = f.first_word; id < f.ranks; id++) {
        struct ids ids = {0};
        char bytes[8] = "";
        CHECK_OK(tok_encode(t, bytes, fake_tok_bytes(&f, id, bytes), false, &ids, &e), e);
        CHECK_INT(ids.n, 1);
        CHECK_INT(ids.at[0], id);
        ids_free(&ids);
    }
    CHECK_INT(tok_special(t, "[BOS]"), f.bos);
    CHECK_INT(tok_special(t, "<|end_of_msg|>"), f.end_of_message);
    CHECK_INT(tok_special(t, "<|media_pad|>"), f.media_pad);
    CHECK_INT(tok_special(t, "[PAD]"), f.pad);
    CHECK(tok_special(t, "<|open|>") >= 0 && tok_special(t, "<|sep|>") >= 0);
    tok_close(t);
}

TEST(words_are_tokens)
{
    words_of(1000, test_dir());
    if (!test_has_failed()) words_of(16384, test_dir());
}

TEST_MAIN
