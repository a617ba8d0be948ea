/* vision_config of config.json and media_proc_cfg of preprocessor_config.json. Absent fields take
 * the published class defaults. */
#include "vision/settings.h"

#include "src/json_conf.h"
#include "vision/vision.h"

#include <string.h>

/* A text that must be `want` when present. */
static void want_text(struct json_conf *c, const cJSON *o, const char *name, const char *want)
{
    const char *is = json_conf_string(c, o, name, false);
    if (is && strcmp(is, want))
        json_conf_fail(c, "%s is \"%.40s\", only \"%s\" is supported", name, is, want);
}

static uint32_t number(struct json_conf *c, const cJSON *o, const char *name, uint32_t max,
                       uint32_t fallback)
{
    return (uint32_t)json_conf_int(c, o, name, 1, max, fallback);
}

/* The switches that this code knows in one position only. */
static void check_switches(struct json_conf *c, const cJSON *v)
{
    static const char *const texts[][2] = {
        {"norm_type", "rmsnorm"},
        {"mlp_type", "mlp2"},
        {"activation_func", "gelu_pytorch_tanh"},
        {"pos_emb_type", "divided_fixed"},
        {"merge_type", "sd2_tpool"},
        {"mm_projector_type", "patchmergerv2"},
        {"projector_hidden_act", "gelu"},
    };
    static const char *const off[] = {"attn_bias", "linear_bias", "patch_embed_proj_bias"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        want_text(c, v, texts[i][0], texts[i][1]);
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (json_conf_bool(c, v, off[i], false)) json_conf_fail(c, "%s is not supported", off[i]);
}

/* merge_kernel_size is [n, n]. */
static uint32_t read_merge(struct json_conf *c, const cJSON *v)
{
    const cJSON *m = json_conf_get(v, "merge_kernel_size");
    if (!m) return 2;
    const cJSON *a = cJSON_GetArrayItem(m, 0), *b = cJSON_GetArrayItem(m, 1);
    for (int n = 1; cJSON_GetArraySize(m) == 2 && n <= 4; n++)
        if (cJSON_IsNumber(a) && cJSON_IsNumber(b) && a->valuedouble == n && b->valuedouble == n)
            return (uint32_t)n;
    json_conf_fail(c, "merge_kernel_size is not [n, n] with n in 1..4");
    return 2;
}

static void read_vit(struct json_conf *c, const cJSON *v, struct vit_config *t)
{
    check_switches(c, v);
    *t = (struct vit_config){.hidden = number(c, v, "vt_hidden_size", 16384, 1024),
                             .qkv = number(c, v, "qkv_hidden_size", 16384, 1536),
                             .heads = number(c, v, "vt_num_attention_heads", 256, 12),
                             .layers = number(c, v, "vt_num_hidden_layers", 256, 27),
                             .mlp = number(c, v, "vt_intermediate_size", 65536, 4096),
                             .patch = number(c, v, "patch_size", 64, 14),
                             .merge = read_merge(c, v),
                             .table_h = number(c, v, "init_pos_emb_height", 1024, 64),
                             .table_w = number(c, v, "init_pos_emb_width", 1024, 64),
                             .out = number(c, v, "text_hidden_size", 65536, 7168),
                             .norm_eps = 0x1p-23f};
    t->post_eps = (float)json_conf_real(c, v, "projector_ln_eps", 0, 1, 1e-5);
    const char *mode = json_conf_string(c, v, "pos_emb_interpolation_mode", false);
    t->bicubic = mode && !strcmp(mode, "bicubic");
    if (!t->bicubic) want_text(c, v, "pos_emb_interpolation_mode", "bilinear");
    if (number(c, v, "mm_hidden_size", 65536, t->hidden) != t->hidden)
        json_conf_fail(c, "mm_hidden_size differs from vt_hidden_size %u", t->hidden);
    if (t->qkv % t->heads || t->qkv / t->heads % 4)
        json_conf_fail(c, "qkv_hidden_size %u is not %u heads of a multiple of 4", t->qkv,
                       t->heads);
}

enum status settings_vit(struct vit_config *t, const char *dir, struct err *e)
{
    struct json_conf c;
    enum status rc = json_conf_open(&c, dir, "config.json", false, e);
    if (rc) return rc;
    const cJSON *v = json_conf_object(&c, c.root, "vision_config", true);
    if (v) read_vit(&c, v, t);
    json_conf_close(&c);
    return c.rc;
}

bool settings_has_vision(const char *dir)
{
    struct json_conf c;
    struct err e;
    if (json_conf_open(&c, dir, "config.json", false, &e)) return false;
    bool has = json_conf_object(&c, c.root, "vision_config", false) != NULL;
    json_conf_close(&c);
    return has;
}

static void read_triple(struct json_conf *c, const cJSON *o, const char *name, double min,
                        float to[3])
{
    const cJSON *a = json_conf_get(o, name);
    for (int i = 0; i < 3; i++) {
        const cJSON *v = a ? cJSON_GetArrayItem(a, i) : NULL;
        double is = v && cJSON_IsNumber(v) && cJSON_GetArraySize(a) == 3 ? v->valuedouble : 1e9;
        if (!a) is = 0.5;
        if (is >= min && is <= 1000)
            to[i] = (float)is;
        else
            json_conf_fail(c, "%s is not three numbers in %g..1000", name, min);
    }
}

/* Two spellings of the same fields are in circulation: the vendor's class has the long names. */
static void read_chessboard(struct json_conf *c, const cJSON *o, struct vision_processor *p)
{
    want_text(c, o, "start", "top_left");
    uint32_t side = number(c, o, "square_size", 4096, 16);
    p->checker = number(c, o, "chessboard_square_size", 4096, side);
    int64_t white = json_conf_int(c, o, "white", 0, 255, 255);
    p->white = (unsigned)json_conf_int(c, o, "chessboard_white_value", 0, 255, white);
    int64_t gray = json_conf_int(c, o, "gray", 0, 255, 200);
    p->gray = (unsigned)json_conf_int(c, o, "chessboard_gray_value", 0, 255, gray);
    p->gray_first = !json_conf_bool(c, o, "chessboard_square_on_top_left", true);
}

static void read_background(struct json_conf *c, const cJSON *m, struct vision_processor *p)
{
    const cJSON *o = json_conf_object(c, m, "transparent_bg_config", false);
    p->checker = 0;
    p->white = 255;
    p->fill_first = true;
    if (!o) return;
    const char *stage = json_conf_string(c, m, "transparent_bg_fill_stage", false);
    if (!stage) stage = json_conf_string(c, o, "fill_stage", false);
    p->fill_first = !stage || strcmp(stage, "after_resize") != 0;
    if (p->fill_first && stage && strcmp(stage, "before_resize"))
        json_conf_fail(c, "the fill stage is neither before_resize nor after_resize");
    const char *pattern = json_conf_string(c, o, "pattern", false);
    if (!pattern) pattern = "black";
    if (!strcmp(pattern, "chessboard"))
        read_chessboard(c, o, p);
    else if (!strcmp(pattern, "black"))
        p->white = 0;
    else if (!strcmp(pattern, "gray"))
        p->white = 128;
    else if (strcmp(pattern, "white"))
        json_conf_fail(c, "pattern \"%.40s\" is unknown", pattern);
}

enum status vision_processor_load(struct vision_processor *p, const char *dir, struct err *e)
{
    *p = (struct vision_processor){.checker = 8, .white = 255, .gray = 180};
    struct json_conf c = {.e = e};
    const cJSON *m = NULL;
    if (dir) {
        enum status rc = json_conf_open(&c, dir, "preprocessor_config.json", false, e);
        if (rc) return rc;
        m = json_conf_object(&c, c.root, "media_proc_cfg", true);
        read_background(&c, m, p);
    }
    p->patch = number(&c, m, "patch_size", 64, 14);
    p->merge = number(&c, m, "merge_kernel_size", 4, 2);
    p->in_patch_limit = number(&c, m, "in_patch_limit", 1 << 20, 65536);
    p->side_limit = number(&c, m, "patch_limit_on_one_side", SETTINGS_MAX_SIDE, 512);
    read_triple(&c, m, "image_mean", -1000, p->mean);
    read_triple(&c, m, "image_std", 1e-6, p->std);
    if (p->side_limit % p->merge)
        json_conf_fail(&c, "patch_limit_on_one_side %u is no multiple of %u", p->side_limit,
                       p->merge);
    if (json_conf_get(m, "fixed_output_tokens"))
        json_conf_fail(&c, "fixed_output_tokens is not supported");
    json_conf_close(&c);
    return c.rc;
}
