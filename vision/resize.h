/* Pillow's resampling, to the byte (kimi-k3 6.2). */
#ifndef NS_RESIZE_H
#define NS_RESIZE_H

#include "vision/image.h"

/* in resized to width x height in its own mode: bicubic with a = -0.5, widened when shrinking, in
 * two passes with 22-bit coefficients and 8 bits between; with premultiplied alpha for LA and RGBA;
 * by picking pixels when in->nearest. out keeps mode and key, its pixels are new. Same size: a
 * plain copy. */
enum status resize_image(struct mem *m, const struct image *in, uint32_t width, uint32_t height,
                         struct image *out, struct err *e);

/* Bytes that resizing takes beside in, out included. */
uint64_t resize_bytes(uint64_t in_w, uint64_t in_h, uint64_t out_w, uint64_t out_h);

#endif
