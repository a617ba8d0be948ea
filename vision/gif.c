/* GIF, first frame: an LZW decoder of its own, because the canvas, the grey palettes and the
 * missing pixels have to come out as the model was trained to see them (Pillow): a frame larger
 * than the screen enlarges it, a palette that is the identity makes a grey picture that is resized
 * as such, what the frame leaves free is transparent or colour 0. */
#include "vision/image.h"

#include <string.h>

#define MAX_CODE 4096

static bool match(const uint8_t *b, size_t len)
{
    return len >= 6 && (!memcmp(b, "GIF87a", 6) || !memcmp(b, "GIF89a", 6));
}

/* Where things are in the file. */
struct layout {
    uint32_t width, height; /* canvas */
    uint32_t x, y, w, h;    /* first frame */
    const uint8_t *palette; /* of the frame; NULL: grey levels */
    unsigned colours;
    int clear; /* transparent index, -1: none */
    bool interlaced;
    size_t data; /* of the LZW code size */
    unsigned frames;
};

static enum status cut(const struct source *s, struct err *e)
{
    return err_set(e, E_IMAGE_TRUNCATED, "gif: the file ends inside its header at byte %zu",
                   s->len);
}

/* A palette with entry i = grey level i throughout. */
static bool is_identity(const uint8_t *p, unsigned colours)
{
    for (unsigned i = 0; i < colours; i++)
        if (p[3 * i] != i || p[3 * i + 1] != i || p[3 * i + 2] != i) return false;
    return true;
}

static bool take_palette(const struct source *s, size_t *at, uint8_t flags, struct layout *l)
{
    if (!(flags & 0x80)) return true;
    unsigned colours = 2u << (flags & 7);
    if (s->len - *at < 3 * (size_t)colours) return false;
    const uint8_t *p = s->bytes + *at;
    l->palette = is_identity(p, colours) ? NULL : p;
    l->colours = colours;
    *at += 3 * (size_t)colours;
    return true;
}

/* Steps over sub-blocks up to the empty one; false when the file ends before. */
static bool skip_blocks(const struct source *s, size_t *at)
{
    while (*at < s->len) {
        uint8_t n = s->bytes[(*at)++];
        if (!n) return true;
        if (s->len - *at < n) return false;
        *at += n;
    }
    return false;
}

static bool take_extension(const struct source *s, size_t *at, struct layout *l)
{
    if (s->len - *at < 2) return false;
    const uint8_t *p = s->bytes + *at;
    if (p[0] == 0xf9 && p[1] >= 4 && s->len - *at >= 6 && !l->frames)
        l->clear = p[2] & 1 ? p[5] : l->clear;
    (*at)++;
    return skip_blocks(s, at);
}

/* Descriptor of one frame; only the first is kept. */
static bool take_frame(const struct source *s, size_t *at, struct layout *l)
{
    if (s->len - *at < 10) return false;
    const uint8_t *p = s->bytes + *at;
    *at += 9;
    struct layout frame = *l;
    if (!take_palette(s, at, p[8], &frame) || *at >= s->len) return false;
    if (!l->frames) {
        *l = frame;
        l->x = le16(p), l->y = le16(p + 2), l->w = le16(p + 4), l->h = le16(p + 6);
        l->interlaced = (p[8] & 0x40) != 0;
        l->data = *at;
        if (l->x + l->w > l->width) l->width = l->x + l->w;
        if (l->y + l->h > l->height) l->height = l->y + l->h;
    }
    (*at)++;
    l->frames++;
    return skip_blocks(s, at);
}

static enum status read_layout(const struct source *s, struct layout *l, struct err *e)
{
    *l = (struct layout){.clear = -1};
    if (s->len < 13) return cut(s, e);
    l->width = le16(s->bytes + 6);
    l->height = le16(s->bytes + 8);
    size_t at = 13;
    if (!take_palette(s, &at, s->bytes[10], l)) return cut(s, e);
    bool more = true;
    while (more && at < s->len && s->bytes[at] != ';') {
        uint8_t kind = s->bytes[at++];
        if (kind == '!')
            more = take_extension(s, &at, l);
        else if (kind == ',')
            more = take_frame(s, &at, l);
    }
    if (l->frames) return OK;
    if (more && at < s->len) return err_set(e, E_IMAGE_UNREADABLE, "gif: holds no picture");
    return cut(s, e);
}

static enum status probe(const struct source *s, struct picture_info *info, struct err *e)
{
    struct layout l;
    enum status rc = read_layout(s, &l, e);
    if (rc) return rc;
    info->width = l.width;
    info->height = l.height;
    info->frames = l.frames;
    info->decode_bytes = (uint64_t)l.w * l.h + (1 << 16);
    image_warn(info, l.palette ? "palette picture" : "grey picture");
    if (l.frames > 1) image_warn(info, "first of %u frames", l.frames);
    return OK;
}

/* Bits of the sub-blocks, lowest first. */
struct bits {
    const struct source *s;
    size_t at, block; /* next byte; bytes left of this sub-block */
    uint32_t held;
    unsigned n;
};

/* -1 at the end of the data. */
static int take_code(struct bits *b, unsigned size)
{
    while (b->n < size) {
        while (!b->block) {
            if (b->at >= b->s->len) return -1;
            b->block = b->s->bytes[b->at++];
            if (!b->block) return -1;
        }
        if (b->at >= b->s->len) return -1;
        b->held |= (uint32_t)b->s->bytes[b->at++] << b->n;
        b->n += 8;
        b->block--;
    }
    int code = (int)(b->held & ((1u << size) - 1));
    b->held >>= size;
    b->n -= size;
    return code;
}

/* Strings are kept as a last byte and the code of the rest. */
struct lzw {
    uint16_t link[MAX_CODE];
    uint8_t last[MAX_CODE];
    uint8_t text[MAX_CODE];
    unsigned clear, next, size;
};

/* Expands a code to text, in order; returns its length. */
static unsigned expand(struct lzw *z, unsigned code)
{
    unsigned n = 0;
    for (; code >= z->clear; code = z->link[code]) z->text[n++] = z->last[code];
    z->text[n++] = (uint8_t)code;
    for (unsigned i = 0; i < n / 2; i++) {
        uint8_t t = z->text[i];
        z->text[i] = z->text[n - 1 - i];
        z->text[n - 1 - i] = t;
    }
    return n;
}

static void reset(struct lzw *z, unsigned bits)
{
    z->next = z->clear + 2;
    z->size = bits + 1;
}

static void learn(struct lzw *z, unsigned before, uint8_t first)
{
    if (z->next >= MAX_CODE) return;
    z->link[z->next] = (uint16_t)before;
    z->last[z->next] = first;
    if (z->next == (1u << z->size) - 1 && z->size < 12) z->size++;
    z->next++;
}

/* Fills index up to n bytes; what is wrong, or NULL. *got: bytes that are there. */
static const char *decode_lzw(const struct source *s, size_t at, struct lzw *z, uint8_t *index,
                              size_t n, size_t *got)
{
    unsigned bits = s->bytes[at];
    *got = 0;
    if (bits < 1 || bits > 8) return "impossible code size";
    struct bits b = {.s = s, .at = at + 1};
    z->clear = 1u << bits;
    reset(z, bits);
    int before = -1;
    while (*got < n) {
        int code = take_code(&b, z->size);
        if (code < 0 || (unsigned)code == z->clear + 1) return "pixels are missing";
        if ((unsigned)code == z->clear) {
            reset(z, bits);
            before = -1;
            continue;
        }
        unsigned len;
        if (before < 0) {
            if ((unsigned)code > z->clear) return "a code that was never defined";
            len = expand(z, (unsigned)code);
        } else if ((unsigned)code < z->next) {
            len = expand(z, (unsigned)code);
            learn(z, (unsigned)before, z->text[0]);
        } else if ((unsigned)code == z->next && z->next < MAX_CODE) {
            expand(z, (unsigned)before);
            learn(z, (unsigned)before, z->text[0]);
            len = expand(z, (unsigned)code);
        } else {
            return "a code that was never defined";
        }
        before = code;
        if (len > n - *got) len = (unsigned)(n - *got);
        memcpy(index + *got, z->text, len);
        *got += len;
    }
    return NULL;
}

/* The row that the i-th stored row belongs to. */
static uint32_t interlaced_row(uint32_t i, uint32_t h)
{
    static const uint32_t start[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    for (int pass = 0; pass < 4; pass++) {
        uint32_t rows = h > start[pass] ? (h - start[pass] + step[pass] - 1) / step[pass] : 0;
        if (i < rows) return start[pass] + i * step[pass];
        i -= rows;
    }
    return h - 1;
}

/* One pixel of the canvas; false when its index has no colour. */
static bool put(const struct layout *l, struct image *out, uint8_t *to, unsigned k)
{
    bool clear = (int)k == l->clear;
    if (out->mode == IMAGE_L) {
        *to = (uint8_t)k;
        return true;
    }
    bool known = k < l->colours;
    if (known) memcpy(to, l->palette + 3 * k, 3);
    if (out->mode == IMAGE_RGBA) to[3] = clear ? 0 : 255;
    return known || clear;
}

static bool paint(const struct layout *l, const uint8_t *index, size_t got, struct image *out)
{
    size_t n = image_channels(out);
    bool good = true;
    for (uint8_t *p = out->pixels, *end = p + (size_t)l->width * l->height * n; p < end; p += n)
        put(l, out, p, l->clear >= 0 ? (unsigned)l->clear : 0);
    for (uint32_t y = 0; y < l->h; y++) {
        size_t row = l->interlaced ? interlaced_row(y, l->h) : y;
        uint8_t *to = out->pixels + ((l->y + row) * l->width + l->x) * n;
        for (uint32_t x = 0; x < l->w; x++, to += n) {
            size_t at = (size_t)y * l->w + x;
            if (at < got && !put(l, out, to, index[at])) good = false;
        }
    }
    return good;
}

static enum status decode(const struct source *s, struct image *out, struct picture_info *info,
                          struct err *e)
{
    struct layout l;
    enum status rc = read_layout(s, &l, e);
    if (rc) return rc;
    out->mode = !l.palette ? IMAGE_L : l.clear >= 0 ? IMAGE_RGBA : IMAGE_RGB;
    out->nearest = l.palette != NULL;
    if (!l.palette) out->key = l.clear;
    uint8_t *index = NULL;
    struct lzw *z = NULL;
    size_t got = 0;
    rc = image_alloc(s, out, e);
    if (!rc) rc = mem_array(s->mem, &index, (size_t)l.w, l.h, "gif frame", e);
    if (!rc) rc = mem_alloc(s->mem, &z, sizeof *z, "gif decoder", e);
    if (!rc) {
        const char *bad = decode_lzw(s, l.data, z, index, (size_t)l.w * l.h, &got);
        if (!paint(&l, index, got, out) && !bad) bad = "a pixel's index is outside the palette";
        enum status code =
            bad && !strcmp(bad, "pixels are missing") ? E_IMAGE_TRUNCATED : E_IMAGE_UNREADABLE;
        if (bad) rc = image_damage(s, info, code, e, "%s", bad);
    }
    mem_free(s->mem, z);
    mem_free(s->mem, index);
    return rc;
}

const struct decoder image_gif = {"gif", match, probe, decode};
