/* WebP through libwebp, first frame. The probe walks the RIFF chunks itself and calls no library.
 */
#include "vision/image.h"

#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>

static bool match(const uint8_t *b, size_t len)
{
    return len >= 12 && !memcmp(b, "RIFF", 4) && !memcmp(b + 8, "WEBP", 4);
}

/* Sizes of a plain lossy or lossless picture. */
static bool read_plain(const uint8_t *p, size_t n, bool lossless, struct picture_info *info)
{
    if (lossless) {
        if (n < 5 || p[0] != 0x2f) return false;
        uint32_t bits = le32(p + 1);
        info->width = (bits & 0x3fff) + 1;
        info->height = (bits >> 14 & 0x3fff) + 1;
        return true;
    }
    if (n < 10 || p[3] != 0x9d || p[4] != 0x01 || p[5] != 0x2a) return false;
    info->width = le16(p + 6) & 0x3fff;
    info->height = le16(p + 8) & 0x3fff;
    return true;
}

/* What the chunks tell beside the size. */
struct layout {
    unsigned frames;
    uint8_t flags; /* of the extended header: EXIF counts only when announced there */
};

static bool read_chunk(const uint8_t *p, size_t n, struct layout *l, struct picture_info *info)
{
    const uint8_t *name = p - 8;
    if (!memcmp(name, "VP8X", 4)) {
        if (n < 10) return false;
        info->width = (le16(p + 4) | (uint32_t)p[6] << 16) + 1;
        info->height = (le16(p + 7) | (uint32_t)p[9] << 16) + 1;
        l->flags = p[0];
        if (p[0] & 0x20) image_warn(info, "colour profile ignored");
    } else if (!memcmp(name, "EXIF", 4) && l->flags & 8) {
        info->orientation = image_exif_orientation(p, n);
    } else if (!memcmp(name, "ANMF", 4)) {
        l->frames++;
    } else if (!info->width && !memcmp(name, "VP8", 3) && (name[3] == ' ' || name[3] == 'L')) {
        return read_plain(p, n, name[3] == 'L', info);
    }
    return true;
}

static enum status probe(const struct source *s, struct picture_info *info, struct err *e)
{
    struct layout l = {0};
    size_t end = (size_t)le32(s->bytes + 4) + 8, at = 12;
    if (end > s->len)
        return err_set(e, E_IMAGE_TRUNCATED, "webp: the file has %zu bytes, its header says %zu",
                       s->len, end);
    while (at < end && end - at >= 8) {
        size_t n = le32(s->bytes + at + 4);
        if (n > end - at - 8)
            return err_set(e, E_IMAGE_TRUNCATED, "webp: a chunk ends behind the file");
        if (!read_chunk(s->bytes + at + 8, n, &l, info))
            return err_set(e, E_IMAGE_UNREADABLE, "webp: damaged header");
        at += 8 + n + n % 2;
    }
    if (!info->width) return err_set(e, E_IMAGE_UNREADABLE, "webp: holds no picture");
    info->decode_bytes = info->width * (info->height + 64ull) * 5 + l.frames * 128ull + (4 << 20);
    if (l.frames > 1) {
        info->frames = l.frames;
        image_warn(info, "first of %u frames", l.frames);
    }
    return OK;
}

/* Decodes one still picture to `to`, the upper left pixel of its place on the canvas. */
static VP8StatusCode decode_still(const uint8_t *bytes, size_t len, const struct image *out,
                                  uint32_t x, uint32_t y, uint32_t *w, uint32_t *h)
{
    WebPDecoderConfig c;
    if (!WebPInitDecoderConfig(&c)) return VP8_STATUS_INVALID_PARAM;
    VP8StatusCode code = WebPGetFeatures(bytes, len, &c.input);
    if (code != VP8_STATUS_OK) return code;
    *w = (uint32_t)c.input.width;
    *h = (uint32_t)c.input.height;
    if (x + *w > out->width || y + *h > out->height) return VP8_STATUS_BITSTREAM_ERROR;
    size_t n = image_channels(out), stride = out->width * n;
    c.output.colorspace = out->mode == IMAGE_RGBA ? MODE_RGBA : MODE_RGB;
    c.output.is_external_memory = 1;
    c.output.u.RGBA.rgba = out->pixels + ((size_t)y * out->width + x) * n;
    c.output.u.RGBA.stride = (int)stride;
    c.output.u.RGBA.size = stride * (*h - 1) + *w * n;
    return WebPDecode(bytes, len, &c);
}

static VP8StatusCode decode_first(const struct source *s, struct image *out)
{
    WebPData data = {s->bytes, s->len};
    WebPDemuxer *demux = WebPDemux(&data);
    if (!demux) return VP8_STATUS_BITSTREAM_ERROR;
    WebPIterator it;
    VP8StatusCode code = VP8_STATUS_NOT_ENOUGH_DATA;
    if (WebPDemuxGetFrame(demux, 1, &it)) {
        uint32_t w, h;
        if (it.complete)
            code = decode_still(it.fragment.bytes, it.fragment.size, out, (uint32_t)it.x_offset,
                                (uint32_t)it.y_offset, &w, &h);
        WebPDemuxReleaseIterator(&it);
    }
    WebPDemuxDelete(demux);
    return code;
}

static enum status decode(const struct source *s, struct image *out, struct picture_info *info,
                          struct err *e)
{
    WebPBitstreamFeatures f;
    if (WebPGetFeatures(s->bytes, s->len, &f) != VP8_STATUS_OK)
        return err_set(e, E_IMAGE_UNREADABLE, "webp: damaged header");
    out->mode = f.has_alpha ? IMAGE_RGBA : IMAGE_RGB;
    enum status rc = image_alloc(s, out, e);
    if (rc) return rc;
    VP8StatusCode code = decode_first(s, out);
    if (code == VP8_STATUS_OK) return OK;
    if (code == VP8_STATUS_OUT_OF_MEMORY)
        return err_set(e, E_IMAGE_TOO_LARGE, "webp: no memory left to decode it");
    bool cut = code == VP8_STATUS_SUSPENDED || code == VP8_STATUS_NOT_ENOUGH_DATA;
    return image_damage(s, info, cut ? E_IMAGE_TRUNCATED : E_IMAGE_UNREADABLE, e,
                        cut ? "pixels are missing" : "damaged pixels");
}

const struct decoder image_webp = {"webp", match, probe, decode};
