/* A kept picture's file as anyone may have left it: what comes back has rows, its warnings end, and
 * it costs no more memory than the file is long. The first byte says whether the checksum is made
 * to fit, so that what lies behind it is reached. */
#include "jobs/spool.h"

#include <assert.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WIDTH 4
#define SUM   16 /* where the checksum stands, of all that follows it */
#define NAME  "00000000000000000000000000000000000000000000000000000000000000aa"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_file(const char *path, const uint8_t *data, size_t size, bool mend)
{
    uint8_t sum[SHA256_DIGEST_LENGTH];
    size_t after = SUM + sizeof sum;
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    if (mend && size >= after) {
        SHA2_CTX c;
        SHA256Init(&c);
        SHA256Update(&c, data + after, size - after);
        SHA256Final(sum, &c);
        fwrite(data, 1, SUM, f);
        fwrite(sum, 1, sizeof sum, f);
        fwrite(data + after, 1, size - after, f);
    } else {
        fwrite(data, 1, size, f);
    }
    fclose(f);
}

static void look(const char *dir, size_t size)
{
    struct mem mem;
    struct err e;
    struct spool *s;
    struct picture_info info;
    float *rows;
    struct spool_opts o = {.dir = dir, .scope = "fuzz", .limit_bytes = 1 << 20, .width = WIDTH};
    mem_init(&mem, 1 << 20);
    if (spool_open(&s, &o, &e)) abort();
    enum status rc = spool_get(s, NAME, &mem, &info, &rows, &e);
    if (!rc && rows) {
        assert(info.rows > 0 && (size_t)info.rows * WIDTH * sizeof *rows <= size);
        assert(info.n_warnings <= PICTURE_WARNINGS);
        for (unsigned i = 0; i < info.n_warnings; i++)
            assert(memchr(info.warnings[i], 0, sizeof info.warnings[i]));
        mem_free(&mem, rows);
    }
    spool_close(s, true);
    mem_close(&mem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char dir[] = "/tmp/nightshift-spool-XXXXXX", path[128];
    if (size < 1) return 0;
    if (!mkdtemp(dir)) abort();
    snprintf(path, sizeof path, "%s/%s", dir, NAME);
    write_file(path, data + 1, size - 1, data[0] & 1);
    look(dir, size);
    rmdir(dir);
    return 0;
}
