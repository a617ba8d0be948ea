/* The vision part of config.json, checked (kimi-k3 1.2).
 *
 * Every number is bounded and every switch known before anything is sized by it: what this code
 * cannot compute exactly as published is refused here, so that the compute code is straight. */
#ifndef NS_SETTINGS_H
#define NS_SETTINGS_H

#include "src/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Patches on one side: the published rotary table ends there. */
#define SETTINGS_MAX_SIDE 512

struct vit_config {
    uint32_t hidden, qkv, heads, layers, mlp; /* qkv = heads * head size; head size % 4 == 0 */
    uint32_t patch, merge;
    uint32_t table_h, table_w; /* learned position table */
    bool bicubic;              /* how the table is resampled; else bilinear */
    uint32_t out;              /* width of a row: the language model's hidden size */
    float norm_eps;            /* tower norms: 2^-23 (kimi-k3 6.6) */
    float post_eps;            /* projector's post_norm */
};

/* E_MODEL: file, field, expected, found. */
enum status settings_vit(struct vit_config *c, const char *dir, struct err *e);
/* Whether dir/config.json has a vision_config; false also when it cannot be read. */
bool settings_has_vision(const char *dir);

#endif
