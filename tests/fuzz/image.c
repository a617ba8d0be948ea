/* Decodes what it is given as a picture file: one byte of switches, then the file. What is refused
 * must say why, with a picture's own code; what is read must keep to the size and memory that its
 * header promised, and comes out the same twice.
 *
 * FUZZ_FORMAT=jpeg, png, gif, bmp or webp gives each input that format's first bytes, so that a
 * campaign stays with one decoder; FUZZ_FORMAT=header probes only, whatever the bytes are. */
#include "vision/picture.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LENIENT = 1, NO_EXIF = 2, FILL_FIRST = 4, REPAIR = 8 };

static void check_refusal(enum status rc, const struct err *e)
{
    bool ours = rc == E_IMAGE_UNREADABLE || rc == E_IMAGE_TRUNCATED || rc == E_IMAGE_UNSUPPORTED ||
                rc == E_IMAGE_TOO_LARGE;
    if (!ours || strlen(e->text) == 0) abort();
}

static void pin(const char *format, uint8_t *file, size_t len)
{
    static const struct {
        const char *name;
        size_t at, len;
        const char *bytes;
    } marks[] = {{"jpeg", 0, 3, "\xff\xd8\xff"}, {"png", 0, 8, "\x89PNG\r\n\x1a\n"},
                 {"gif", 0, 6, "GIF89a"},        {"bmp", 0, 2, "BM"},
                 {"webp", 0, 4, "RIFF"},         {"webp", 8, 4, "WEBP"}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (!strcmp(format, marks[i].name) && len >= marks[i].at + marks[i].len)
            memcpy(file + marks[i].at, marks[i].bytes, marks[i].len);
}

static uint32_t crc(const uint8_t *p, size_t n)
{
    uint32_t c = ~0u;
    while (n--) {
        c ^= *p++;
        for (int i = 0; i < 8; i++) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
    }
    return ~c;
}

/* Makes a PNG's checksums and a WebP's length right: few mutations would pass them. */
static void repair(uint8_t *file, size_t len)
{
    if (len >= 12 && !memcmp(file, "RIFF", 4))
        for (int i = 0; i < 4; i++) file[4 + i] = (uint8_t)((len - 8) >> 8 * i);
    if (len < 8 || memcmp(file, "\x89PNG", 4)) return;
    for (size_t at = 8; len - at >= 12;) {
        size_t n = be32(file + at);
        if (n > len - at - 12) break;
        uint32_t c = crc(file + at + 4, n + 4);
        for (int i = 0; i < 4; i++) file[at + 8 + n + (size_t)i] = (uint8_t)(c >> (24 - 8 * i));
        at += 12 + n;
    }
}

/* What came of one decoding, and its pixels. */
struct outcome {
    enum status rc;
    struct err e;
    struct picture_info info;
    uint8_t *rgb;
};

static void decode(const struct picture_job *j, const struct picture_info *probed,
                   struct outcome *o)
{
    o->info = *probed;
    o->rgb = malloc((size_t)probed->resized_w * probed->resized_h * 3);
    o->rc = picture_decode(j, &o->info, o->rgb, &o->e);
    if (o->rc) check_refusal(o->rc, &o->e);
}

static void check_twice(const struct picture_job *j, const struct picture_info *probed)
{
    struct outcome a = {0}, b = {0};
    decode(j, probed, &a);
    decode(j, probed, &b);
    size_t bytes = (size_t)probed->resized_w * probed->resized_h * 3;
    if (a.rc != b.rc || strcmp(a.e.text, b.e.text) != 0 || (!a.rc && memcmp(a.rgb, b.rgb, bytes)))
        abort();
    free(a.rgb);
    free(b.rgb);
}

static void run(const char *format, uint8_t switches, const uint8_t *file, size_t len)
{
    struct vision_processor processor;
    struct vision_limits limits;
    struct picture_info info;
    struct err e;
    vision_processor_load(&processor, NULL, &e);
    vision_limits_default(&limits);
    limits.max_pixels = 1 << 18;
    limits.max_patches = 16;
    limits.lenient = switches & LENIENT;
    limits.exif = !(switches & NO_EXIF);
    processor.fill_first = switches & FILL_FIRST;
    struct picture_job j = {&processor, &limits, file, len};
    enum status rc = picture_probe(&j, &info, &e);
    if (rc) {
        check_refusal(rc, &e);
        return;
    }
    if (!info.width || !info.height || (uint64_t)info.width * info.height > limits.max_pixels ||
        info.n_warnings > PICTURE_WARNINGS)
        abort();
    if (strcmp(format, "header") != 0) check_twice(&j, &info);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *format = getenv("FUZZ_FORMAT");
    if (!format) format = "";
    if (size < 1) return 0;
    uint8_t *file = malloc(size); /* the exact size, so that reading on is seen */
    memcpy(file, data + 1, size - 1);
    pin(format, file, size - 1);
    if (data[0] & REPAIR) repair(file, size - 1);
    uint8_t *exact = realloc(file, size - 1 ? size - 1 : 1);
    run(format, data[0], exact, size - 1);
    free(exact);
    return 0;
}
