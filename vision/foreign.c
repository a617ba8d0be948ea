/* Names of the formats that are not read, so that a refusal can say which it is. */
#include "vision/image.h"

#include <string.h>

/* Formats that are known by their first bytes and not read. */
static const struct signature {
    const char *name;
    size_t at, len;
    const char *bytes;
} foreign[] = {
    {"HEIC", 4, 8, "ftypheic"},
    {"HEIC", 4, 8, "ftypheix"},
    {"HEIC", 4, 8, "ftyphevc"},
    {"HEIC", 4, 8, "ftypheim"},
    {"HEIF", 4, 8, "ftypmif1"},
    {"HEIF", 4, 8, "ftypmsf1"},
    {"AVIF", 4, 8, "ftypavif"},
    {"AVIF", 4, 8, "ftypavis"},
    {"camera raw (CR3)", 4, 8, "ftypcrx "},
    {"video (MP4 or MOV)", 4, 4, "ftyp"},
    {"camera raw (CR2)", 8, 2, "CR"},
    {"camera raw (ORF)", 0, 4, "IIRO"},
    {"camera raw (ORF)", 0, 4, "IIRS"},
    {"camera raw (RW2)", 0, 4, "IIU\0"},
    {"camera raw (RAF)", 0, 8, "FUJIFILM"},
    {"TIFF (or a camera raw file)", 0, 4, "II*\0"},
    {"TIFF (or a camera raw file)", 0, 4, "MM\0*"},
    {"BigTIFF", 0, 4, "II+\0"},
    {"BigTIFF", 0, 4, "MM\0+"},
    {"PDF", 0, 5, "%PDF-"},
    {"PostScript", 0, 4, "%!PS"},
    {"Photoshop", 0, 4, "8BPS"},
    {"JPEG XL", 0, 2, "\xff\x0a"},
    {"JPEG XL", 4, 4, "JXL "},
    {"JPEG 2000", 4, 4, "jP  "},
    {"JPEG 2000", 0, 4, "\xff\x4f\xff\x51"},
    {"icon (ICO)", 0, 4, "\0\0\1\0"},
    {"cursor (CUR)", 0, 4, "\0\0\2\0"},
    {"QOI", 0, 4, "qoif"},
    {"DDS", 0, 4, "DDS "},
    {"OpenEXR", 0, 4, "\x76\x2f\x31\x01"},
    {"Radiance HDR", 0, 2, "#?"},
    {"MNG", 0, 4, "\x8aMNG"},
    {"JNG", 0, 4, "\x8bJNG"},
    {"gzip", 0, 2, "\x1f\x8b"},
    {"video (Matroska)", 0, 4, "\x1a\x45\xdf\xa3"},
    {"DjVu", 0, 8, "AT&TFORM"},
    {"XPM", 0, 9, "/* XPM */"},
};

static bool starts(const struct source *s, size_t at, const char *bytes, size_t len)
{
    return s->len >= at + len && !memcmp(s->bytes + at, bytes, len);
}

static bool has_text(const struct source *s, const char *word)
{
    size_t n = strlen(word), end = s->len < 4096 ? s->len : 4096;
    for (size_t i = 0; i + n <= end; i++)
        if (!memcmp(s->bytes + i, word, n)) return true;
    return false;
}

/* Raw files of cameras are TIFF, mostly with a small picture in front; a scan may name a camera
 * too. */
static const char *raw_name(const struct source *s)
{
    struct tiff_entry t;
    if (image_tiff_entry(s->bytes, s->len, 0xc612, &t)) return "camera raw (DNG)";
    bool small = image_tiff_entry(s->bytes, s->len, 0x00fe, &t) && t.value == 1;
    if (!small || !image_tiff_entry(s->bytes, s->len, 0x010f, &t)) return NULL;
    if (starts(s, t.value, "NIKON", 5)) return "camera raw (NEF)";
    if (starts(s, t.value, "SONY", 4)) return "camera raw (ARW)";
    return NULL;
}

const char *image_foreign(const struct source *s)
{
    const char *raw = raw_name(s);
    if (raw) return raw;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        const struct signature *f = &foreign[i];
        /* CR2 is a TIFF with a mark behind the header. */
        if (f->at == 8 && !starts(s, 0, "II*\0", 4)) continue;
        if (starts(s, f->at, f->bytes, f->len)) return f->name;
    }
    if (s->len > 3 && s->bytes[0] == 'P' && s->bytes[1] >= '1' && s->bytes[1] <= '7' &&
        strchr(" \n\r\t", s->bytes[2]))
        return "PNM";
    size_t at = 0;
    while (at < s->len && (s->bytes[at] <= ' ' || s->bytes[at] >= 0xbb)) at++;
    if (at < s->len && s->bytes[at] == '<') {
        if (has_text(s, "<svg")) return "SVG";
        if (has_text(s, "<html") || has_text(s, "<!DOCTYPE html")) return "HTML, not a picture";
    }
    return NULL;
}
