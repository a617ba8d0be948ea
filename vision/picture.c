/* The steps in the published order: the picture is resized in its own mode and composited after,
 * unless the processor says before. */
#include "vision/picture.h"

#include "vision/blend.h"
#include "vision/patch.h"
#include "vision/resize.h"

#include <string.h>

#define SLACK ((uint64_t)1 << 20) /* small blocks and headers of all steps together */

static struct source source_of(const struct picture_job *j, struct mem *m)
{
    return (struct source){
        .bytes = j->bytes, .len = j->len, .lenient = j->limits->lenient, .mem = m};
}

enum status picture_probe(const struct picture_job *j, struct picture_info *info, struct err *e)
{
    struct source s = source_of(j, NULL);
    enum status rc = image_probe(j->limits, &s, info, e);
    if (rc) return rc;
    patch_plan(j->processor, j->limits->max_patches, info);
    /* First the decoder and its pixels, then these and the oriented or blended ones, then the
     * picture with its resized forms; beside them the file and the result, which may lie in shared
     * memory. */
    uint64_t pixels = 4 * (uint64_t)info->width * info->height;
    uint64_t first = info->decode_bytes + pixels, last = 2 * pixels;
    if (info->resized_w != info->width || info->resized_h != info->height)
        last = pixels + resize_bytes(info->width, info->height, info->resized_w, info->resized_h);
    info->decode_bytes = (first > last ? first : last) + SLACK + j->len +
                         3 * (uint64_t)info->resized_w * info->resized_h;
    return OK;
}

static enum status run(const struct picture_job *j, const struct source *s,
                       struct picture_info *info, struct image *out, struct err *e)
{
    struct image in;
    struct picture_info again;
    enum status rc = image_decode(j->limits, s, &in, &again, e);
    memcpy(info->warnings, again.warnings, sizeof info->warnings);
    info->n_warnings = again.n_warnings;
    if (rc) return rc;
    if (in.width != info->width || in.height != info->height)
        rc = err_set(e, E_INTERNAL, "%s: decoded to another size", info->format);
    if (!rc && j->processor->fill_first) rc = blend_rgb(s->mem, j->processor, &in, e);
    bool same = in.width == info->resized_w && in.height == info->resized_h;
    if (!rc && same)
        *out = in;
    else if (!rc)
        rc = resize_image(s->mem, &in, info->resized_w, info->resized_h, out, e);
    if (rc || !same) image_free(s->mem, &in);
    if (!rc) rc = blend_rgb(s->mem, j->processor, out, e);
    return rc;
}

enum status picture_decode(const struct picture_job *j, struct picture_info *info, uint8_t *rgb,
                           struct err *e)
{
    struct mem m;
    struct image out = {0};
    mem_init(&m, info->decode_bytes);
    struct source s = source_of(j, &m);
    s.place = rgb;
    s.place_bytes = (size_t)info->resized_w * info->resized_h * 3;
    enum status rc = run(j, &s, info, &out, e);
    if (!rc && !out.placed) memcpy(rgb, out.pixels, s.place_bytes);
    image_free(&m, &out);
    mem_close(&m);
    return rc == E_BUDGET
               ? err_set(e, E_INTERNAL, "%s: decoding took more than planned", info->format)
               : rc;
}
