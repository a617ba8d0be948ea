/* From a picture's own mode to RGB, with transparency composited on the processor's background
 * (kimi-k3 6.2). */
#ifndef NS_BLEND_H
#define NS_BLEND_H

#include "vision/image.h"

/* Replaces i by its RGB form; pixels change hands. */
enum status blend_rgb(struct mem *m, const struct vision_processor *p, struct image *i,
                      struct err *e);

#endif
