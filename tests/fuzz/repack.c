/* Repacks what it is given as a model's only file: one byte chooses the shard size, the rest is the
 * file. What can be opened must come out as the same tensors. */
#include "src/os.h"
#include "tests/lib/repack_model.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64], from[96], to[96];

static void empty(const char *folder)
{
    DIR *d = opendir(folder);
    for (struct dirent *f; d && (f = readdir(d)) != NULL;) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        if (f->d_name[0] != '.') unlink(path);
    }
    if (d) closedir(d);
}

static void clean_up(void)
{
    empty(from);
    empty(to);
    rmdir(from);
    rmdir(to);
    rmdir(dir);
}

static void make_dirs(void)
{
    struct err e;
    bool fast = access("/dev/shm", W_OK) == 0;
    snprintf(dir, sizeof dir, "%s/nightshift-fuzz-XXXXXX", fast ? "/dev/shm" : "/tmp");
    if (!mkdtemp(dir)) abort();
    snprintf(from, sizeof from, "%s/from", dir);
    snprintf(to, sizeof to, "%s/to", dir);
    if (os_make_folder(from, &e) || os_make_folder(to, &e)) abort();
    atexit(clean_up);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct repack_state state;
    struct err e;
    char path[128];
    if (size < 1) return 0;
    if (!*dir) make_dirs();
    empty(to);
    snprintf(path, sizeof path, "%s/a.safetensors", from);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data + 1, 1, size - 1, f) != size - 1 || fclose(f) != 0) abort();

    enum status rc = repack_model_run(from, to, (uint64_t)1 << data[0] % 32, &state, &e);
    if (rc == OK && !repack_model_same(from, to)) abort();
    if (rc != OK && rc != E_MODEL) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    return 0;
}
