/* Writing small safetensors files for tests, good ones and bad ones. */
#ifndef NS_ST_FILE_H
#define NS_ST_FILE_H

#include "src/mem.h"

#include <stddef.h>
#include <stdint.h>

struct st_file {
    struct buf json, data;
};

/* Appends a tensor; its place is where the data ends now. shape: JSON, e.g. "[2,3]". */
void st_add(struct st_file *f, const char *name, const char *dtype, const char *shape,
            const void *data, size_t bytes);
/* Bytes of no tensor. */
void st_gap(struct st_file *f, size_t bytes);
/* Writes dir/name and frees f. cut: how many bytes to leave off the end. */
void st_write(struct st_file *f, const char *dir, const char *name, size_t cut);
/* A file of this header text and data bytes of zeros. */
void st_write_raw(const char *path, const char *json, size_t data_bytes);
/* A fresh folder test_dir()/name. */
const char *st_dir(const char *name);

#endif
