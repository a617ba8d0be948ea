/* The processor's settings, its size rule and its patches. Arithmetic follows the published Python:
 * sizes in double with truncation, pixel values divided in double and rounded to float, then mean
 * and 1/std applied in double and rounded again. */
#include "vision/patch.h"

#include "vision/settings.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

static void published(struct vision_processor *p)
{
    *p = (struct vision_processor){.patch = 14,
                                   .merge = 2,
                                   .in_patch_limit = 65536,
                                   .side_limit = 512,
                                   .mean = {0.5f, 0.5f, 0.5f},
                                   .std = {0.5f, 0.5f, 0.5f},
                                   .checker = 8,
                                   .white = 255,
                                   .gray = 180};
}

static enum status read_triple(const struct settings_field *f, const char *name, float min,
                               float *to, struct err *e)
{
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(f->object, name);
    if (!a) return OK;
    bool good = cJSON_IsArray(a) && cJSON_GetArraySize(a) == 3;
    for (int i = 0; good && i < 3; i++) {
        const cJSON *v = cJSON_GetArrayItem(a, i);
        good = cJSON_IsNumber(v) && v->valuedouble >= (double)min && v->valuedouble <= 1000;
        if (good) to[i] = (float)v->valuedouble;
    }
    return good ? OK
                : err_set(e, E_MODEL, "%s: %s must be three numbers in %g..1000", f->where, name,
                          (double)min);
}

static enum status read_chessboard(const struct settings_field *f, struct vision_processor *p,
                                   struct err *e)
{
    /* Two spellings of the same fields are in circulation: the vendor's class has long names. */
    p->checker = 16;
    p->gray = 200;
    bool white_first = true;
    enum status rc = settings_uint(f, "square_size", 1, 4096, &p->checker, e);
    if (!rc) rc = settings_uint(f, "chessboard_square_size", 1, 4096, &p->checker, e);
    if (!rc) rc = settings_uint(f, "white", 0, 255, &p->white, e);
    if (!rc) rc = settings_uint(f, "chessboard_white_value", 0, 255, &p->white, e);
    if (!rc) rc = settings_uint(f, "gray", 0, 255, &p->gray, e);
    if (!rc) rc = settings_uint(f, "chessboard_gray_value", 0, 255, &p->gray, e);
    if (!rc) rc = settings_text(f, "start", "top_left", e);
    if (!rc) rc = settings_bool(f, "chessboard_square_on_top_left", &white_first, e);
    p->gray_first = !white_first;
    return rc;
}

/* transparent_bg_config. Absent: white. */
static enum status read_background(const cJSON *cfg, struct vision_processor *p, struct err *e)
{
    struct settings_field f = {cJSON_GetObjectItemCaseSensitive(cfg, "transparent_bg_config"),
                               "preprocessor_config.json transparent_bg_config"};
    const cJSON *stage = cJSON_GetObjectItemCaseSensitive(cfg, "transparent_bg_fill_stage");
    p->checker = 0;
    p->white = 255;
    p->fill_first = true;
    if (!f.object || cJSON_IsNull(f.object)) return OK;
    if (!stage) stage = cJSON_GetObjectItemCaseSensitive(f.object, "fill_stage");
    if (stage && (!cJSON_IsString(stage) || (strcmp(stage->valuestring, "after_resize") &&
                                             strcmp(stage->valuestring, "before_resize"))))
        return err_set(e, E_MODEL, "%s: the fill stage must be before_resize or after_resize",
                       f.where);
    p->fill_first = !stage || !strcmp(stage->valuestring, "before_resize");
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(f.object, "pattern");
    const char *name = cJSON_IsString(pattern) ? pattern->valuestring : pattern ? "" : "black";
    if (!strcmp(name, "chessboard")) return read_chessboard(&f, p, e);
    if (!strcmp(name, "white"))
        p->white = 255;
    else if (!strcmp(name, "black"))
        p->white = 0;
    else if (!strcmp(name, "gray"))
        p->white = 128;
    else
        return err_set(e, E_MODEL, "%s: unknown pattern \"%.40s\"", f.where, name);
    return OK;
}

static enum status read_processor(const cJSON *cfg, struct vision_processor *p, struct err *e)
{
    struct settings_field f = {cfg, "preprocessor_config.json media_proc_cfg"};
    if (!cJSON_IsObject(cfg)) return err_set(e, E_MODEL, "%s is missing", f.where);
    enum status rc = settings_uint(&f, "patch_size", 1, SETTINGS_MAX_PATCH, &p->patch, e);
    if (!rc) rc = settings_uint(&f, "merge_kernel_size", 1, SETTINGS_MAX_MERGE, &p->merge, e);
    if (!rc) rc = settings_uint(&f, "in_patch_limit", 1, 1u << 20, &p->in_patch_limit, e);
    if (!rc)
        rc = settings_uint(&f, "patch_limit_on_one_side", 1, SETTINGS_MAX_SIDE, &p->side_limit, e);
    if (!rc && p->side_limit % p->merge)
        rc = err_set(e, E_MODEL, "%s: patch_limit_on_one_side %u is no multiple of %u", f.where,
                     p->side_limit, p->merge);
    if (!rc) rc = read_triple(&f, "image_mean", -1000, p->mean, e);
    if (!rc) rc = read_triple(&f, "image_std", 1e-6f, p->std, e);
    const cJSON *fixed = cJSON_GetObjectItemCaseSensitive(cfg, "fixed_output_tokens");
    if (!rc && fixed && !cJSON_IsNull(fixed))
        rc = err_set(e, E_MODEL, "%s: fixed_output_tokens is not supported", f.where);
    return rc ? rc : read_background(cfg, p, e);
}

enum status vision_processor_load(struct vision_processor *p, const char *dir, struct err *e)
{
    published(p);
    if (!dir) return OK;
    cJSON *json;
    enum status rc = settings_open(&json, dir, "preprocessor_config.json", e);
    if (rc) return rc;
    rc = read_processor(cJSON_GetObjectItemCaseSensitive(json, "media_proc_cfg"), p, e);
    settings_close(json);
    return rc;
}

static uint32_t round_up(uint32_t n, uint32_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static uint32_t patch_limit(const struct vision_processor *p, uint32_t max_patches)
{
    return max_patches && max_patches < p->in_patch_limit ? max_patches : p->in_patch_limit;
}

void patch_plan(const struct vision_processor *p, uint32_t max_patches, struct picture_info *info)
{
    uint32_t side = p->side_limit * p->patch, cell = p->merge * p->patch;
    double w = info->width, h = info->height;
    double across = fmax(1, info->width / p->patch), down = fmax(1, info->height / p->patch);
    double s = sqrt(patch_limit(p, max_patches) / (across * down));
    s = fmin(fmin(1, s), fmin(side / w, side / h));
    uint32_t rw = (uint32_t)fmax(1, trunc(w * s)), rh = (uint32_t)fmax(1, trunc(h * s));
    info->resized_w = rw < side ? rw : side;
    info->resized_h = rh < side ? rh : side;
    info->grid_w = round_up(info->resized_w, cell) / p->patch;
    info->grid_h = round_up(info->resized_h, cell) / p->patch;
    info->rows = info->grid_w / p->merge * (info->grid_h / p->merge);
}

/* With A, B the whole patches across and down (at least 1), scaled: A B <= limit, and a scaled side
 * of less than A + 1 patches is padded to less than A + 1 + merge. So a grid of G across leaves
 * less than limit / (G - merge - 1) + 1 down before padding; narrow ones only the side limit. */
uint64_t patch_most(const struct vision_processor *p, uint32_t max_patches)
{
    uint64_t most = 0, limit = patch_limit(p, max_patches);
    for (uint32_t across = p->merge; across <= p->side_limit; across += p->merge) {
        uint64_t down = p->side_limit;
        if (across > p->merge + 1) {
            uint64_t inner = across - p->merge - 1, left = limit / inner + 2;
            if (left < down) down = round_up((uint32_t)left, p->merge);
        }
        if (across * down > most) most = across * down;
    }
    return most;
}

void patch_init(struct patches *p, const struct vision_processor *proc, const uint8_t *rgb,
                const struct picture_info *info)
{
    *p = (struct patches){.rgb = rgb,
                          .width = info->resized_w,
                          .height = info->resized_h,
                          .grid_w = info->grid_w,
                          .grid_h = info->grid_h,
                          .patch = proc->patch};
    for (int c = 0; c < 3; c++) {
        double mean = proc->mean[c], inverse = 1.0 / (double)proc->std[c];
        for (int v = 0; v < 256; v++) {
            float centred = (float)((double)(float)(v / 255.0) - mean);
            p->level[c][v] = (float)((double)centred * inverse);
        }
    }
}

static void fill_one(const struct patches *p, size_t index, float *out)
{
    uint32_t x0 = (uint32_t)(index % p->grid_w) * p->patch;
    uint32_t y0 = (uint32_t)(index / p->grid_w) * p->patch;
    uint32_t wide = p->width > x0 ? p->width - x0 : 0;
    if (wide > p->patch) wide = p->patch;
    for (int c = 0; c < 3; c++)
        for (uint32_t y = y0; y < y0 + p->patch; y++, out += p->patch) {
            uint32_t x = 0, have = y < p->height ? wide : 0;
            const uint8_t *from = have ? p->rgb + ((size_t)y * p->width + x0) * 3 + c : NULL;
            for (; x < have; x++) out[x] = p->level[c][from[x * 3]];
            for (; x < p->patch; x++) out[x] = p->level[c][0];
        }
}

void patch_fill(const struct patches *p, size_t first, size_t n, float *out)
{
    size_t width = 3 * (size_t)p->patch * p->patch;
    for (size_t i = 0; i < n; i++) fill_one(p, first + i, out + i * width);
}
