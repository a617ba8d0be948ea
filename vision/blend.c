/* Blending is in float and truncates, as the published processor does; CMYK has no profile. */
#include "vision/blend.h"

static uint8_t background(const struct vision_processor *p, uint32_t x, uint32_t y)
{
    if (!p->checker) return (uint8_t)p->white;
    bool odd = (x / p->checker + y / p->checker) % 2;
    return (uint8_t)(odd != p->gray_first ? p->gray : p->white);
}

static uint8_t mix(uint8_t v, uint8_t alpha, uint8_t below)
{
    float a = (float)alpha / 255.0f;
    return (uint8_t)(a * (float)v + (1.0f - a) * (float)below);
}

/* The pixel at in as red, green, blue and alpha. */
static void read_pixel(const struct image *i, const uint8_t *in, uint8_t out[4])
{
    out[3] = 255;
    switch (i->mode) {
    case IMAGE_LA:
        out[3] = in[1]; /* fall through */
    case IMAGE_L:
        out[0] = out[1] = out[2] = in[0];
        if (i->key >= 0 && in[0] == (i->key & 255)) out[3] = 0;
        break;
    case IMAGE_RGBA:
        out[3] = in[3]; /* fall through */
    case IMAGE_RGB:
        out[0] = in[0], out[1] = in[1], out[2] = in[2];
        break;
    case IMAGE_CMYK: {
        uint32_t light = 255u - in[3];
        for (int c = 0; c < 3; c++) {
            uint32_t v = in[c] * light + 128;
            out[c] = (uint8_t)(light - ((v + (v >> 8)) >> 8));
        }
    }
    }
}

enum status blend_rgb(struct mem *m, const struct vision_processor *p, struct image *i,
                      struct err *e)
{
    i->nearest = false;
    if (i->mode == IMAGE_RGB) return OK;
    uint8_t *rgb;
    enum status rc = mem_array(m, &rgb, (size_t)i->width * i->height, 3, "RGB picture", e);
    if (rc) return rc;
    const uint8_t *in = i->pixels;
    uint8_t *to = rgb, pixel[4];
    for (uint32_t y = 0; y < i->height; y++)
        for (uint32_t x = 0; x < i->width; x++, in += image_channels(i), to += 3) {
            read_pixel(i, in, pixel);
            uint8_t below = pixel[3] == 255 ? 0 : background(p, x, y);
            for (int c = 0; c < 3; c++) to[c] = mix(pixel[c], pixel[3], below);
        }
    mem_free(m, i->pixels);
    *i = (struct image){
        .width = i->width, .height = i->height, .mode = IMAGE_RGB, .key = -1, .pixels = rgb};
    return OK;
}
