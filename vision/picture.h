/* A file's bytes to the RGB pixels that patches are cut from: decode, orient, resize, blend. Pure:
 * bytes and settings in, pixels out, so that it can run in another process (vision/sandbox.h). */
#ifndef NS_PICTURE_H
#define NS_PICTURE_H

#include "vision/image.h"

struct picture_job {
    const struct vision_processor *processor;
    const struct vision_limits *limits;
    const uint8_t *bytes;
    size_t len;
};

/* Header only: all of info, decode_bytes included. */
enum status picture_probe(const struct picture_job *j, struct picture_info *info, struct err *e);
/* rgb: [resized_h][resized_w][3] of a probed info, given by the caller. Takes its memory outside
 * the budget, at most info->decode_bytes. Adds warnings to info. */
enum status picture_decode(const struct picture_job *j, struct picture_info *info, uint8_t *rgb,
                           struct err *e);

#endif
