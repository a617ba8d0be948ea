/* From a picture's size to its patch grid, and from pixels to patch vectors (kimi-k3 6.2, 6.3). */
#ifndef NS_PATCH_H
#define NS_PATCH_H

#include "vision/vision.h"

/* Fills resized_w/h, grid_w/h and rows of info from its width and height. max_patches bounds the
 * model's own limit further; 0: not. The published rule pads after scaling, so the grid may have a
 * few patches more than the limit. */
void patch_plan(const struct vision_processor *p, uint32_t max_patches, struct picture_info *info);

/* Most patches a picture can have under these settings, padding included: somewhat more than the
 * limit. */
uint64_t patch_most(const struct vision_processor *p, uint32_t max_patches);

/* Pixels that patch vectors are made of. Right and below them the grid is padded with black before
 * normalisation. */
struct patches {
    const uint8_t *rgb; /* [height][width][3] */
    uint32_t width, height;
    uint32_t grid_w, grid_h, patch;
    float level[3][256]; /* normalised value of each byte, per channel */
};
void patch_init(struct patches *p, const struct vision_processor *proc, const uint8_t *rgb,
                const struct picture_info *info);
/* Patches [first, first + n) in row-major order: out [n][3][patch][patch]. */
void patch_fill(const struct patches *p, size_t first, size_t n, float *out);

#endif
