/* Opens what it is given as a checkpoint: two bytes of length, an index of that length (none when
 * 0), the rest one shard. What opens must be readable whole. */
#include "src/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64], index_path[96], shard_path[96];

static void clean_up(void)
{
    unlink(index_path);
    unlink(shard_path);
    rmdir(dir);
}

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/nightshift-fuzz-XXXXXX");
    if (!mkdtemp(dir)) abort();
    snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json", dir);
    snprintf(shard_path, sizeof shard_path, "%s/a.safetensors", dir);
    atexit(clean_up);
}

static void write_file(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    if (!*dir) make_dir();
    size_t n = (size_t)data[0] | (size_t)data[1] << 8;
    data += 2;
    size -= 2;
    if (n > size) n = size;
    unlink(index_path);
    if (n) write_file(index_path, data, n);
    write_file(shard_path, data + n, size - n);

    struct safetensors *s;
    struct err e;
    if (safetensors_open(&s, dir, false, &e) != OK) {
        if (strlen(e.text) == 0) abort();
        return 0;
    }
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const struct tensor_info *t = safetensors_at(s, i);
        char *bytes = malloc(t->bytes + 1);
        if (t->bytes > size || !bytes || safetensors_read(s, t, bytes, &e) ||
            safetensors_find(s, t->name) != t)
            abort();
        free(bytes);
    }
    safetensors_close(s);
    return 0;
}
