/* A JPEG as a camera writes it, for measurements: soft shapes with fine grain, quality 90, EXIF. */
#ifndef NS_PHOTO_H
#define NS_PHOTO_H

#include <stdbool.h>
#include <stdint.h>

struct photo {
    uint32_t w, h;
    bool progressive;
    unsigned orientation;
};

/* *out: malloc'ed. */
void photo_make(const struct photo *p, uint8_t **out, unsigned long *len);

#endif
