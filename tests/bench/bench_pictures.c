/* Time from a photo's bytes to its patches, beside libjpeg-turbo's own decoding followed by a plain
 * resize: bench_pictures [ROUNDS [MEGAPIXELS]].
 *
 * A is picture_probe, picture_decode and patch_fill; S the same with the decoding in a child
 * process; B decodes with libjpeg-turbo's default settings and, where A shrinks, resizes by two
 * textbook passes in float, without turning and without patches; D decodes only. They take turns in
 * every round; medians are told. */
#include "src/os.h"
#include "tests/lib/photo.h"
#include "tests/lib/test.h"
#include "vision/patch.h"
#include "vision/sandbox.h"

#include <jpeglib.h>
#include <math.h>
#include <time.h>

#define MAX_ROUNDS 64

static struct vision_processor processor;
static struct sandbox *box;

/* ---- A and S ---- */

static void ours(const uint8_t *bytes, size_t len, uint32_t max_patches, bool boxed,
                 struct picture_info *info)
{
    struct vision_limits limits;
    struct err e;
    vision_limits_default(&limits);
    limits.max_patches = max_patches;
    struct picture_job j = {&processor, &limits, bytes, len};
    enum status rc = picture_probe(&j, info, &e);
    uint8_t *rgb = rc ? NULL : malloc((size_t)info->resized_w * info->resized_h * 3);
    if (!rc)
        rc = boxed ? sandbox_decode(box, &j, info, rgb, &e) : picture_decode(&j, info, rgb, &e);
    if (rc) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    struct patches p;
    float row[64 * 3 * 14 * 14];
    patch_init(&p, &processor, rgb, info);
    for (size_t i = 0, n = (size_t)info->grid_w * info->grid_h; i < n; i += 64)
        patch_fill(&p, i, n - i < 64 ? n - i : 64, row);
    free(rgb);
}

/* ---- B and D ---- */

static uint8_t *decode_plainly(const uint8_t *bytes, size_t len, uint32_t *w, uint32_t *h)
{
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr mgr;
    c.err = jpeg_std_error(&mgr);
    jpeg_create_decompress(&c);
    jpeg_mem_src(&c, bytes, len);
    jpeg_read_header(&c, TRUE);
    jpeg_start_decompress(&c);
    *w = c.output_width;
    *h = c.output_height;
    uint8_t *rgb = malloc((size_t)*w * *h * 3);
    while (c.output_scanline < c.output_height) {
        JSAMPROW row = rgb + (size_t)c.output_scanline * *w * 3;
        jpeg_read_scanlines(&c, &row, 1);
    }
    jpeg_finish_decompress(&c);
    jpeg_destroy_decompress(&c);
    return rgb;
}

static double cubic(double x)
{
    x = fabs(x);
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

/* One pass: `lines` lines of `in` pixels, a step apart, to `out` pixels. */
struct pass {
    uint32_t in, out, lines;
    size_t in_step, in_line, out_step, out_line; /* bytes from pixel to pixel, from line to line */
};

static void resize_pass(const struct pass *p, const uint8_t *from, uint8_t *to)
{
    double scale = (double)p->in / p->out, wide = scale > 1 ? scale : 1;
    float *weight = malloc(((size_t)(4 * wide) + 3) * sizeof *weight);
    for (uint32_t i = 0; i < p->out; i++) {
        double centre = (i + 0.5) * scale;
        long first = lround(floor(centre - 2 * wide)), n = 0;
        long last = lround(ceil(centre + 2 * wide));
        if (first < 0) first = 0;
        if (last > (long)p->in) last = p->in;
        float sum = 0;
        for (long k = first; k < last; k++)
            sum += weight[n++] = (float)cubic(((double)k + 0.5 - centre) / wide);
        for (uint32_t line = 0; line < p->lines; line++)
            for (int c = 0; c < 3; c++) {
                const uint8_t *in = from + line * p->in_line + (size_t)first * p->in_step + c;
                float v = 0;
                for (long k = 0; k < n; k++) v += weight[k] * in[(size_t)k * p->in_step];
                v = v / sum + 0.5f;
                to[line * p->out_line + i * p->out_step + (size_t)c] = (uint8_t)(v < 0     ? 0
                                                                                 : v > 255 ? 255
                                                                                           : v);
            }
    }
    free(weight);
}

static void plain(const uint8_t *bytes, size_t len, uint32_t w2, uint32_t h2)
{
    uint32_t w, h;
    uint8_t *rgb = decode_plainly(bytes, len, &w, &h);
    if (w2 && (w2 != w || h2 != h)) {
        uint8_t *mid = malloc((size_t)w2 * h * 3), *out = malloc((size_t)w2 * h2 * 3);
        resize_pass(&(struct pass){w, w2, h, 3, 3 * (size_t)w, 3, 3 * (size_t)w2}, rgb, mid);
        resize_pass(&(struct pass){h, h2, w2, 3 * (size_t)w2, 3, 3 * (size_t)w2, 3}, mid, out);
        free(mid);
        free(out);
    }
    free(rgb);
}

/* ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *t, int n)
{
    qsort(t, (size_t)n, sizeof *t, by_size);
    return n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
}

/* Processor time, which others on the machine disturb less; of S the clock's. */
static double spent(int what)
{
    struct timespec t;
    if (what == 1) return os_now();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct kind {
    const char *name;
    bool progressive;
    unsigned orientation;
    uint32_t max_patches;
};

static void measure(const struct kind *p, uint32_t w, uint32_t h, int rounds)
{
    double t[4][MAX_ROUNDS];
    uint8_t *bytes;
    unsigned long len;
    struct picture_info info;
    photo_make(&(struct photo){w, h, p->progressive, p->orientation}, &bytes, &len);
    ours(bytes, len, p->max_patches, false, &info);
    bool turned = p->orientation >= 5;
    uint32_t w2 = turned ? info.resized_h : info.resized_w;
    uint32_t h2 = turned ? info.resized_w : info.resized_h;
    for (int i = 0; i < rounds; i++)
        for (int what = 0; what < 4; what++) {
            double start = spent(what);
            if (what < 2)
                ours(bytes, len, p->max_patches, what == 1, &info);
            else
                plain(bytes, len, what == 2 ? w2 : 0, h2);
            t[what][i] = (spent(what) - start) * 1e3;
        }
    double a = median(t[0], rounds), s = median(t[1], rounds), b = median(t[2], rounds);
    printf("%-30s %4u x %-4u %7.1f %7.1f %7.1f %7.1f %7.2f %7.2f %8.1f\n", p->name, info.resized_w,
           info.resized_h, a, s, b, median(t[3], rounds), a / b, s / b,
           (double)info.decode_bytes / 1e6);
    fflush(stdout);
    free(bytes);
}

int main(int argc, char **argv)
{
    static const struct kind photos[] = {
        {"as it is", false, 1, 0},      {"turned", false, 6, 0},
        {"shrunk", false, 1, 4096},     {"turned and shrunk", false, 6, 4096},
        {"shrunk much", false, 1, 256}, {"progressive", true, 1, 0},
    };
    struct err e;
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    double pixels = (argc > 2 ? atof(argv[2]) : 12) * 1e6;
    uint32_t w = (uint32_t)sqrt(pixels * 4 / 3), h = (uint32_t)(w * 0.75);
    if (rounds < 1 || rounds > MAX_ROUNDS || w < 1 || h < 1) return 2;
    if (sandbox_open(&box, picture_decode, &e)) return 1;
    vision_processor_load(&processor, NULL, NULL);
    printf("%u x %u, medians of %d rounds in ms of processor time (S: of the clock); A: ours, S: "
           "ours in a child, B: libjpeg-turbo and a "
           "plain resize, D: libjpeg-turbo alone\n%-30s %11s %7s %7s %7s %7s %7s %7s %8s\n",
           w, h, rounds, "", "to", "A", "S", "B", "D", "A/B", "S/B", "MB");
    for (size_t i = 0; i < sizeof photos / sizeof *photos; i++) measure(&photos[i], w, h, rounds);
    sandbox_close(box);
    return 0;
}
