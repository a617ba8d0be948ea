/* Writes JPEG files that Pillow cannot write, for tests/ref/pictures.py:
 *
 *     jpeg_variants KIND WIDTH HEIGHT < samples > file
 *
 * samples: [height][width][3] RGB, or [4] CMYK as it shall be stored for ycck and cmyk. Never part
 * of the program or of its tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

static void sampling(struct jpeg_compress_struct *c, const int factors[][2])
{
    for (int i = 0; i < c->num_components; i++) {
        c->comp_info[i].h_samp_factor = factors[i][0];
        c->comp_info[i].v_samp_factor = factors[i][1];
    }
}

static const struct {
    const char *kind;
    int factors[3][2];
} samplings[] = {
    {"s440", {{1, 2}, {1, 1}, {1, 1}}}, {"s411", {{4, 1}, {1, 1}, {1, 1}}},
    {"s410", {{4, 2}, {1, 1}, {1, 1}}}, {"s441", {{1, 4}, {1, 1}, {1, 1}}},
    {"odd", {{2, 2}, {2, 1}, {1, 2}}},  {"luma_low", {{1, 1}, {2, 2}, {2, 2}}},
};

/* `n` scans, each of one coefficient and one bit of it or all. */
static void many_scans(struct jpeg_compress_struct *c, int n)
{
    static jpeg_scan_info list[2000] = {{3, {0, 1, 2}, 0, 0, 0, 0}};
    int bits = n > 200 ? 5 : 0, at = 1;
    for (int level = bits; level >= 0; level--)
        for (int i = 0; i < 3; i++)
            for (int k = 1; k < 64 && at < n; k++)
                list[at++] = (jpeg_scan_info){1, {i}, k, k, level == bits ? 0 : level + 1, level};
    c->scan_info = list;
    c->num_scans = at;
}

static void adapt(struct jpeg_compress_struct *c, const char *kind)
{
    static jpeg_scan_info scans[] = {
        {1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
    for (size_t i = 0; i < sizeof samplings / sizeof *samplings; i++)
        if (!strcmp(kind, samplings[i].kind)) sampling(c, samplings[i].factors);
    if (!strcmp(kind, "arithmetic") || !strcmp(kind, "arithmetic_progressive"))
        c->arith_code = TRUE;
    if (!strcmp(kind, "arithmetic_progressive")) jpeg_simple_progression(c);
    if (!strcmp(kind, "ycck")) jpeg_set_colorspace(c, JCS_YCCK);
    if (!strcmp(kind, "cmyk_no_adobe")) c->write_Adobe_marker = FALSE;
    if (!strcmp(kind, "rgb")) jpeg_set_colorspace(c, JCS_RGB);
    if (!strcmp(kind, "restart")) c->restart_interval = 2;
    if (!strncmp(kind, "scans_", 6)) many_scans(c, atoi(kind + 6));
    if (!strcmp(kind, "scans")) {
        c->scan_info = scans;
        c->num_scans = 3;
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    int cmyk = !strcmp(argv[1], "ycck") || !strncmp(argv[1], "cmyk", 4);
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr err;
    c.err = jpeg_std_error(&err);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, stdout);
    c.image_width = (JDIMENSION)atoi(argv[2]);
    c.image_height = (JDIMENSION)atoi(argv[3]);
    c.input_components = cmyk ? 4 : 3;
    c.in_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 90, TRUE);
    adapt(&c, argv[1]);
    jpeg_start_compress(&c, TRUE);
    size_t n = c.image_width * (size_t)c.input_components;
    JSAMPROW row = malloc(n);
    while (row && c.next_scanline < c.image_height && fread(row, 1, n, stdin) == n)
        jpeg_write_scanlines(&c, &row, 1);
    free(row);
    if (c.next_scanline < c.image_height) return 1;
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return 0;
}
