/* Decodes what it is given as a picture file: one byte of switches, then the file. What is refused
 * must say why, with a picture's own code; what is read must keep to the size and memory that its
 * header promised. */
#include "vision/picture.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(enum status rc, const struct err *e)
{
    bool ours = rc == E_IMAGE_UNREADABLE || rc == E_IMAGE_TRUNCATED || rc == E_IMAGE_UNSUPPORTED ||
                rc == E_IMAGE_TOO_LARGE;
    if (!ours || strlen(e->text) == 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    struct vision_processor processor;
    struct vision_limits limits;
    struct picture_info info;
    struct err e;
    vision_processor_load(&processor, NULL, &e);
    vision_limits_default(&limits);
    limits.max_pixels = 1 << 18;
    limits.max_patches = 16;
    limits.lenient = data[0] & 1;
    limits.exif = !(data[0] & 2);
    processor.fill_first = data[0] & 4;
    struct picture_job j = {&processor, &limits, data + 1, size - 1};
    enum status rc = picture_probe(&j, &info, &e);
    if (rc) {
        check_refusal(rc, &e);
        return 0;
    }
    if (!info.width || !info.height || (uint64_t)info.width * info.height > limits.max_pixels ||
        info.n_warnings > PICTURE_WARNINGS)
        abort();
    uint8_t *rgb = malloc((size_t)info.resized_w * info.resized_h * 3);
    rc = picture_decode(&j, &info, rgb, &e);
    if (rc) check_refusal(rc, &e);
    free(rgb);
    return 0;
}
