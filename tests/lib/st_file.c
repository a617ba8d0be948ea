/* Safetensors files for tests. What cannot be written ends the program: no test could go on. */
#include "tests/lib/st_file.h"

#include "tests/lib/test.h"

#include <inttypes.h>
#include <sys/stat.h>

static void must(enum status rc)
{
    if (rc) abort();
}

void st_add(struct st_file *f, const char *name, const char *dtype, const char *shape,
            const void *data, size_t bytes)
{
    size_t at = f->data.len;
    must(buf_add(&f->data, data, bytes, NULL));
    must(buf_addf(&f->json, NULL,
                  "%c\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                  f->json.len ? ',' : '{', name, dtype, shape, at, f->data.len));
}

void st_gap(struct st_file *f, size_t bytes)
{
    while (bytes--) must(buf_add(&f->data, "\xee", 1, NULL));
}

static void write_file(const char *path, const struct buf *json, const struct buf *data, size_t cut)
{
    struct buf b = {0};
    uint64_t n = json->len;
    for (int i = 0; i < 8; i++) must(buf_add(&b, &(char){(char)(n >> 8 * i)}, 1, NULL));
    must(buf_add(&b, json->data, json->len, NULL));
    must(buf_add(&b, data->data, data->len, NULL));
    test_write(path, b.data, b.len - cut);
    buf_free(&b);
}

void st_write(struct st_file *f, const char *dir, const char *name, size_t cut)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    must(buf_addf(&f->json, NULL, f->json.len ? "}" : "{}"));
    write_file(path, &f->json, &f->data, cut);
    buf_free(&f->json);
    buf_free(&f->data);
}

void st_write_raw(const char *path, const char *json, size_t data_bytes)
{
    struct st_file f = {0};
    must(buf_addf(&f.json, NULL, "%s", json));
    st_gap(&f, data_bytes);
    write_file(path, &f.json, &f.data, 0);
    buf_free(&f.json);
    buf_free(&f.data);
}

const char *st_dir(const char *name)
{
    const char *dir = test_path(name);
    if (mkdir(dir, 0777) != 0) abort();
    return dir;
}
