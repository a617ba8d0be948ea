/* What stb_image makes of the files of tests/golden/pictures: the evidence for not using it alone
 * (vision/README.md). Never part of the program or of its tests. After `make tests`:
 *
 *     cc -O1 -I. -D_GNU_SOURCE -o stb_compare tests/ref/stb_compare.c build/release/libtest.a \
 *        build/release/libnightshift.a -lcjson -lm -lmd -pthread && ./stb_compare */
#include "src/safetensors.h"
#include "tests/lib/test.h"

#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_GIF
#define STBI_ONLY_BMP
#include <stb/stb_image.h>

#define DIR "tests/golden/pictures"

static struct safetensors *all;

static uint8_t *read_tensor(const char *name, const char *what, const struct tensor_info **t)
{
    char full[200];
    struct err e;
    snprintf(full, sizeof full, "%s.%s", name, what);
    *t = safetensors_find(all, full);
    uint8_t *p = *t ? malloc((*t)->bytes + 1) : NULL;
    if (p && (*t)->bytes && safetensors_read(all, *t, p, &e)) exit(1);
    return p;
}

/* Per format: good files read with exactly the vendor's pixels, good files in all, the largest
 * difference; damaged files that were read, damaged files in all. */
static struct count {
    const char *format, *ending;
    int exact, good, most, taken, damaged;
} counts[] = {{.format = "jpeg", .ending = ".jpg"},
              {.format = "png", .ending = ".png"},
              {.format = "gif", .ending = ".gif"},
              {.format = "bmp", .ending = ".bmp"}};

static void try_good(struct count *c, const char *name)
{
    const struct tensor_info *f, *t;
    uint8_t *file = read_tensor(name, "file", &f), *want = read_tensor(name, "full", &t);
    int w, h, n, most = 0;
    uint8_t *have = stbi_load_from_memory(file, (int)f->bytes, &w, &h, &n, 3);
    bool same = have && want && (uint64_t)w == t->shape[1] && (uint64_t)h == t->shape[0];
    for (size_t i = 0; same && i < t->bytes; i++)
        if (abs(have[i] - want[i]) > most) most = abs(have[i] - want[i]);
    c->good++;
    c->exact += same && most == 0;
    if (same && most > c->most) c->most = most;
    free(file);
    free(want);
    free(have);
}

static void try_damaged(struct count *c, const char *name)
{
    const struct tensor_info *f;
    int w, h, n;
    uint8_t *file = read_tensor(name, "file", &f);
    uint8_t *have = stbi_load_from_memory(file, (int)f->bytes, &w, &h, &n, 3);
    c->damaged++;
    c->taken += have != NULL;
    if (have) printf("%s is read: %s\n", c->format, name);
    free(file);
    free(have);
}

int main(void)
{
    struct err e;
    char *save = NULL, *text = test_read(DIR "/table.tsv", NULL);
    if (!text || safetensors_open(&all, DIR, false, &e)) return 1;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *name = strsep(&line, "\t"), *code = strsep(&line, "\t");
        strsep(&line, "\t");
        char *format = strsep(&line, "\t");
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            struct count *c = &counts[i];
            if (!strcmp(code, "ok") && !strcmp(format, c->format)) try_good(c, name);
            bool damage = !strcmp(code, "image_truncated") || !strcmp(code, "image_unreadable");
            if (damage && strstr(name, c->ending)) try_damaged(c, name);
        }
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        printf("%-5s exact %d of %d (off by up to %d); damaged files read %d of %d\n",
               counts[i].format, counts[i].exact, counts[i].good, counts[i].most, counts[i].taken,
               counts[i].damaged);
    return 0;
}
