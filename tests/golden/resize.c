/* Resampling against Pillow, to the byte: tests/golden/resize holds random pictures in each mode
 * and what Pillow makes of them (tests/ref/pillow_resize.py). */
#include "src/safetensors.h"
#include "tests/lib/test.h"
#include "vision/resize.h"

static struct safetensors *tensors;

static bool read_bytes(const char *what, unsigned n, const struct tensor_info **t, uint8_t **out)
{
    char name[32];
    struct err e;
    snprintf(name, sizeof name, "%s.%u", what, n);
    *t = safetensors_find(tensors, name);
    *out = *t ? malloc((*t)->bytes) : NULL;
    return *out && safetensors_read(tensors, *t, *out, &e) == OK;
}

/* pixels: malloc'ed */
static bool read_image(const char *what, unsigned n, struct image *out)
{
    const struct tensor_info *t;
    uint8_t *mode;
    if (!read_bytes("mode", n, &t, &mode)) return false;
    *out = (struct image){.mode = (enum image_mode) * mode};
    free(mode);
    if (!read_bytes(what, n, &t, &out->pixels)) return false;
    out->width = (uint32_t)t->shape[1];
    out->height = (uint32_t)t->shape[0];
    return true;
}

static void check_one(unsigned n, struct image *in, const char *what)
{
    struct image want, have;
    struct err e;
    struct mem m;
    mem_init(&m, 0);
    CHECK(read_image(what, n, &want));
    in->nearest = !strcmp(what, "nearest");
    CHECK_OK(resize_image(&m, in, want.width, want.height, &have, &e), e);
    size_t bytes = (size_t)want.width * want.height * image_channels(&want);
    if (memcmp(want.pixels, have.pixels, bytes))
        FAIL("picture %u, %s: %u x %u of %u channels to %u x %u differs", n, what, in->width,
             in->height, image_channels(in), want.width, want.height);
    CHECK(m.peak <= resize_bytes(in->width, in->height, want.width, want.height));
    image_free(&m, &have);
    free(want.pixels);
    mem_close(&m);
}

/* Up, down, one side only, odd ratios, single rows and columns, tall pictures whose rows come
 * first, overshoot on both sides, with and without alpha: every byte, within the memory that was
 * told. */
TEST(agrees_with_pillow)
{
    struct err e;
    unsigned n = 0;
    struct image in;
    CHECK_OK(safetensors_open(&tensors, "tests/golden/resize", false, &e), e);
    for (; read_image("in", n, &in); n++) {
        check_one(n, &in, "bicubic");
        check_one(n, &in, "nearest");
        free(in.pixels);
    }
    CHECK(n > 30);
    safetensors_close(tensors);
}

TEST_MAIN
