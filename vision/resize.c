/* Coefficients are computed in double and rounded to 22 bits; sums are 32-bit integers that start
 * at one half and are clamped after the shift. Alpha is multiplied in before and divided out after,
 * on 8 bits both times. All of this is observable, so none of it may be rearranged. */
#include "vision/resize.h"

#include <math.h>
#include <string.h>

#define BITS     22
#define OVERHEAD 256
#define BLOCK    16 /* rows across, or bytes of a row down, that are summed together */

/* Output i is the sum over taps j < count[i] of weight[i * taps + j] * in[first[i] + j]. */
struct filter {
    uint32_t taps;
    uint32_t *first, *count;
    int32_t *weight;
};

static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

static uint32_t tap_count(uint64_t in, uint64_t out)
{
    double scale = (double)in / (double)out;
    return (uint32_t)ceil(2.0 * (scale < 1 ? 1 : scale)) * 2 + 1;
}

/* The cut-off window of output i and its weights, scaled to sum 1 before rounding. */
static void fill_taps(struct filter *f, uint32_t i, uint32_t in, double scale, double *w)
{
    double widen = scale < 1 ? 1 : scale, support = 2.0 * widen, inverse = 1.0 / widen;
    double centre = (i + 0.5) * scale, sum = 0;
    int64_t low = (int64_t)(centre - support + 0.5), high = (int64_t)(centre + support + 0.5);
    if (low < 0) low = 0;
    if (high > in) high = in;
    f->first[i] = (uint32_t)low;
    f->count[i] = (uint32_t)(high - low);
    for (uint32_t j = 0; j < f->count[i]; j++)
        sum += w[j] = cubic(((double)(j + low) - centre + 0.5) * inverse);
    int32_t *to = f->weight + (size_t)i * f->taps;
    for (uint32_t j = 0; j < f->count[i]; j++) {
        double v = (sum != 0 ? w[j] / sum : w[j]) * (1 << BITS);
        to[j] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
    }
}

static enum status make_filter(struct mem *m, struct filter *f, uint32_t in, uint32_t out,
                               struct err *e)
{
    f->taps = tap_count(in, out);
    double *w;
    enum status rc = mem_array(m, &w, f->taps, sizeof *w, "resize filter", e);
    if (!rc) rc = mem_array(m, &f->first, out, 2 * sizeof *f->first, "resize filter", e);
    if (!rc)
        rc = mem_array(m, &f->weight, (size_t)out * f->taps, sizeof *f->weight, "resize filter", e);
    if (!rc) {
        f->count = f->first + out;
        for (uint32_t i = 0; i < out; i++) fill_taps(f, i, in, (double)in / out, w);
    }
    mem_free(m, w);
    return rc;
}

static void free_filter(struct mem *m, struct filter *f)
{
    mem_free(m, f->first);
    mem_free(m, f->weight);
}

static uint8_t clamp(int32_t sum)
{
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* BLOCK results side by side: element k is the sum over j < n of w[j] * from[j * step + k]. */
static inline __attribute__((always_inline)) void
weigh_body(const int32_t *w, uint32_t n, const uint8_t *from, size_t step, uint8_t *to)
{
    int32_t sum[BLOCK];
    for (int k = 0; k < BLOCK; k++) sum[k] = 1 << (BITS - 1);
    for (uint32_t j = 0; j < n; j++, from += step)
        for (int k = 0; k < BLOCK; k++) sum[k] += from[k] * w[j];
    for (int k = 0; k < BLOCK; k++) to[k] = clamp(sum[k]);
}

typedef void (*weigh_fn)(const int32_t *w, uint32_t n, const uint8_t *from, size_t step,
                         uint8_t *to);

static void weigh(const int32_t *w, uint32_t n, const uint8_t *from, size_t step, uint8_t *to)
{
    weigh_body(w, n, from, step, to);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void
weigh_avx2(const int32_t *w, uint32_t n, const uint8_t *from, size_t step, uint8_t *to)
{
    weigh_body(w, n, from, step, to);
}
#endif

static weigh_fn best_weigh(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) return weigh_avx2;
#endif
    return weigh;
}

/* BLOCK bytes of as many rows, so that one step of the rows lies side by side: [x][rows]. */
static void interleave(const uint8_t *in, size_t width, size_t rows, uint8_t *to)
{
    for (size_t r = 0; r < BLOCK; r++) {
        const uint8_t *from = in + (r < rows ? r : 0) * width;
        for (size_t x = 0; x < width; x++) to[x * BLOCK + r] = from[x];
    }
}

/* Up to BLOCK rows of pixels with n channels. side: room for them, interleaved. */
static void across(const struct filter *f, const struct image *in, struct image *out, uint32_t y,
                   uint8_t *side)
{
    size_t n = image_channels(in), width = in->width * n, wide = out->width * n;
    size_t rows = in->height - y < BLOCK ? in->height - y : BLOCK;
    uint8_t *to = out->pixels + y * wide, column[BLOCK];
    weigh_fn sum = best_weigh();
    interleave(in->pixels + y * width, width, rows, side);
    for (uint32_t i = 0; i < out->width; i++)
        for (size_t c = 0; c < n; c++, to++) {
            sum(f->weight + (size_t)i * f->taps, f->count[i], side + (f->first[i] * n + c) * BLOCK,
                n * BLOCK, column);
            for (size_t r = 0; r < rows; r++) to[r * wide] = column[r];
        }
}

/* Row i of the result, from rows of `width` bytes; the last block may overlap the one before. */
static void down(const struct filter *f, const uint8_t *in, uint8_t *to, uint32_t i, size_t width)
{
    const int32_t *w = f->weight + (size_t)i * f->taps;
    const uint8_t *from = in + f->first[i] * width;
    weigh_fn sum = best_weigh();
    size_t x = 0;
    for (; width - x >= BLOCK; x += BLOCK) sum(w, f->count[i], from + x, width, to + x);
    if (x == width) return;
    if (width >= BLOCK) {
        sum(w, f->count[i], from + width - BLOCK, width, to + width - BLOCK);
        return;
    }
    for (; x < width; x++) {
        int32_t v = 1 << (BITS - 1);
        for (uint32_t j = 0; j < f->count[i]; j++) v += from[j * width + x] * w[j];
        to[x] = clamp(v);
    }
}

static enum status alloc_image(struct mem *m, struct image *i, struct err *e)
{
    return mem_array(m, &i->pixels, (size_t)i->width * i->height, image_channels(i),
                     "resized picture", e);
}

static enum status resize_across(struct mem *m, const struct image *in, struct image *out,
                                 struct err *e)
{
    struct filter f = {0};
    uint8_t *side = NULL;
    enum status rc = alloc_image(m, out, e);
    if (!rc) rc = mem_array(m, &side, in->width * (size_t)image_channels(in), BLOCK, "resize", e);
    if (!rc) rc = make_filter(m, &f, in->width, out->width, e);
    for (uint32_t y = 0; !rc && y < out->height; y += BLOCK) across(&f, in, out, y, side);
    mem_free(m, side);
    free_filter(m, &f);
    return rc;
}

static enum status resize_down(struct mem *m, const struct image *in, struct image *out,
                               struct err *e)
{
    struct filter f = {0};
    size_t width = in->width * (size_t)image_channels(in);
    enum status rc = alloc_image(m, out, e);
    if (!rc) rc = make_filter(m, &f, in->height, out->height, e);
    for (uint32_t y = 0; !rc && y < out->height; y++)
        down(&f, in->pixels, out->pixels + y * width, y, width);
    free_filter(m, &f);
    return rc;
}

/* Two passes round twice, so their order shows: across first, unless the height shrinks by more
 * than twice what the width does (Pillow 13; versions before always went across first). */
static enum status bicubic(struct mem *m, const struct image *in, struct image *out, struct err *e)
{
    struct image mid = *out;
    if (in->width == out->width) return resize_down(m, in, out, e);
    if (in->height == out->height) return resize_across(m, in, out, e);
    int64_t less_h = (int64_t)in->height - out->height, less_w = (int64_t)in->width - out->width;
    bool down_first = less_h > 0 && less_h > 2 * less_w;
    if (down_first)
        mid.width = in->width;
    else
        mid.height = in->height;
    enum status rc = down_first ? resize_down(m, in, &mid, e) : resize_across(m, in, &mid, e);
    if (!rc) rc = down_first ? resize_across(m, &mid, out, e) : resize_down(m, &mid, out, e);
    mem_free(m, mid.pixels);
    return rc;
}

static enum status nearest(struct mem *m, const struct image *in, struct image *out, struct err *e)
{
    size_t n = image_channels(in);
    uint32_t *column;
    enum status rc = alloc_image(m, out, e);
    if (rc) return rc;
    rc = mem_array(m, &column, out->width, sizeof *column, "resize row", e);
    if (rc) return rc;
    /* Steps are summed, not multiplied, as the original does. */
    double step_x = (double)in->width / out->width, step_y = (double)in->height / out->height;
    double at = step_x * 0.5;
    for (uint32_t x = 0; x < out->width; x++, at += step_x)
        column[x] = at < in->width ? (uint32_t)at : in->width - 1;
    at = step_y * 0.5;
    uint8_t *to = out->pixels;
    for (uint32_t y = 0; y < out->height; y++, at += step_y) {
        uint32_t row = at < in->height ? (uint32_t)at : in->height - 1;
        const uint8_t *from = in->pixels + (size_t)row * in->width * n;
        for (uint32_t x = 0; x < out->width; x++, to += n) memcpy(to, from + column[x] * n, n);
    }
    mem_free(m, column);
    return OK;
}

static bool has_alpha(const struct image *i)
{
    return i->mode == IMAGE_LA || i->mode == IMAGE_RGBA;
}

static void multiply_alpha(struct image *i)
{
    size_t n = image_channels(i), all = (size_t)i->width * i->height;
    for (uint8_t *p = i->pixels, *end = p + all * n; p < end; p += n)
        for (size_t c = 0; c < n - 1; c++) {
            uint32_t v = p[c] * (uint32_t)p[n - 1] + 128;
            p[c] = (uint8_t)((v + (v >> 8)) >> 8);
        }
}

static void divide_alpha(struct image *i)
{
    size_t n = image_channels(i), all = (size_t)i->width * i->height;
    for (uint8_t *p = i->pixels, *end = p + all * n; p < end; p += n) {
        uint32_t alpha = p[n - 1];
        if (alpha == 255 || alpha == 0) continue;
        for (size_t c = 0; c < n - 1; c++) {
            uint32_t v = 255u * p[c] / alpha;
            p[c] = (uint8_t)(v > 255 ? 255 : v);
        }
    }
}

static enum status copy(struct mem *m, const struct image *in, struct image *out, struct err *e)
{
    enum status rc = alloc_image(m, out, e);
    if (!rc) memcpy(out->pixels, in->pixels, (size_t)in->width * in->height * image_channels(in));
    return rc;
}

enum status resize_image(struct mem *m, const struct image *in, uint32_t width, uint32_t height,
                         struct image *out, struct err *e)
{
    *out = *in;
    out->pixels = NULL;
    out->placed = false;
    enum status rc;
    if (in->width == width && in->height == height) {
        rc = copy(m, in, out, e);
    } else if (in->nearest) {
        out->width = width;
        out->height = height;
        rc = nearest(m, in, out, e);
    } else if (has_alpha(in)) {
        struct image flat = *out;
        rc = copy(m, in, &flat, e);
        if (!rc) multiply_alpha(&flat);
        out->width = width;
        out->height = height;
        if (!rc) rc = bicubic(m, &flat, out, e);
        image_free(m, &flat);
        if (!rc) divide_alpha(out);
    } else {
        out->width = width;
        out->height = height;
        rc = bicubic(m, in, out, e);
    }
    if (rc) image_free(m, out);
    return rc;
}

static uint64_t filter_bytes(uint64_t in, uint64_t out)
{
    uint64_t taps = tap_count(in, out);
    return out * taps * 4 + out * 8 + taps * 8 + 3 * OVERHEAD;
}

uint64_t resize_bytes(uint64_t in_w, uint64_t in_h, uint64_t out_w, uint64_t out_h)
{
    uint64_t mid = in_h * out_w > in_w * out_h ? in_h * out_w : in_w * out_h;
    uint64_t wide = in_w > out_w ? in_w : out_w;
    return in_w * in_h * 4 + mid * 4 + out_w * out_h * 4 + filter_bytes(in_w, out_w) +
           filter_bytes(in_h, out_h) + wide * 4 * BLOCK + 8 * OVERHEAD;
}
