/* Decoded pictures, and the decoders behind one table.
 *
 * The bytes decide the format, never a name. A header is checked against the limits before memory
 * is touched. Pixels stay in the file's own mode, because resizing differs by mode
 * (vision/resize.h); blending and RGB come after. Truncated or damaged bytes are never pixels,
 * unless lenient. */
#ifndef NS_IMAGE_H
#define NS_IMAGE_H

#include "vision/vision.h"

/* The value is the number of channels, but for CMYK, which has four. */
enum image_mode { IMAGE_L = 1, IMAGE_LA, IMAGE_RGB, IMAGE_RGBA, IMAGE_CMYK };

struct image {
    uint32_t width, height;
    enum image_mode mode;
    bool nearest;    /* from a palette or from one bit: resized by picking pixels */
    int key;         /* IMAGE_L: this level is transparent, looked up after resizing; -1: none */
    bool placed;     /* pixels are at the source's place */
    uint8_t *pixels; /* [height][width][channels], from the budget unless placed */
};

static inline uint32_t image_channels(const struct image *i)
{
    return i->mode == IMAGE_CMYK ? 4 : (uint32_t)i->mode;
}

/* A file's bytes, and what may be done with them. */
struct source {
    const uint8_t *bytes;
    size_t len;
    bool lenient;
    struct mem *mem;
    uint8_t *place;     /* where the last step's RGB pixels may go if they have just this size; */
    size_t place_bytes; /* or NULL */
};

/* One format. probe fills format-specific fields of info (size as stored, orientation, frames,
 * warnings) and refuses what decode could not do; decode is called only after probe accepted, and
 * takes out->pixels. */
struct decoder {
    const char *name;
    bool (*match)(const uint8_t *bytes, size_t len);
    enum status (*probe)(const struct source *s, struct picture_info *info, struct err *e);
    enum status (*decode)(const struct source *s, struct image *out, struct picture_info *info,
                          struct err *e);
};
extern const struct decoder image_jpeg, image_png, image_gif, image_bmp, image_webp;

/* Header only. info: width and height after orientation when limits->exif. */
enum status image_probe(const struct vision_limits *l, const struct source *s,
                        struct picture_info *info, struct err *e);
/* Pixels in the file's mode, oriented. End with image_free. */
enum status image_decode(const struct vision_limits *l, const struct source *s, struct image *out,
                         struct picture_info *info, struct err *e);
void image_free(struct mem *m, struct image *i);

/* For decoders: pixels for a size and mode, zeroed. At the source's place if they fit it. */
enum status image_alloc(const struct source *s, struct image *out, struct err *e);
/* Adds one line that the result carries; a full list keeps its first lines. */
void image_warn(struct picture_info *info, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Damage: an error, or a warning when lenient (then OK). */
enum status image_damage(const struct source *s, struct picture_info *info, enum status code,
                         struct err *e, const char *fmt, ...) PRINTF_LIKE(5, 6);
/* The format of bytes that no decoder matches, as people call it; NULL: none that is known. */
const char *image_foreign(const struct source *s);

/* An entry of a TIFF's first directory. value: the number itself, or where the values are. */
struct tiff_entry {
    uint32_t type, count, value;
};
/* False when the bytes are no TIFF, or it has no such entry. */
bool image_tiff_entry(const uint8_t *bytes, size_t len, unsigned tag, struct tiff_entry *out);
/* Orientation 1..8 of an EXIF block (a TIFF header, perhaps after "Exif\0\0"); 1 when absent or
 * unreadable. */
unsigned image_exif_orientation(const uint8_t *bytes, size_t len);

static inline uint32_t le16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}
static inline uint32_t le32(const uint8_t *p)
{
    return le16(p) | le16(p + 2) << 16;
}
static inline uint32_t be16(const uint8_t *p)
{
    return (uint32_t)p[0] << 8 | p[1];
}
static inline uint32_t be32(const uint8_t *p)
{
    return be16(p) << 16 | be16(p + 2);
}

#endif
