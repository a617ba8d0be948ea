/* Writes a queue of small pictures of which one in EVERY is hostile, for tests that look at what
 * becomes of them: make_pictures FOLDER COUNT EVERY [trap].
 *
 *     FOLDER/p00000 ...     JPEG, PNG, GIF, BMP and WebP by turns, each with pixels of its own
 *     FOLDER/jobs.jsonl     one job a picture
 *     FOLDER/expected       "done COUNT", then "CODE COUNT" for each error
 *
 * With `trap`, some JPEG carry a comment that tests/cli/trap/trap.c knows: they crash, hang or eat
 * memory in a decoder that has it loaded. The same arguments write the same bytes.
 *
 * make_pictures FOLDER photo writes one JPEG of 4000 x 3000, FOLDER/photo.jpg. */
#include "tests/lib/test.h"

#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

static uint32_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)state * below) >> 32);
}

/* A file being made. */
struct file {
    uint8_t bytes[1 << 16];
    size_t len;
};

static void put(struct file *f, const void *bytes, size_t n)
{
    if (n > sizeof f->bytes - f->len) abort();
    memcpy(f->bytes + f->len, bytes, n);
    f->len += n;
}

static void put_le(struct file *f, uint32_t v, int bytes)
{
    for (; bytes > 0; bytes--, v >>= 8) put(f, &(uint8_t){(uint8_t)v}, 1);
}

/* A disc on a plain ground. */
struct scene {
    uint32_t w, h;
    uint8_t rgb[64 * 64 * 3];
};

static void paint(struct scene *s, uint32_t number)
{
    state = number * 2654435761u + 1;
    s->w = 1 + draw(64);
    s->h = 1 + draw(64);
    uint8_t colour[2][3];
    for (int i = 0; i < 6; i++) colour[i / 3][i % 3] = (uint8_t)draw(256);
    int cx = (int)draw(s->w), cy = (int)draw(s->h), r = 2 + (int)draw(30);
    for (int y = 0; y < (int)s->h; y++)
        for (int x = 0; x < (int)s->w; x++) {
            bool in = (x - cx) * (x - cx) + (y - cy) * (y - cy) < r * r;
            memcpy(s->rgb + ((size_t)y * s->w + (size_t)x) * 3, colour[in], 3);
        }
    for (int i = 0; i < 4; i++) s->rgb[i % 3] = (uint8_t)(number >> 8 * i); /* none like another */
}

static void write_photo(const char *dir)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr mgr;
    static uint8_t row[4000 * 3];
    char path[600];
    snprintf(path, sizeof path, "%s/photo.jpg", dir);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    c.err = jpeg_std_error(&mgr);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, f);
    c.image_width = 4000;
    c.image_height = 3000;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < 3000) {
        JSAMPROW at = row;
        for (size_t i = 0; i < sizeof row; i++) row[i] = (uint8_t)(i / 60 + c.next_scanline / 20);
        jpeg_write_scanlines(&c, &at, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    fclose(f);
}

static void make_jpeg(struct file *f, struct scene *s, const char *comment)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr mgr;
    unsigned char *out = NULL;
    unsigned long n = 0;
    c.err = jpeg_std_error(&mgr);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &n);
    c.image_width = s->w;
    c.image_height = s->h;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 90, TRUE);
    jpeg_start_compress(&c, TRUE);
    if (comment)
        jpeg_write_marker(&c, JPEG_COM, (const JOCTET *)comment, (unsigned)strlen(comment));
    while (c.next_scanline < s->h) {
        JSAMPROW row = s->rgb + (size_t)c.next_scanline * s->w * 3;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    put(f, out, n);
    free(out);
}

static void make_png(struct file *f, struct scene *s)
{
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = s->w, .height = s->h, .format = PNG_FORMAT_RGB};
    png_alloc_size_t n = sizeof f->bytes;
    if (!png_image_write_to_memory(&image, f->bytes, &n, 0, s->rgb, 0, NULL)) abort();
    f->len = n;
}

static void make_webp(struct file *f, struct scene *s)
{
    uint8_t *out = NULL;
    size_t n = WebPEncodeRGB(s->rgb, (int)s->w, (int)s->h, (int)s->w * 3, 80, &out);
    put(f, out, n);
    WebPFree(out);
}

static void make_bmp(struct file *f, struct scene *s)
{
    uint32_t stride = (s->w * 3 + 3) / 4 * 4;
    put(f, "BM", 2);
    put_le(f, 54 + stride * s->h, 4);
    put_le(f, 0, 4);
    put_le(f, 54, 4);
    put_le(f, 40, 4);
    put_le(f, s->w, 4);
    put_le(f, s->h, 4);
    put_le(f, 1 | 24 << 16, 4);
    for (int i = 0; i < 6; i++) put_le(f, 0, 4);
    for (uint32_t y = s->h; y-- > 0;) {
        for (uint32_t x = 0; x < s->w; x++)
            for (int c = 2; c >= 0; c--) put(f, s->rgb + (y * s->w + x) * 3 + c, 1);
        put(f, "\0\0\0", stride - s->w * 3);
    }
}

/* Eight colours; codes of four bits, the table cleared before it grows. */
static void make_gif(struct file *f, struct scene *s)
{
    put(f, "GIF89a", 6);
    put_le(f, s->w, 2);
    put_le(f, s->h, 2);
    put_le(f, 0x82, 3);
    for (uint32_t i = 0; i < 8; i++)
        for (int c = 0; c < 3; c++) put_le(f, i & 1u << c ? s->rgb[c] | 128u : 0, 1);
    put(f, ",\0\0\0\0", 5);
    put_le(f, s->w, 2);
    put_le(f, s->h, 2);
    put(f, "\0\3", 2);
    uint32_t n = s->w * s->h, held = 8, bits = 4;
    size_t block = f->len;
    put_le(f, 0, 1);
    for (uint32_t i = 0; i < n + 1; i++) {
        uint32_t code = i == n ? 9 : s->rgb[i * 3] >> 5;
        for (int k = i < n && i % 4 == 3 ? 2 : 1; k > 0; k--, code = 8) {
            held |= code << bits;
            bits += 4;
            if (bits < 8) continue;
            put_le(f, held, 1);
            held >>= 8, bits -= 8;
            if (f->bytes[block]++ < 254) continue;
            block = f->len;
            put_le(f, 0, 1);
        }
    }
    if (bits) put_le(f, held, 1), f->bytes[block]++;
    if (f->bytes[block]) put_le(f, 0, 1);
    put(f, ";", 1);
}

static void make_good(struct file *f, struct scene *s, uint32_t number)
{
    static void (*const make[])(struct file *, struct scene *) = {make_png, make_gif, make_bmp,
                                                                  make_webp};
    if (number % 5 == 4)
        make_jpeg(f, s, NULL);
    else
        make[number % 5](f, s);
}

/* 30000 x 30000 as the header of a PNG says it, with good checksums. */
static void make_bomb(struct file *f)
{
    static const uint8_t head[] =
        "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x75\x30\0\0\x75\x30\x08\2\0\0\0"
        "\xe9\x45\x6f\xed\0\0\x20\0IDAT";
    put(f, head, sizeof head - 1);
    f->len += 0x2004;
    put(f, "\0\0\0\0IEND\xae\x42\x60\x82", 12);
}

enum hostile { CUT_JPEG, BOMB, BAD_CRC, CUT_PNG, CRASH, HEIC, EATS, EMPTY, CUT_WEBP, HANG, KINDS };

/* Makes the file; the code that must come of it, NULL: it is no file at all. */
static const char *make_hostile(struct file *f, struct scene *s, enum hostile kind, bool trap)
{
    if (!trap && (kind == CRASH || kind == EATS || kind == HANG)) kind = CUT_JPEG;
    switch (kind) {
    case CUT_JPEG:
        make_jpeg(f, s, NULL);
        f->len -= 20;
        return "image_truncated";
    case BOMB:
        make_bomb(f);
        return "image_too_large";
    case BAD_CRC:
        make_png(f, s);
        f->bytes[f->len - 14] ^= 1; /* in the checksum of the pixels */
        return "image_unreadable";
    case CUT_PNG:
        make_png(f, s);
        f->len -= 15;
        return "image_truncated";
    case CRASH:
        make_jpeg(f, s, "trap:crash");
        return "image_unreadable";
    case HEIC:
        put(f,
            "\0\0\0\x18"
            "ftypheic\0\0\0\0mif1heic",
            24);
        return "image_unsupported";
    case EATS:
        make_jpeg(f, s, "trap:memory");
        return "image_too_large";
    case EMPTY:
        return "image_unreadable";
    case CUT_WEBP:
        make_webp(f, s);
        f->len /= 2;
        return "image_truncated";
    default:
        make_jpeg(f, s, "trap:hang");
        return "image_unreadable";
    }
}

static void write_expected(const char *dir, const unsigned *counts, const char *const *codes)
{
    char path[600];
    snprintf(path, sizeof path, "%s/expected", dir);
    FILE *f = fopen(path, "w");
    if (!f) abort();
    for (int i = 0; codes[i]; i++)
        if (counts[i]) fprintf(f, "%s %u\n", codes[i], counts[i]);
    fclose(f);
}

int main(int argc, char **argv)
{
    static const char *const codes[] = {
        "done", "image_too_large", "image_truncated", "image_unreadable", "image_unsupported",
        NULL};
    static struct file file;
    static struct scene scene;
    unsigned counts[5] = {0};
    char path[600];
    if (argc == 3 && !strcmp(argv[2], "photo")) {
        write_photo(argv[1]);
        return 0;
    }
    if (argc < 4) return 2;
    bool trap = argc > 4 && !strcmp(argv[4], "trap");
    uint32_t n = (uint32_t)strtoul(argv[2], NULL, 10), every = (uint32_t)strtoul(argv[3], NULL, 10);
    if (every == 0) return 2;
    snprintf(path, sizeof path, "%s/jobs.jsonl", argv[1]);
    FILE *jobs = fopen(path, "w");
    if (!jobs) return 1;
    for (uint32_t i = 0; i < n; i++) {
        const char *code = codes[0];
        memset(&file, 0, sizeof file);
        paint(&scene, i);
        if (i % every == every / 2)
            code = make_hostile(&file, &scene, (enum hostile)(i / every % KINDS), trap);
        else
            make_good(&file, &scene, i);
        for (int k = 0; codes[k]; k++) counts[k] += !strcmp(codes[k], code);
        snprintf(path, sizeof path, "%s/p%05u", argv[1], i);
        test_write(path, file.bytes, file.len);
        fprintf(jobs,
                "{\"id\":\"%u\",\"image\":\"p%05u\",\"prompt\":\"Caption.\",\"max_tokens\":%u}\n",
                i, i, 1 + i % 2);
    }
    fclose(jobs);
    write_expected(argv[1], counts, codes);
    return 0;
}
