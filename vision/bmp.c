/* BMP: headers of 12 to 124 bytes, 1 to 32 bits, runs of 4 and 8 bits, the usual colour masks. A
 * decoder of its own, because alpha, grey palettes and missing rows have to come out as the model
 * was trained to see them (Pillow): 32 bits without masks have no alpha, a palette that is the
 * identity makes a grey picture. */
#include "vision/image.h"

#include <string.h>

enum { RAW, RLE8, RLE4, FIELDS };

struct layout {
    uint32_t width, height;
    bool top_down;
    unsigned bits, compression;
    uint32_t mask[4];       /* red, green, blue, alpha; 16 and 32 bits */
    const uint8_t *palette; /* entries of `entry` bytes, blue first */
    uint32_t colours, entry;
    bool grey; /* palette entry i is grey level i throughout */
    size_t data;
};

static bool match(const uint8_t *b, size_t len)
{
    return len >= 2 && b[0] == 'B' && b[1] == 'M';
}

static enum status cut(const struct source *s, struct err *e)
{
    return err_set(e, E_IMAGE_TRUNCATED, "bmp: the file ends inside its header at byte %zu",
                   s->len);
}

/* Sizes, depth and compression out of a header of n bytes at p. */
static enum status read_header(const uint8_t *p, uint32_t n, struct layout *l, struct err *e)
{
    if (n == 12) {
        l->width = le16(p + 4);
        l->height = le16(p + 6);
        l->bits = le16(p + 10);
        l->entry = 3;
        return OK;
    }
    if (n != 40 && n != 52 && n != 56 && n != 64 && n != 108 && n != 124)
        return err_set(e, E_IMAGE_UNSUPPORTED, "bmp: header of %u bytes", n);
    l->width = le32(p + 4);
    l->height = le32(p + 8);
    l->top_down = p[11] == 0xff;
    if (l->top_down) l->height = 0u - l->height;
    l->bits = le16(p + 14);
    l->compression = le32(p + 16);
    l->colours = le32(p + 32);
    l->entry = 4;
    return OK;
}

static bool mask_known(const struct layout *l)
{
    static const uint32_t wide[][4] = {
        {0xff0000, 0xff00, 0xff, 0},          {0xff000000, 0xff0000, 0xff00, 0},
        {0xff000000, 0xff00, 0xff, 0},        {0xff000000, 0xff0000, 0xff00, 0xff},
        {0xff, 0xff00, 0xff0000, 0xff000000}, {0xff0000, 0xff00, 0xff, 0xff000000},
        {0xff000000, 0xff00, 0xff, 0xff0000},
    };
    static const uint32_t narrow[][3] = {{0xf800, 0x7e0, 0x1f}, {0x7c00, 0x3e0, 0x1f}};
    static const uint32_t plain[3] = {0xff0000, 0xff00, 0xff};
    if (l->bits == 24) return !memcmp(l->mask, plain, sizeof plain);
    if (l->bits == 16)
        return !memcmp(l->mask, narrow[0], sizeof *narrow) ||
               !memcmp(l->mask, narrow[1], sizeof *narrow);
    for (size_t i = 0; l->bits == 32 && i < sizeof wide / sizeof *wide; i++)
        if (!memcmp(l->mask, wide[i], sizeof *wide)) return true;
    return false;
}

/* Masks stand in long headers, or behind one of 40 bytes, then without alpha. */
static enum status read_masks(const struct source *s, uint32_t n, size_t *at, struct layout *l,
                              struct err *e)
{
    static const uint32_t by_bits[2][4] = {{0x7c00, 0x3e0, 0x1f, 0}, {0xff0000, 0xff00, 0xff, 0}};
    memcpy(l->mask, by_bits[l->bits != 16], sizeof l->mask);
    if (l->compression != FIELDS) return OK;
    if (n < 52) {
        if (s->len - *at < 12) return cut(s, e);
        for (int i = 0; i < 3; i++) l->mask[i] = le32(s->bytes + *at + 4 * (size_t)i);
        *at += 12;
    } else {
        for (int i = 0; i < 4; i++)
            l->mask[i] = i < 3 || n >= 56 ? le32(s->bytes + 54 + 4 * (size_t)i) : 0;
    }
    static const uint32_t none[4];
    if (l->bits == 32 && !memcmp(l->mask, none, sizeof none)) {
        memcpy(l->mask, by_bits[1], sizeof l->mask);
        l->mask[3] = 0xff000000;
    }
    return mask_known(l) ? OK : err_set(e, E_IMAGE_UNSUPPORTED, "bmp: unusual colour masks");
}

static enum status read_palette(const struct source *s, size_t at, struct layout *l, struct err *e)
{
    if (!l->colours) l->colours = 1u << l->bits;
    if (l->colours > 65536)
        return err_set(e, E_IMAGE_UNREADABLE, "bmp: palette of %u colours", l->colours);
    if (s->len - at < (size_t)l->colours * l->entry) return cut(s, e);
    l->palette = s->bytes + at;
    /* The two-colour case is black and white, all others count up. */
    l->grey = l->bits == 8 && l->colours > 2;
    for (uint32_t i = 0; l->grey && i < l->colours; i++) {
        const uint8_t *c = l->palette + i * l->entry;
        l->grey = c[0] == i && c[1] == i && c[2] == i;
    }
    return OK;
}

static enum status read_layout(const struct source *s, struct layout *l, struct err *e)
{
    *l = (struct layout){0};
    if (s->len < 18) return cut(s, e);
    uint32_t n = le32(s->bytes + 14);
    if (n > 124) return err_set(e, E_IMAGE_UNSUPPORTED, "bmp: header of %u bytes", n);
    if (s->len < 14 + (size_t)n) return cut(s, e);
    enum status rc = read_header(s->bytes + 14, n, l, e);
    if (rc) return rc;
    bool runs =
        (l->compression == RLE8 && l->bits == 8) || (l->compression == RLE4 && l->bits == 4);
    if (l->compression > FIELDS || (l->compression != RAW && l->compression != FIELDS && !runs))
        return err_set(e, E_IMAGE_UNSUPPORTED, "bmp: compression %u of %u bits", l->compression,
                       l->bits);
    bool indexed = l->bits == 1 || l->bits == 4 || l->bits == 8;
    if (!indexed && l->bits != 16 && l->bits != 24 && l->bits != 32)
        return err_set(e, E_IMAGE_UNSUPPORTED, "bmp: %u bits a pixel", l->bits);
    size_t at = 14 + (size_t)n;
    if (indexed && l->compression == FIELDS)
        return err_set(e, E_IMAGE_UNSUPPORTED, "bmp: colour masks with a palette");
    rc = indexed ? read_palette(s, at, l, e) : read_masks(s, n, &at, l, e);
    if (rc) return rc;
    l->data = le32(s->bytes + 10);
    /* A data offset that forgets the palette is taken to mean behind it. */
    if (indexed && l->data == at) l->data += (size_t)l->colours * l->entry;
    if (!l->data) l->data = at + (indexed ? (size_t)l->colours * l->entry : 0);
    return l->data <= s->len ? OK : cut(s, e);
}

static enum status probe(const struct source *s, struct picture_info *info, struct err *e)
{
    struct layout l;
    enum status rc = read_layout(s, &l, e);
    if (rc) return rc;
    info->width = l.width;
    info->height = l.height;
    if (l.palette) image_warn(info, l.grey ? "grey picture" : "palette picture");
    return OK;
}

static size_t row_bytes(const struct layout *l)
{
    return ((uint64_t)l->width * l->bits + 31) / 32 * 4;
}

static unsigned index_at(const struct layout *l, const uint8_t *row, uint32_t x)
{
    if (l->bits == 8) return row[x];
    if (l->bits == 4) return x % 2 ? row[x / 2] & 15 : row[x / 2] >> 4;
    return row[x / 8] >> (7 - x % 8) & 1;
}

/* A field of a pixel, stretched to 8 bits by the original's integer division. */
static uint8_t field(uint32_t pixel, uint32_t mask)
{
    if (!mask) return 255;
    int shift = __builtin_ctz(mask);
    return (uint8_t)(((pixel & mask) >> shift) * 255 / (mask >> shift));
}

static bool put_index(const struct layout *l, const struct image *out, uint8_t *to, unsigned k)
{
    if (out->mode == IMAGE_L) {
        *to = (uint8_t)k;
        return true;
    }
    if (k >= l->colours) return false;
    const uint8_t *c = l->palette + k * (size_t)l->entry;
    to[0] = c[2];
    to[1] = c[1];
    to[2] = c[0];
    return true;
}

static bool put_row(const struct layout *l, const struct image *out, const uint8_t *row,
                    uint8_t *to)
{
    size_t n = image_channels(out);
    bool good = true;
    for (uint32_t x = 0; x < l->width; x++, to += n) {
        if (l->palette) {
            good &= put_index(l, out, to, index_at(l, row, x));
            continue;
        }
        const uint8_t *p = row + (size_t)x * l->bits / 8;
        uint32_t pixel = l->bits == 16   ? le16(p)
                         : l->bits == 24 ? le16(p) | (uint32_t)p[2] << 16
                                         : le32(p);
        for (size_t c = 0; c < n; c++) to[c] = field(pixel, l->mask[c]);
    }
    return good;
}

static uint8_t *row_of(const struct layout *l, const struct image *out, uint32_t y)
{
    uint32_t row = l->top_down ? y : l->height - 1 - y;
    return out->pixels + (size_t)row * l->width * image_channels(out);
}

static const char *decode_raw(const struct source *s, const struct layout *l, struct image *out)
{
    size_t stride = row_bytes(l), at = l->data;
    bool good = true;
    for (uint32_t y = 0; y < l->height; y++, at += stride) {
        if (s->len - at < stride) return "rows are missing";
        good &= put_row(l, out, s->bytes + at, row_of(l, out, y));
    }
    return good ? NULL : "a pixel's index is outside the palette";
}

/* Where the next pixel of the runs goes. Pixels are counted along rows, first stored row first. */
struct runs {
    const struct layout *l;
    struct image *out;
    uint64_t at, all;
    bool good;
};

static void put_run(struct runs *r, unsigned k)
{
    uint32_t x = (uint32_t)(r->at % r->l->width), y = (uint32_t)(r->at / r->l->width);
    r->good &= put_index(r->l, r->out, row_of(r->l, r->out, y) + x * image_channels(r->out), k);
    r->at++;
}

static void skip_to(struct runs *r, uint64_t end)
{
    while (r->at < end && r->at < r->all) put_run(r, 0);
}

/* `count` pixels as they are: true unless the file ends. */
static bool copy_run(const struct source *s, struct runs *r, size_t *at, unsigned count)
{
    bool half = r->l->bits == 4;
    size_t bytes = half ? (count + 1) / 2 : count;
    if (s->len - *at < bytes) return false;
    for (unsigned i = 0; i < count && r->at < r->all; i++) {
        uint8_t b = s->bytes[*at + (half ? i / 2 : i)];
        put_run(r, !half ? b : i % 2 ? b & 15 : b >> 4);
    }
    *at += bytes;
    *at += *at % 2;
    return true;
}

static const char *decode_runs(const struct source *s, const struct layout *l, struct image *out)
{
    struct runs r = {l, out, 0, (uint64_t)l->width * l->height, true};
    size_t at = l->data;
    uint64_t row = 0; /* pixels of this row so far: a run never wraps */
    while (r.at < r.all) {
        if (at > s->len || s->len - at < 2) return "rows are missing";
        unsigned count = s->bytes[at], what = s->bytes[at + 1];
        at += 2;
        if (count) {
            for (unsigned i = 0; i < count && row < l->width && r.at < r.all; i++, row++)
                put_run(&r, l->bits == 8 ? what : i % 2 ? what & 15 : what >> 4);
        } else if (what == 0) {
            skip_to(&r, (r.at + l->width - 1) / l->width * l->width);
            row = 0;
        } else if (what == 1) {
            return "rows are missing";
        } else if (what == 2) {
            if (s->len - at < 2) return "rows are missing";
            skip_to(&r, r.at + s->bytes[at] + (uint64_t)s->bytes[at + 1] * l->width);
            at += 2;
            row = r.at % l->width;
        } else {
            if (!copy_run(s, &r, &at, what)) return "rows are missing";
            row += what;
        }
    }
    return r.good ? NULL : "a pixel's index is outside the palette";
}

static enum status decode(const struct source *s, struct image *out, struct picture_info *info,
                          struct err *e)
{
    struct layout l;
    enum status rc = read_layout(s, &l, e);
    if (rc) return rc;
    out->mode = l.grey ? IMAGE_L : !l.palette && l.mask[3] ? IMAGE_RGBA : IMAGE_RGB;
    out->nearest = l.palette && !l.grey;
    rc = image_alloc(s, out, e);
    if (rc) return rc;
    bool runs = l.compression == RLE8 || l.compression == RLE4;
    const char *bad = runs ? decode_runs(s, &l, out) : decode_raw(s, &l, out);
    if (!bad) return OK;
    enum status code = !strcmp(bad, "rows are missing") ? E_IMAGE_TRUNCATED : E_IMAGE_UNREADABLE;
    return image_damage(s, info, code, e, "%s", bad);
}

const struct decoder image_bmp = {"bmp", match, probe, decode};
