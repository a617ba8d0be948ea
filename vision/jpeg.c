/* JPEG through libjpeg-turbo: baseline, extended, progressive, arithmetic; grey, YCbCr, RGB, CMYK
 * and YCCK, 8 bits. The probe walks the markers itself and calls no library.
 *
 * The library goes on after damage and only warns; every warning that means lost pixels is an error
 * here. CMYK is taken as inverted, as Adobe and everyone after it writes it. */
#include "vision/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#define MAX_SCANS 100 /* encoders make about ten */

static bool match(const uint8_t *b, size_t len)
{
    return len >= 3 && b[0] == 0xff && b[1] == 0xd8 && b[2] == 0xff;
}

static enum status read_frame(const uint8_t *p, size_t n, unsigned marker,
                              struct picture_info *info, struct err *e)
{
    if (n < 6) return err_set(e, E_IMAGE_UNREADABLE, "jpeg: frame header of %zu bytes", n);
    unsigned kind = marker - 0xc0;
    if (kind != 0 && kind != 1 && kind != 2 && kind != 9 && kind != 10)
        return err_set(e, E_IMAGE_UNSUPPORTED, "jpeg: %s",
                       kind == 3 || kind == 11 ? "lossless compression" : "hierarchical coding");
    if (p[0] != 8) return err_set(e, E_IMAGE_UNSUPPORTED, "jpeg: %u bits a sample", p[0]);
    info->height = be16(p + 1);
    info->width = be16(p + 3);
    if (!info->height)
        return err_set(e, E_IMAGE_UNSUPPORTED, "jpeg: height left open in the header (DNL)");
    if (p[5] == 1)
        image_warn(info, "grey picture");
    else if (p[5] == 4)
        image_warn(info, "CMYK converted to RGB without its colour profile");
    else if (p[5] != 3)
        return err_set(e, E_IMAGE_UNSUPPORTED, "jpeg: %u colour components", p[5]);
    return OK;
}

static bool is_frame(unsigned m)
{
    return m >= 0xc0 && m <= 0xcf && m != 0xc4 && m != 0xc8 && m != 0xcc;
}

/* Whether another scan follows the one whose header ends before *at; *at is set behind its header.
 */
static bool next_scan(const struct source *s, size_t *at)
{
    const uint8_t *p;
    while (*at < s->len && (p = memchr(s->bytes + *at, 0xff, s->len - *at))) {
        *at = (size_t)(p - s->bytes) + 1;
        if (s->len - *at < 3) return false;
        unsigned marker = s->bytes[*at];
        if (marker == 0 || marker == 0xff || (marker >= 0xd0 && marker <= 0xd7)) continue;
        if (marker == 0xd9) return false;
        *at += 1 + be16(s->bytes + *at + 1);
        if (marker == 0xda) return true;
    }
    return false;
}

/* A scan of a few bytes can take as long as one that carries all pixels. */
static enum status too_many_scans(struct err *e)
{
    return err_set(e, E_IMAGE_TOO_LARGE, "jpeg: more than %d scans", MAX_SCANS);
}

static enum status check_scans(const struct source *s, size_t at, struct err *e)
{
    unsigned n = 1;
    while (n <= MAX_SCANS && next_scan(s, &at)) n++;
    return n > MAX_SCANS ? too_many_scans(e) : OK;
}

/* The library keeps all coefficients, two bytes each, when a scan does not carry all components at
 * once; else a few rows of blocks. Returns whether there may be several scans. */
static bool count_memory(struct picture_info *info, unsigned frame, unsigned in_scan)
{
    unsigned components = frame & 255, kind = frame >> 8;
    bool whole = kind == 0xc2 || kind == 0xca || in_scan < components;
    info->decode_bytes = (info->width + 64ull) * components * 128 + (1 << 20);
    if (whole)
        info->decode_bytes += (info->width + 32ull) * (info->height + 32ull) * components * 2;
    return whole;
}

/* Walks markers up to the first scan. EXIF's first block decides the orientation. */
static enum status probe(const struct source *s, struct picture_info *info, struct err *e)
{
    bool exif = false, icc = false;
    unsigned frame = 0; /* marker and number of components */
    enum status rc = OK;
    size_t at = 2;
    for (;;) {
        while (at < s->len && s->bytes[at] != 0xff) at++;
        while (at < s->len && s->bytes[at] == 0xff) at++;
        if (at >= s->len) break;
        unsigned marker = s->bytes[at++];
        if (marker == 0 || marker == 1 || (marker >= 0xd0 && marker <= 0xd8)) continue;
        if (marker == 0xd9) return err_set(e, E_IMAGE_UNREADABLE, "jpeg: ends before any picture");
        if (s->len - at < 2) break;
        size_t n = be16(s->bytes + at);
        if (n < 2)
            return err_set(e, E_IMAGE_UNREADABLE, "jpeg: marker %02x of length %zu", marker, n);
        if (marker == 0xda) {
            if (icc) image_warn(info, "colour profile ignored");
            if (!frame)
                return err_set(e, E_IMAGE_UNREADABLE, "jpeg: a scan before any frame header");
            bool more = count_memory(info, frame, at + 2 < s->len ? s->bytes[at + 2] : 0);
            return more ? check_scans(s, at + n, e) : OK;
        }
        if (n > s->len - at) break;
        const uint8_t *p = s->bytes + at + 2;
        if (is_frame(marker)) {
            if (frame) return err_set(e, E_IMAGE_UNREADABLE, "jpeg: two frame headers");
            rc = read_frame(p, n - 2, marker, info, e);
            if (!rc) frame = marker << 8 | p[5];
        } else if (marker == 0xe1 && !exif && n >= 8 && !memcmp(p, "Exif\0\0", 6)) {
            exif = true;
            info->orientation = image_exif_orientation(p, n - 2);
        } else if (marker == 0xe2 && n >= 14 && !memcmp(p, "ICC_PROFILE", 12)) {
            icc = true;
        }
        if (rc) return rc;
        at += n;
    }
    return err_set(e, E_IMAGE_TRUNCATED, "jpeg: the file ends inside its header at byte %zu",
                   s->len);
}

struct work {
    struct jpeg_error_mgr mgr;
    jmp_buf out;
    struct jpeg_decompress_struct c;
    struct jpeg_progress_mgr progress;
    bool lenient;
    char damage[JMSG_LENGTH_MAX]; /* first warning that means lost pixels */
    bool many_scans;
    bool eof; /* the file, or its end marker, came too early */
};

static void on_error(j_common_ptr c)
{
    longjmp(((struct work *)c->err)->out, 1);
}

static void on_message(j_common_ptr c, int level)
{
    struct work *w = (struct work *)c->err;
    if (level >= 0) return;
    int code = w->mgr.msg_code;
    if (code == JWRN_JPEG_EOF || (code == JWRN_HIT_MARKER && w->c.unread_marker == JPEG_EOI))
        w->eof = true;
    bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR ||
                    code == JWRN_ADOBE_XFORM || code == JWRN_TOO_MUCH_DATA ||
                    code == JWRN_NOT_SEQUENTIAL;
    if (harmless) return;
    if (!w->damage[0]) w->mgr.format_message(c, w->damage);
    if (!w->lenient) longjmp(w->out, 1);
}

/* The probe and the library may not agree on what is a scan. */
static void on_progress(j_common_ptr c)
{
    struct work *w = (struct work *)c->err;
    if (w->c.input_scan_number <= MAX_SCANS) return;
    w->many_scans = true;
    longjmp(w->out, 1);
}

static void silent(j_common_ptr c)
{
    (void)c;
}

static void set_mode(struct work *w, struct image *out)
{
    static const J_COLOR_SPACE space[] = {[1] = JCS_GRAYSCALE, [3] = JCS_RGB, [4] = JCS_CMYK};
    int n = w->c.num_components;
    out->mode = n == 1 ? IMAGE_L : n == 3 ? IMAGE_RGB : IMAGE_CMYK;
    w->c.out_color_space = space[n];
}

static void read_rows(struct work *w, struct image *out)
{
    size_t stride = (size_t)out->width * image_channels(out);
    while (w->c.output_scanline < w->c.output_height) {
        JSAMPROW row = out->pixels + w->c.output_scanline * stride;
        jpeg_read_scanlines(&w->c, &row, 1);
    }
    jpeg_finish_decompress(&w->c);
    if (out->mode == IMAGE_CMYK)
        for (size_t i = 0; i < stride * out->height; i++) out->pixels[i] ^= 255;
}

static enum status run(struct work *w, const struct source *s, struct image *out, struct err *e)
{
    if (setjmp(w->out)) {
        if (w->mgr.msg_code == JERR_OUT_OF_MEMORY)
            return err_set(e, E_IMAGE_TOO_LARGE, "jpeg: no memory left to decode it");
        if (w->many_scans) return too_many_scans(e);
        if (!w->damage[0]) w->mgr.format_message((j_common_ptr)&w->c, w->damage);
        return err_set(e, w->eof ? E_IMAGE_TRUNCATED : E_IMAGE_UNREADABLE, "jpeg: %s", w->damage);
    }
    jpeg_create_decompress(&w->c);
    w->progress.progress_monitor = on_progress;
    w->c.progress = &w->progress;
    jpeg_mem_src(&w->c, s->bytes, s->len);
    jpeg_read_header(&w->c, TRUE);
    if (w->c.image_width != out->width || w->c.image_height != out->height ||
        (w->c.num_components != 1 && w->c.num_components != 3 && w->c.num_components != 4))
        return err_set(e, E_IMAGE_UNREADABLE, "jpeg: two readings of the header differ");
    set_mode(w, out);
    enum status rc = image_alloc(s, out, e);
    if (rc) return rc;
    jpeg_start_decompress(&w->c);
    read_rows(w, out);
    return OK;
}

static enum status decode(const struct source *s, struct image *out, struct picture_info *info,
                          struct err *e)
{
    struct work *w;
    enum status rc = mem_alloc(s->mem, &w, sizeof *w, "jpeg decoder", e);
    if (rc) return rc;
    w->lenient = s->lenient;
    w->c.err = jpeg_std_error(&w->mgr);
    w->mgr.error_exit = on_error;
    w->mgr.emit_message = on_message;
    w->mgr.output_message = silent;
    rc = run(w, s, out, e);
    if (!rc && w->damage[0])
        rc = image_damage(s, info, w->eof ? E_IMAGE_TRUNCATED : E_IMAGE_UNREADABLE, e, "%s",
                          w->damage);
    jpeg_destroy_decompress(&w->c);
    mem_free(s->mem, w);
    return rc;
}

const struct decoder image_jpeg = {"jpeg", match, probe, decode};
