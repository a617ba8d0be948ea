/* Reading and bounding of the vision fields. cJSON gives numbers as doubles, which hold every
 * number allowed here exactly; its nesting limit bounds recursion, os_read_file bounds the size. */
#include "vision/settings.h"

#include "src/os.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)16 << 20)

enum status settings_open(cJSON **out, const char *dir, const char *name, struct err *e)
{
    *out = NULL;
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        return err_set(e, E_MODEL, "%s: path too long", name);
    char *text = NULL;
    size_t len = 0;
    enum status rc = os_read_file(path, MAX_FILE_BYTES, &text, &len, e);
    if (rc) return rc;
    const char *end = text;
    *out = cJSON_ParseWithLengthOpts(text, len + 1, &end, 1);
    if (!*out)
        rc = err_set(e, E_MODEL, "%s: no valid JSON at byte %zu", path, (size_t)(end - text));
    else if (!cJSON_IsObject(*out))
        rc = err_set(e, E_MODEL, "%s: not a JSON object", path);
    if (rc) {
        cJSON_Delete(*out);
        *out = NULL;
    }
    free(text);
    return rc;
}

void settings_close(cJSON *json)
{
    cJSON_Delete(json);
}

static const cJSON *field(const struct settings_field *f, const char *name)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(f->object, name);
    return v && !cJSON_IsNull(v) ? v : NULL;
}

enum status settings_uint(const struct settings_field *f, const char *name, uint32_t min,
                          uint32_t max, uint32_t *inout, struct err *e)
{
    const cJSON *v = field(f, name);
    if (!v) return OK;
    double d = v->valuedouble;
    if (!cJSON_IsNumber(v) || !(d >= min && d <= max) || d != floor(d))
        return err_set(e, E_MODEL, "%s: %s must be an integer in %u..%u", f->where, name, min, max);
    *inout = (uint32_t)d;
    return OK;
}

enum status settings_float(const struct settings_field *f, const char *name, float min, float max,
                           float *inout, struct err *e)
{
    const cJSON *v = field(f, name);
    if (!v) return OK;
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= min && v->valuedouble <= max))
        return err_set(e, E_MODEL, "%s: %s must be a number in %g..%g", f->where, name, (double)min,
                       (double)max);
    *inout = (float)v->valuedouble;
    return OK;
}

enum status settings_bool(const struct settings_field *f, const char *name, bool *inout,
                          struct err *e)
{
    const cJSON *v = field(f, name);
    if (!v) return OK;
    if (!cJSON_IsBool(v))
        return err_set(e, E_MODEL, "%s: %s must be true or false", f->where, name);
    *inout = cJSON_IsTrue(v);
    return OK;
}

enum status settings_text(const struct settings_field *f, const char *name, const char *want,
                          struct err *e)
{
    const cJSON *v = field(f, name);
    if (!v || (cJSON_IsString(v) && !strcmp(v->valuestring, want))) return OK;
    return err_set(e, E_MODEL, "%s: %s is \"%.40s\", only \"%s\" is supported", f->where, name,
                   cJSON_IsString(v) ? v->valuestring : "(not a text)", want);
}

/* merge_kernel_size is [n, n]. */
static enum status read_merge(const struct settings_field *f, uint32_t *merge, struct err *e)
{
    const cJSON *v = field(f, "merge_kernel_size");
    if (!v) return OK;
    const cJSON *a = cJSON_GetArrayItem(v, 0), *b = cJSON_GetArrayItem(v, 1);
    if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) != 2 || !cJSON_IsNumber(a) ||
        !cJSON_IsNumber(b) || a->valuedouble != b->valuedouble || !(a->valuedouble >= 1) ||
        !(a->valuedouble <= SETTINGS_MAX_MERGE) || a->valuedouble != floor(a->valuedouble))
        return err_set(e, E_MODEL, "%s: merge_kernel_size must be [n, n] with n in 1..%d", f->where,
                       SETTINGS_MAX_MERGE);
    *merge = (uint32_t)a->valuedouble;
    return OK;
}

/* The switches that this code knows in one position only. */
static enum status check_switches(const struct settings_field *f, struct err *e)
{
    static const char *const texts[][2] = {
        {"norm_type", "rmsnorm"},
        {"mlp_type", "mlp2"},
        {"activation_func", "gelu_pytorch_tanh"},
        {"pos_emb_type", "divided_fixed"},
        {"pos_emb_interpolation_mode", "bilinear"},
        {"merge_type", "sd2_tpool"},
        {"mm_projector_type", "patchmergerv2"},
        {"projector_hidden_act", "gelu"},
    };
    static const char *const off[] = {"attn_bias", "linear_bias", "patch_embed_proj_bias"};
    enum status rc = OK;
    for (size_t i = 0; !rc && i < sizeof texts / sizeof *texts; i++)
        rc = settings_text(f, texts[i][0], texts[i][1], e);
    for (size_t i = 0; !rc && i < sizeof off / sizeof *off; i++) {
        bool on = false;
        rc = settings_bool(f, off[i], &on, e);
        if (!rc && on) rc = err_set(e, E_MODEL, "%s: %s is not supported", f->where, off[i]);
    }
    return rc;
}

static enum status read_numbers(const struct settings_field *f, struct vit_config *c, struct err *e)
{
    const struct {
        const char *name;
        uint32_t min, max, *to;
    } numbers[] = {
        {"vt_hidden_size", 4, 16384, &c->hidden},
        {"qkv_hidden_size", 4, 16384, &c->qkv},
        {"vt_num_attention_heads", 1, 256, &c->heads},
        {"vt_num_hidden_layers", 1, 256, &c->layers},
        {"vt_intermediate_size", 1, 65536, &c->mlp},
        {"patch_size", 1, SETTINGS_MAX_PATCH, &c->patch},
        {"init_pos_emb_height", 1, 1024, &c->table_h},
        {"init_pos_emb_width", 1, 1024, &c->table_w},
        {"text_hidden_size", 1, 65536, &c->out},
    };
    enum status rc = OK;
    for (size_t i = 0; !rc && i < sizeof numbers / sizeof *numbers; i++)
        rc = settings_uint(f, numbers[i].name, numbers[i].min, numbers[i].max, numbers[i].to, e);
    if (!rc) rc = settings_float(f, "projector_ln_eps", 0, 1, &c->post_eps, e);
    uint32_t mm_hidden = c->hidden;
    if (!rc) rc = settings_uint(f, "mm_hidden_size", c->hidden, c->hidden, &mm_hidden, e);
    if (!rc) rc = read_merge(f, &c->merge, e);
    if (rc) return rc;
    if (c->qkv % c->heads || c->qkv / c->heads % 4)
        return err_set(e, E_MODEL,
                       "%s: qkv_hidden_size %u must be vt_num_attention_heads %u times a multiple "
                       "of 4",
                       f->where, c->qkv, c->heads);
    return OK;
}

enum status settings_vit(struct vit_config *c, const char *dir, struct err *e)
{
    *c = (struct vit_config){.hidden = 1024,
                             .qkv = 1536,
                             .heads = 12,
                             .layers = 27,
                             .mlp = 4096,
                             .patch = 14,
                             .merge = 2,
                             .table_h = 64,
                             .table_w = 64,
                             .out = 7168,
                             .norm_eps = 0x1p-23f,
                             .post_eps = 1e-5f};
    cJSON *json;
    enum status rc = settings_open(&json, dir, "config.json", e);
    if (rc) return rc;
    struct settings_field f = {cJSON_GetObjectItemCaseSensitive(json, "vision_config"),
                               "config.json vision_config"};
    if (!cJSON_IsObject(f.object))
        rc = err_set(e, E_MODEL, "%s/config.json has no vision_config: the model sees no pictures",
                     dir);
    if (!rc) rc = check_switches(&f, e);
    if (!rc) rc = read_numbers(&f, c, e);
    settings_close(json);
    return rc;
}

bool settings_has_vision(const char *dir)
{
    cJSON *json;
    struct err e;
    if (settings_open(&json, dir, "config.json", &e)) return false;
    bool has = cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(json, "vision_config"));
    settings_close(json);
    return has;
}
