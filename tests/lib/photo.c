/* A photo for measurements. */
#include "tests/lib/photo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

/* Soft shapes with fine grain on them, as a camera leaves it. */
static void paint_row(uint8_t *rgb, uint32_t w, uint32_t y)
{
    static uint32_t noise = 1;
    for (uint32_t x = 0; x < w; x++)
        for (int c = 0; c < 3; c++) {
            noise = noise * 1664525u + 1013904223u;
            double v =
                128 + 60 * sin(x * 0.011 * (c + 1) + y * 0.003) + 40 * cos(y * 0.017 - x * 0.002);
            *rgb++ = (uint8_t)(v + (noise >> 28));
        }
}

void photo_make(const struct photo *p, uint8_t **out, unsigned long *len)
{
    uint8_t exif[] = "Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\1\0\0\0\0\0\0\0";
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr mgr;
    uint8_t *row = malloc(3 * (size_t)p->w);
    *out = NULL;
    exif[24] = (uint8_t)p->orientation;
    c.err = jpeg_std_error(&mgr);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, out, len);
    c.image_width = p->w;
    c.image_height = p->h;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 90, TRUE);
    if (p->progressive) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    jpeg_write_marker(&c, JPEG_APP0 + 1, exif, sizeof exif - 1);
    while (c.next_scanline < p->h) {
        paint_row(row, p->w, c.next_scanline);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
}
