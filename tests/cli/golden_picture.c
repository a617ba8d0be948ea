/* Writes files of tests/golden/pictures into a folder: golden_picture FOLDER NAME... */
#include "src/safetensors.h"
#include "tests/lib/test.h"

int main(int argc, char **argv)
{
    struct safetensors *all;
    struct err e;
    if (argc < 2 || safetensors_open(&all, "tests/golden/pictures", false, &e)) return 1;
    for (int i = 2; i < argc; i++) {
        char path[600], name[100];
        snprintf(name, sizeof name, "%s.file", argv[i]);
        const struct tensor_info *t = safetensors_find(all, name);
        uint8_t *bytes = t ? malloc(t->bytes) : NULL;
        if (!bytes || safetensors_read(all, t, bytes, &e)) {
            fprintf(stderr, "no %s\n", argv[i]);
            return 1;
        }
        snprintf(path, sizeof path, "%s/%s", argv[1], argv[i]);
        test_write(path, bytes, t->bytes);
        free(bytes);
    }
    safetensors_close(all);
    return 0;
}
