/* The processor's size rule and its patches. Arithmetic follows the published Python:
 * sizes in double with truncation, pixel values divided in double and rounded to float, then mean
 * and 1/std applied in double and rounded again. */
#include "vision/patch.h"

#include <math.h>

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
    uint32_t across = info->width / p->patch, down = info->height / p->patch; /* whole patches */
    double s =
        sqrt(patch_limit(p, max_patches) / ((double)(across ? across : 1) * (down ? down : 1)));
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

/* A patch within the picture; side is a constant at the call. */
static inline __attribute__((always_inline)) void
fill_whole(const struct patches *p, const uint8_t *from, uint32_t side, float *out)
{
    float *red = out, *green = red + side * side, *blue = green + side * side;
    for (uint32_t y = 0; y < side; y++, from += (size_t)p->width * 3)
        for (uint32_t x = 0; x < side; x++) {
            *red++ = p->level[0][from[3 * x]];
            *green++ = p->level[1][from[3 * x + 1]];
            *blue++ = p->level[2][from[3 * x + 2]];
        }
}

static void fill_one(const struct patches *p, size_t index, float *out)
{
    uint32_t x0 = (uint32_t)(index % p->grid_w) * p->patch;
    uint32_t y0 = (uint32_t)(index / p->grid_w) * p->patch;
    uint32_t wide = p->width > x0 ? p->width - x0 : 0;
    if (wide > p->patch) wide = p->patch;
    if (p->patch == 14 && wide == 14 && p->height >= y0 + 14) {
        fill_whole(p, p->rgb + ((size_t)y0 * p->width + x0) * 3, 14, out);
        return;
    }
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
