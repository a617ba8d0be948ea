/* Which format, limits, orientation. The decoders are in jpeg.c, png.c, gif.c, bmp.c, webp.c. */
#include "vision/image.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const struct decoder *const decoders[] = {&image_jpeg, &image_png, &image_gif, &image_bmp,
                                                 &image_webp};

void vision_limits_default(struct vision_limits *l)
{
    *l = (struct vision_limits){.max_pixels = 200000000,
                                .max_bytes = (uint64_t)256 << 20,
                                .max_ratio = 10000,
                                .max_frames = 10000,
                                .timeout_s = 60,
                                .exif = true};
}

void image_warn(struct picture_info *info, const char *fmt, ...)
{
    if (info->n_warnings == PICTURE_WARNINGS) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(info->warnings[info->n_warnings++], sizeof info->warnings[0], fmt, ap);
    va_end(ap);
}

enum status image_damage(const struct source *s, struct picture_info *info, enum status code,
                         struct err *e, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!s->lenient) return err_set(e, code, "%s: %s", info->format, text);
    image_warn(info, "damaged: %s", text);
    return OK;
}

/* Pixels are touched once: taking thousands of small pages would cost as much as turning them. */
static void want_huge_pages(uint8_t *p, size_t bytes)
{
    const uintptr_t huge = (uintptr_t)2 << 20;
    uintptr_t first = ((uintptr_t)p + huge - 1) & ~(huge - 1);
    uintptr_t end = ((uintptr_t)p + bytes) & ~(huge - 1);
    if (end > first) madvise((void *)first, end - first, MADV_HUGEPAGE);
}

enum status image_alloc(const struct source *s, struct image *out, struct err *e)
{
    size_t pixels = (size_t)out->width * out->height;
    out->placed = s->place && out->mode == IMAGE_RGB && pixels * 3 == s->place_bytes;
    if (out->placed) {
        out->pixels = s->place;
        memset(out->pixels, 0, s->place_bytes);
        return OK;
    }
    size_t bytes = pixels * image_channels(out);
    enum status rc = mem_array(s->mem, &out->pixels, pixels, image_channels(out), "picture", e);
    if (!rc) want_huge_pages(out->pixels, bytes);
    return rc;
}

void image_free(struct mem *m, struct image *i)
{
    if (!i->placed) mem_free(m, i->pixels);
    i->pixels = NULL;
}

static enum status find_decoder(const struct source *s, const struct decoder **out, struct err *e)
{
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
        if (decoders[i]->match(s->bytes, s->len)) {
            *out = decoders[i];
            return OK;
        }
    if (s->len == 0) return err_set(e, E_IMAGE_UNREADABLE, "the file is empty");
    const char *name = image_foreign(s);
    if (name)
        return err_set(e, E_IMAGE_UNSUPPORTED,
                       "the format is %s; read are JPEG, PNG, GIF, "
                       "BMP and WebP",
                       name);
    return err_set(e, E_IMAGE_UNREADABLE, "no picture format is recognised in its %zu bytes",
                   s->len);
}

static enum status check_size(const struct vision_limits *l, const struct picture_info *info,
                              struct err *e)
{
    uint64_t pixels = (uint64_t)info->width * info->height;
    uint32_t longer = info->width > info->height ? info->width : info->height;
    if (!info->width || !info->height)
        return err_set(e, E_IMAGE_UNREADABLE, "%s: the header says %u x %u pixels", info->format,
                       info->width, info->height);
    if (info->width > INT32_MAX || info->height > INT32_MAX || pixels > l->max_pixels)
        return err_set(e, E_IMAGE_TOO_LARGE,
                       "%s: %u x %u is %" PRIu64 " pixels, the limit is %" PRIu64, info->format,
                       info->width, info->height, pixels, l->max_pixels);
    if (longer > (uint64_t)l->max_ratio * (info->width + info->height - longer))
        return err_set(e, E_IMAGE_TOO_LARGE,
                       "%s: %u x %u: one side is more than %u times the other", info->format,
                       info->width, info->height, l->max_ratio);
    if (info->frames > l->max_frames)
        return err_set(e, E_IMAGE_TOO_LARGE, "%s: %u frames, the limit is %u", info->format,
                       info->frames, l->max_frames);
    return OK;
}

static enum status probe_stored(const struct vision_limits *l, const struct source *s,
                                struct picture_info *info, const struct decoder **d, struct err *e)
{
    *info = (struct picture_info){.orientation = 1, .frames = 1};
    if (s->len > l->max_bytes)
        return err_set(e, E_IMAGE_TOO_LARGE, "the file has %zu bytes, the limit is %" PRIu64,
                       s->len, l->max_bytes);
    enum status rc = find_decoder(s, d, e);
    if (rc) return rc;
    info->format = (*d)->name;
    rc = (*d)->probe(s, info, e);
    return rc ? rc : check_size(l, info, e);
}

static bool turned(const struct vision_limits *l, const struct picture_info *info)
{
    return l->exif && info->orientation >= 5;
}

static void swap_sides(struct picture_info *info)
{
    unsigned w = info->width;
    info->width = info->height;
    info->height = w;
}

enum status image_probe(const struct vision_limits *l, const struct source *s,
                        struct picture_info *info, struct err *e)
{
    const struct decoder *d;
    enum status rc = probe_stored(l, s, info, &d, e);
    if (!rc && turned(l, info)) swap_sides(info);
    return rc;
}

#define TILE 32

/* Copies a picture whose stored pixels lie `right` and `down` bytes apart. */
struct walk {
    uint8_t *to;
    const uint8_t *from;
    uint32_t width, height; /* of the result */
    ptrdiff_t right, down;
};

/* In tiles: where rows become columns, a line of cache then serves several pixels. n is a constant
 * at each call. */
static inline __attribute__((always_inline)) void walk_n(const struct walk *w, size_t n)
{
    for (uint32_t y0 = 0; y0 < w->height; y0 += TILE)
        for (uint32_t x0 = 0; x0 < w->width; x0 += TILE) {
            uint32_t x1 = w->width - x0 < TILE ? w->width : x0 + TILE;
            uint32_t y1 = w->height - y0 < TILE ? w->height : y0 + TILE;
            for (uint32_t y = y0; y < y1; y++) {
                uint8_t *to = w->to + ((size_t)y * w->width + x0) * n;
                const uint8_t *from = w->from + (ptrdiff_t)y * w->down + (ptrdiff_t)x0 * w->right;
                for (uint32_t x = x0; x < x1; x++, to += n, from += w->right) memcpy(to, from, n);
            }
        }
}

/* Moves pixels so that the stored picture looks as its orientation says. */
static enum status orient(const struct source *s, struct image *i, unsigned orientation,
                          struct err *e)
{
    struct image from = *i;
    bool across = orientation >= 5;
    i->width = across ? from.height : from.width;
    i->height = across ? from.width : from.height;
    enum status rc = image_alloc(s, i, e);
    if (rc) {
        *i = from;
        return rc;
    }
    /* Where the pixel at column x, row y of the result is stored: per orientation whether the
     * stored column and row run backwards. */
    bool back_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    bool back_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    ptrdiff_t n = (ptrdiff_t)image_channels(i), row = n * (ptrdiff_t)from.width;
    struct walk w = {.to = i->pixels, .from = from.pixels, .width = i->width, .height = i->height};
    if (back_x) w.from += row - n;
    if (back_y) w.from += (ptrdiff_t)(from.height - 1) * row;
    w.right = across ? (back_y ? -row : row) : back_x ? -n : n;
    w.down = across ? (back_x ? -n : n) : back_y ? -row : row;
    if (n == 1)
        walk_n(&w, 1);
    else if (n == 2)
        walk_n(&w, 2);
    else if (n == 3)
        walk_n(&w, 3);
    else
        walk_n(&w, 4);
    image_free(s->mem, &from);
    return OK;
}

enum status image_decode(const struct vision_limits *l, const struct source *s, struct image *out,
                         struct picture_info *info, struct err *e)
{
    const struct decoder *d;
    *out = (struct image){.key = -1};
    enum status rc = probe_stored(l, s, info, &d, e);
    if (rc) return rc;
    out->width = info->width;
    out->height = info->height;
    struct source stored = *s;
    bool turn = l->exif && info->orientation > 1;
    if (turn) stored.place = NULL;
    rc = d->decode(&stored, out, info, e);
    if (!rc && turn) rc = orient(s, out, info->orientation, e);
    if (rc) image_free(s->mem, out);
    if (turned(l, info)) swap_sides(info);
    return rc;
}

static uint32_t tiff16(const uint8_t *p, bool big)
{
    return big ? be16(p) : le16(p);
}

static uint32_t tiff32(const uint8_t *p, bool big)
{
    return big ? be32(p) : le32(p);
}

bool image_tiff_entry(const uint8_t *bytes, size_t len, unsigned tag, struct tiff_entry *out)
{
    if (len < 8 || (memcmp(bytes, "II*\0", 4) && memcmp(bytes, "MM\0*", 4))) return false;
    bool big = bytes[0] == 'M';
    size_t at = tiff32(bytes + 4, big);
    if (at > len - 2) return false;
    size_t entries = tiff16(bytes + at, big);
    for (at += 2; entries > 0 && at + 12 <= len; entries--, at += 12) {
        const uint8_t *entry = bytes + at;
        if (tiff16(entry, big) != tag) continue;
        *out = (struct tiff_entry){tiff16(entry + 2, big), tiff32(entry + 4, big),
                                   tiff32(entry + 8, big)};
        if (out->type == 3) out->value = tiff16(entry + 8, big);
        return true;
    }
    return false;
}

unsigned image_exif_orientation(const uint8_t *bytes, size_t len)
{
    struct tiff_entry t;
    if (len >= 6 && !memcmp(bytes, "Exif\0\0", 6)) bytes += 6, len -= 6;
    if (!image_tiff_entry(bytes, len, 0x0112, &t) || t.count != 1) return 1;
    return (t.type == 3 || t.type == 4) && t.value >= 1 && t.value <= 8 ? t.value : 1;
}
