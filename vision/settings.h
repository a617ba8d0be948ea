/* The vision part of config.json, checked (kimi-k3 1.2), and the reading of checked JSON fields.
 *
 * Every number is bounded and every switch known before anything is sized by it: what this code
 * cannot compute exactly as published is refused here, so that the compute code is straight. */
#ifndef NS_VISION_SETTINGS_H
#define NS_VISION_SETTINGS_H

#include "src/err.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

/* Bounds of the rotary position (the published code stops at 512) and of a merge cell. */
#define SETTINGS_MAX_SIDE  512
#define SETTINGS_MAX_MERGE 4
#define SETTINGS_MAX_PATCH 64

struct vit_config {
    uint32_t hidden, qkv, heads, layers, mlp; /* qkv = heads * head size; head size % 4 == 0 */
    uint32_t patch, merge;
    uint32_t table_h, table_w; /* learned position table */
    uint32_t out;              /* width of a row: the language model's hidden size */
    float norm_eps;            /* tower norms: 2^-23 (kimi-k3 6.6) */
    float post_eps;            /* projector's post_norm */
};

/* E_MODEL: file, field, expected, found. */
enum status settings_vit(struct vit_config *c, const char *dir, struct err *e);
/* Whether dir/config.json has a vision_config; false also when it cannot be read. */
bool settings_has_vision(const char *dir);

/* Parses dir/name into *out; end with settings_close. */
enum status settings_open(struct cJSON **out, const char *dir, const char *name, struct err *e);
void settings_close(struct cJSON *json);

/* One checked field of an object. An absent or null field takes the default; one of another type or
 * outside [min, max] is E_MODEL naming it. */
struct settings_field {
    const struct cJSON *object;
    const char *where; /* file and object, for messages */
};
enum status settings_uint(const struct settings_field *f, const char *name, uint32_t min,
                          uint32_t max, uint32_t *inout, struct err *e);
enum status settings_float(const struct settings_field *f, const char *name, float min, float max,
                           float *inout, struct err *e);
enum status settings_bool(const struct settings_field *f, const char *name, bool *inout,
                          struct err *e);
/* Absent: fine, the published default is `want`. Present: must be the text `want`. */
enum status settings_text(const struct settings_field *f, const char *name, const char *want,
                          struct err *e);

#endif
