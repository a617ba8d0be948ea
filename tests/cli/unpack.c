/* Pictures out of a folder's safetensors file, where NAME.file holds the bytes of NAME:
 * unpack FROM TO NAME... */
#include "src/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status unpack(const struct safetensors *s, const char *to, const char *name,
                          struct err *e)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.file", name);
    const struct tensor_info *t = safetensors_find(s, path);
    if (!t) return err_set(e, E_USAGE, "there is no %s", name);
    snprintf(path, sizeof path, "%s/%s", to, name);
    void *bytes = malloc(t->bytes + 1);
    FILE *f = fopen(path, "wbe");
    enum status rc = bytes && f ? safetensors_read(s, t, bytes, e) : err_set(e, E_IO, "%s", path);
    if (!rc && fwrite(bytes, 1, t->bytes, f) != t->bytes) rc = err_set(e, E_IO, "%s", path);
    if (f && fclose(f) && !rc) rc = err_set(e, E_IO, "%s", path);
    free(bytes);
    return rc;
}

int main(int argc, char **argv)
{
    struct safetensors *s;
    struct err e;
    if (argc < 3) return 2;
    enum status rc = safetensors_open(&s, argv[1], false, &e);
    if (rc) return puts(e.text), 1;
    for (int i = 3; i < argc && !rc; i++) rc = unpack(s, argv[2], argv[i], &e);
    if (rc) puts(e.text);
    safetensors_close(s);
    return rc != OK;
}
