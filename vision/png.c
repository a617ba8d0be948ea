/* PNG through libpng: 1 to 16 bits, palettes, transparency, interlace; checksums are checked. The
 * probe walks the chunks itself and calls no library.
 *
 * Modes follow what the model was trained on (Pillow): palettes and one-bit pictures are resized by
 * picking pixels; a transparent grey level is looked up after resizing, with the file's own number;
 * a transparent colour of an RGB picture is not applied; 16 bits lose their lower byte. */
#include "vision/image.h"

#include <png.h>
#include <stdio.h>
#include <string.h>

#define SIGNATURE    "\x89PNG\r\n\x1a\n"
#define CHUNK_MEMORY ((png_alloc_size_t)8 << 20)

static bool match(const uint8_t *b, size_t len)
{
    return len >= 8 && !memcmp(b, SIGNATURE, 8);
}

static enum status read_ihdr(const uint8_t *p, struct picture_info *info, struct err *e)
{
    static const uint8_t depths[7] = {
        [0] = 1 | 2 | 4 | 8 | 16, [2] = 8 | 16, [3] = 1 | 2 | 4 | 8, [4] = 8 | 16, [6] = 8 | 16};
    info->width = be32(p);
    info->height = be32(p + 4);
    info->decode_bytes = info->width * 48ull + (1 << 20);
    unsigned depth = p[8], type = p[9];
    if (type > 6 || !depth || !(depths[type] & depth) || (depth & (depth - 1)))
        return err_set(e, E_IMAGE_UNREADABLE, "png: colour type %u with %u bits", type, depth);
    if (p[10] || p[11] || p[12] > 1)
        return err_set(e, E_IMAGE_UNSUPPORTED, "png: unknown compression, filter or interlace");
    if (depth == 16) image_warn(info, "16-bit picture reduced to 8 bits");
    if (type == 3) image_warn(info, "palette picture");
    if (type == 0 || type == 4) image_warn(info, depth == 1 ? "one-bit picture" : "grey picture");
    return OK;
}

static void read_extra(const uint8_t *p, size_t n, unsigned type, struct picture_info *info)
{
    if (!memcmp(p - 4, "eXIf", 4))
        info->orientation = image_exif_orientation(p, n);
    else if (!memcmp(p - 4, "iCCP", 4))
        image_warn(info, "colour profile ignored");
    else if (!memcmp(p - 4, "tRNS", 4) && type == 2)
        image_warn(info, "transparent colour shown as it is");
    else if (!memcmp(p - 4, "acTL", 4) && n >= 8 && be32(p) > 1) {
        info->frames = be32(p);
        image_warn(info, "first of %u frames", info->frames);
    }
}

/* Walks all chunks: EXIF may stand behind the pixels, and the end must be there. */
static enum status probe(const struct source *s, struct picture_info *info, struct err *e)
{
    size_t at = 8;
    unsigned type = 0;
    bool pixels = false;
    while (s->len - at >= 12) {
        const uint8_t *p = s->bytes + at + 8;
        size_t n = be32(s->bytes + at);
        if (n > s->len - at - 12) break;
        if (at == 8) {
            if (memcmp(p - 4, "IHDR", 4) || n != 13)
                return err_set(e, E_IMAGE_UNREADABLE, "png: does not begin with IHDR");
            enum status rc = read_ihdr(p, info, e);
            if (rc) return rc;
            type = p[9];
        }
        if (!memcmp(p - 4, "IEND", 4)) {
            if (pixels) return OK;
            return err_set(e, E_IMAGE_UNREADABLE, "png: no pixels (IDAT)");
        }
        if (!memcmp(p - 4, "IDAT", 4)) pixels = true;
        read_extra(p, n, type, info);
        at += 12 + n;
    }
    if (!pixels && s->len - at >= 8 && !memcmp(s->bytes + at + 4, "IDAT", 4)) pixels = true;
    if (!info->width || !pixels)
        return err_set(e, E_IMAGE_TRUNCATED, "png: the file ends inside its header at byte %zu",
                       s->len);
    return image_damage(s, info, E_IMAGE_TRUNCATED, e, "the file ends at byte %zu inside a chunk",
                        s->len);
}

struct work {
    png_structp png;
    png_infop info;
    struct mem *mem;
    const uint8_t *next;
    size_t left;
    bool eof, no_memory, indexed;
    enum status rc;
    char error[200];
    char damage[200]; /* a warning about the pixels' own bytes */
};

static void on_error(png_structp png, png_const_charp text)
{
    struct work *w = png_get_error_ptr(png);
    snprintf(w->error, sizeof w->error, "%s", text);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    struct work *w = png_get_error_ptr(png);
    bool surplus = strstr(text, "Too much") || strstr(text, "Extra compressed");
    bool serious = !strncmp(text, "IDAT", 4) || strstr(text, "CRC");
    if (serious && !surplus && !w->damage[0]) snprintf(w->damage, sizeof w->damage, "%s", text);
}

static void on_read(png_structp png, png_bytep to, size_t n)
{
    struct work *w = png_get_io_ptr(png);
    if (n > w->left) {
        w->eof = true;
        png_error(png, "the file ends inside a chunk");
    }
    memcpy(to, w->next, n);
    w->next += n;
    w->left -= n;
}

static png_voidp on_malloc(png_structp png, png_alloc_size_t n)
{
    struct work *w = png_get_mem_ptr(png);
    void *p;
    if (mem_alloc_aligned(w->mem, &p, n, 64, "png decoder", NULL)) w->no_memory = true;
    return p;
}

static void on_free(png_structp png, png_voidp p)
{
    struct work *w = png_get_mem_ptr(png);
    mem_free(w->mem, p);
}

/* Sets the transformations; returns whether indices are read. */
static bool set_mode(struct work *w, struct image *out)
{
    unsigned depth = png_get_bit_depth(w->png, w->info);
    unsigned type = png_get_color_type(w->png, w->info);
    png_color_16p clear = NULL;
    png_bytep alphas = NULL;
    int n = 0;
    bool has_trns = png_get_tRNS(w->png, w->info, &alphas, &n, &clear) != 0;
    if (type == PNG_COLOR_TYPE_PALETTE) {
        png_set_packing(w->png);
        out->nearest = true;
        out->mode = has_trns ? IMAGE_RGBA : IMAGE_RGB;
        return true;
    }
    static const enum image_mode modes[7] = {
        [0] = IMAGE_L, [2] = IMAGE_RGB, [4] = IMAGE_LA, [6] = IMAGE_RGBA};
    out->mode = modes[type];
    out->nearest = type == 0 && depth == 1;
    if (type == 0 && depth < 8) png_set_expand_gray_1_2_4_to_8(w->png);
    if (type == 0 && has_trns && depth == 16) {
        png_set_tRNS_to_alpha(w->png);
        out->mode = IMAGE_LA;
    } else if (type == 0 && has_trns && clear) {
        out->key = depth == 1 ? (clear->gray ? 255 : 0) : clear->gray;
    }
    if (depth == 16) png_set_strip_16(w->png);
    return false;
}

/* Indices lie in the last width * height bytes of pixels; colours are written from the front, never
 * ahead of the index being read. */
static const char *apply_palette(struct work *w, struct image *out, const uint8_t *index)
{
    png_colorp colours = NULL;
    png_bytep alphas = NULL;
    png_color_16p clear;
    int n = 0, n_alphas = 0;
    if (!png_get_PLTE(w->png, w->info, &colours, &n)) return "no palette";
    if (out->mode == IMAGE_RGBA) png_get_tRNS(w->png, w->info, &alphas, &n_alphas, &clear);
    const char *bad = NULL;
    uint8_t *to = out->pixels;
    for (size_t i = 0, all = (size_t)out->width * out->height; i < all; i++) {
        uint8_t k = index[i];
        if (k >= n) {
            bad = "a pixel's index is outside the palette";
            k = 0;
        }
        *to++ = colours[k].red;
        *to++ = colours[k].green;
        *to++ = colours[k].blue;
        if (out->mode == IMAGE_RGBA) *to++ = k < n_alphas ? alphas[k] : 255;
    }
    return bad;
}

static void read_rows(struct work *w, struct image *out, uint8_t *first, size_t stride)
{
    int passes = png_set_interlace_handling(w->png);
    png_read_update_info(w->png, w->info);
    if (png_get_rowbytes(w->png, w->info) != stride) png_error(w->png, "unexpected row size");
    for (; passes > 0; passes--)
        for (uint32_t y = 0; y < out->height; y++) png_read_row(w->png, first + y * stride, NULL);
    png_read_end(w->png, NULL);
}

/* May fail, and then jumps. Chunks that change no pixel are not read. */
static void set_limits(png_structp png, bool lenient)
{
    int crc = lenient ? PNG_CRC_WARN_USE : PNG_CRC_ERROR_QUIT;
    png_set_user_limits(png, INT32_MAX, INT32_MAX);
    png_set_chunk_malloc_max(png, CHUNK_MEMORY);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_crc_action(png, crc, crc);
}

/* The part that may jump: all that it leaves is in w and out. */
static void read_picture(struct work *w, const struct source *s, struct image *out, struct err *e)
{
    if (setjmp(png_jmpbuf(w->png))) return;
    set_limits(w->png, s->lenient);
    png_set_read_fn(w->png, w, on_read);
    png_read_info(w->png, w->info);
    if (png_get_image_width(w->png, w->info) != out->width ||
        png_get_image_height(w->png, w->info) != out->height)
        png_error(w->png, "two readings of the header differ");
    w->indexed = set_mode(w, out);
    w->rc = image_alloc(s, out, e);
    size_t all = (size_t)out->width * out->height, n = image_channels(out);
    if (!w->rc && w->indexed)
        read_rows(w, out, out->pixels + all * (n - 1), out->width);
    else if (!w->rc)
        read_rows(w, out, out->pixels, out->width * n);
}

static enum status run(struct work *w, const struct source *s, struct image *out,
                       struct picture_info *info, struct err *e)
{
    read_picture(w, s, out, e);
    if (w->rc) return w->rc;
    if (!w->error[0]) snprintf(w->error, sizeof w->error, "%s", w->damage);
    if (out->pixels && w->indexed) {
        size_t at = (size_t)out->width * out->height * (image_channels(out) - 1);
        const char *bad = apply_palette(w, out, out->pixels + at);
        if (bad && !w->error[0]) snprintf(w->error, sizeof w->error, "%s", bad);
    }
    if (!w->error[0]) return OK;
    enum status code =
        w->eof || strstr(w->error, "Not enough") ? E_IMAGE_TRUNCATED : E_IMAGE_UNREADABLE;
    if (!out->pixels) return err_set(e, code, "png: %s", w->error);
    return image_damage(s, info, code, e, "%s", w->error);
}

static enum status decode(const struct source *s, struct image *out, struct picture_info *info,
                          struct err *e)
{
    struct work w = {.mem = s->mem, .next = s->bytes, .left = s->len};
    w.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &w, on_error, on_warning, &w, on_malloc,
                                     on_free);
    if (w.png) w.info = png_create_info_struct(w.png);
    enum status rc = w.info ? run(&w, s, out, info, e) : OK;
    if (!w.info || w.no_memory) rc = err_set(e, E_NOMEM, "png: no memory for the decoder");
    png_destroy_read_struct(&w.png, &w.info, NULL);
    return rc;
}

const struct decoder image_png = {"png", match, probe, decode};
