/* Probing, limits, orientation and blending; files of every kind are in tests/golden/pictures.c. */
#include "tests/lib/test.h"
#include "vision/blend.h"
#include "vision/picture.h"

/* A BMP of 24 bits, w x h, pixel i of the stored rows (bottom up) holding i, 2 i, 3 i. */
static size_t make_bmp(uint8_t *out, uint32_t w, uint32_t h)
{
    size_t row = (w * 3 + 3) / 4 * 4, all = 54 + row * h;
    memset(out, 0, all);
    memcpy(out, "BM", 2);
    out[10] = 54;
    out[14] = 40;
    memcpy(out + 18, &w, 4);
    memcpy(out + 22, &h, 4);
    out[26] = 1;
    out[28] = 24;
    for (uint32_t y = 0, i = 0; y < h; y++)
        for (uint32_t x = 0; x < w; x++, i++)
            for (uint32_t c = 0; c < 3; c++) out[54 + y * row + x * 3 + c] = (uint8_t)(i * (3 - c));
    return all;
}

static enum status probe(const struct vision_limits *l, const void *bytes, size_t len,
                         struct picture_info *info, struct err *e)
{
    struct vision_processor p;
    vision_processor_load(&p, NULL, NULL);
    return vision_probe(&p, l, bytes, len, info, e);
}

/* Limits hold for the header, before pixels are looked at. */
TEST(limits)
{
    uint8_t bmp[4096];
    struct vision_limits l;
    struct picture_info info;
    struct err e;
    size_t n = make_bmp(bmp, 30, 20);
    vision_limits_default(&l);
    CHECK_OK(probe(&l, bmp, n, &info, &e), e);
    CHECK_STR(info.format, "bmp");
    CHECK(info.width == 30 && info.height == 20 && info.rows == 2);
    l.max_pixels = 599;
    CHECK_ERR(probe(&l, bmp, n, &info, &e), E_IMAGE_TOO_LARGE, e, "600 pixels, the limit is 599");
    l.max_pixels = 600;
    CHECK_OK(probe(&l, bmp, n, &info, &e), e);
    l.max_bytes = n - 1;
    CHECK_ERR(probe(&l, bmp, n, &info, &e), E_IMAGE_TOO_LARGE, e, "the limit is");
    vision_limits_default(&l);
    l.max_ratio = 1;
    CHECK_ERR(probe(&l, bmp, n, &info, &e), E_IMAGE_TOO_LARGE, e, "more than 1 times the other");
    l.max_ratio = 2;
    CHECK_OK(probe(&l, bmp, n, &info, &e), e);
    l.max_patches = 1;
    CHECK_OK(probe(&l, bmp, n, &info, &e), e);
    CHECK(info.resized_w < 30 && info.rows <= 2);
    CHECK_ERR(probe(&l, bmp, 0, &info, &e), E_IMAGE_UNREADABLE, e, "empty");
}

/* A header alone is enough for a probe of a format whose length the header does not tell. */
TEST(probe_reads_headers_only)
{
    static const uint8_t gif[] = "GIF89a\x05\0\x07\0\0\0\0,\0\0\0\0\x05\0\x07\0\0\x02";
    struct vision_limits l;
    struct picture_info info;
    struct err e;
    vision_limits_default(&l);
    CHECK_OK(probe(&l, gif, sizeof gif - 1, &info, &e), e);
    CHECK(info.width == 5 && info.height == 7);
}

static size_t tiff(uint8_t *out, bool big, unsigned type, unsigned value)
{
    static const uint8_t little[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0};
    static const uint8_t bigger[] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1};
    memcpy(out, big ? bigger : little, sizeof little);
    memset(out + 18, 0, 4);
    out[big ? 13 : 12] = (uint8_t)type;
    out[big ? type == 4 ? 21 : 19 : 18] = (uint8_t)value;
    return 22;
}

/* Both byte orders, both integer types; everything odd is orientation 1. */
TEST(exif_orientation)
{
    uint8_t b[64];
    for (int big = 0; big < 2; big++)
        for (unsigned type = 3; type <= 4; type++) {
            for (unsigned v = 1; v <= 8; v++)
                CHECK_INT(image_exif_orientation(b, tiff(b, big, type, v)), v);
            CHECK_INT(image_exif_orientation(b, tiff(b, big, type, 0)), 1);
            CHECK_INT(image_exif_orientation(b, tiff(b, big, type, 9)), 1);
        }
    size_t n = tiff(b, false, 3, 6);
    for (size_t cut = 0; cut < n; cut++) CHECK_INT(image_exif_orientation(b, cut), 1);
    CHECK_INT(image_exif_orientation(b, tiff(b, false, 7, 6)), 1);
    b[4] = 0xff, b[7] = 0xff;
    CHECK_INT(image_exif_orientation(b, n), 1);
}

/* The vendor's behaviour on request: EXIF is reported and not applied. */
TEST(orientation_can_be_left)
{
    size_t len;
    char *file = test_read("tests/fuzz/corpus/image/exif_6.jpg", &len);
    struct vision_limits l;
    struct picture_info info;
    struct err e;
    CHECK(file && len > 1);
    vision_limits_default(&l);
    CHECK_OK(probe(&l, file + 1, len - 1, &info, &e), e);
    CHECK(info.width == 29 && info.height == 37 && info.orientation == 6);
    l.exif = false;
    CHECK_OK(probe(&l, file + 1, len - 1, &info, &e), e);
    CHECK(info.width == 37 && info.height == 29 && info.orientation == 6);
    free(file);
}

/* A full list of warnings keeps its first lines, and long lines are cut. */
TEST(warnings_are_bounded)
{
    struct picture_info info = {0};
    for (int i = 0; i < 9; i++) image_warn(&info, "%d%0200d", i, 0);
    CHECK_INT(info.n_warnings, PICTURE_WARNINGS);
    for (int i = 0; i < PICTURE_WARNINGS; i++) {
        CHECK_INT(info.warnings[i][0], '0' + i);
        CHECK_INT(strlen(info.warnings[i]), sizeof info.warnings[i] - 1);
    }
}

static bool blended(struct vision_processor *p, enum image_mode mode, int key, const uint8_t *px,
                    const uint8_t want[3])
{
    struct mem m;
    struct err e;
    mem_init(&m, 0);
    struct image i = {.width = 1, .height = 1, .mode = mode, .key = key};
    if (mem_alloc(&m, &i.pixels, 4, "pixel", &e)) return false;
    memcpy(i.pixels, px, image_channels(&i));
    bool good = blend_rgb(&m, p, &i, &e) == OK && i.mode == IMAGE_RGB && !memcmp(i.pixels, want, 3);
    image_free(&m, &i);
    mem_close(&m);
    return good;
}

/* Alpha on the background, truncated; transparent grey levels; CMYK without a profile. */
TEST(blending)
{
    struct vision_processor p;
    vision_processor_load(&p, NULL, NULL);
    static const uint8_t rgba[] = {100, 0, 255, 128}, want[] = {177, 126, 255};
    CHECK(blended(&p, IMAGE_RGBA, -1, rgba, want));
    p.gray_first = true;
    static const uint8_t on_gray[] = {139, 89, 217};
    CHECK(blended(&p, IMAGE_RGBA, -1, rgba, on_gray));
    p.checker = 0;
    p.white = 7;
    static const uint8_t la[] = {50, 0}, seven[] = {7, 7, 7}, fifty[] = {50, 50, 50};
    CHECK(blended(&p, IMAGE_LA, -1, la, seven));
    CHECK(blended(&p, IMAGE_L, 50, la, seven));
    CHECK(blended(&p, IMAGE_L, 51, la, fifty));
    static const uint8_t cmyk[] = {0, 128, 255, 55}, out[] = {200, 100, 0};
    CHECK(blended(&p, IMAGE_CMYK, -1, cmyk, out));
}

/* The n-th allocation fails: the error is the machine's, nothing leaks; in the end it survives. */
TEST(allocations_fail)
{
    static const char *const files[] = {"exif_6.jpg", "interlaced_rgba_16.png", "clear.gif",
                                        "alpha_v5_rgba.bmp", "lossy_alpha.webp"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[128];
        size_t len;
        snprintf(path, sizeof path, "tests/fuzz/corpus/image/%s", files[i]);
        char *file = test_read(path, &len);
        CHECK(file && len > 1);
        struct vision_limits l;
        struct mem m;
        vision_limits_default(&l);
        mem_init(&m, 0);
        enum status rc = E_NOMEM;
        int n = 0;
        for (; rc; n++) {
            struct err e;
            struct image out;
            struct picture_info info;
            struct source s = {.bytes = (const uint8_t *)file + 1, .len = len - 1, .mem = &m};
            m.fail_at = n;
            rc = image_decode(&l, &s, &out, &info, &e);
            if (rc && rc != E_NOMEM && rc != E_IMAGE_TOO_LARGE)
                FAIL("%s, allocation %d: %s", files[i], n, e.text);
            if (!rc) image_free(&m, &out);
            CHECK_INT(m.used, 0);
        }
        CHECK(n > 1);
        mem_close(&m);
        free(file);
    }
}

TEST_MAIN
