/* The identity of a checkpoint. */
#include "jobs/model_id.h"

#include "src/mem.h"
#include "src/os.h"
#include "src/safetensors.h"

#include <sha2.h>
#include <string.h>

static enum status hash_part(SHA2_CTX *c, const char *path, uint64_t len, struct err *e)
{
    struct os_file f;
    enum status rc = os_open(&f, path, false, e);
    if (rc) return rc;
    char block[1 << 16];
    if (len > f.size) len = f.size;
    for (uint64_t at = 0; at < len && !rc;) {
        size_t n = len - at < sizeof block ? (size_t)(len - at) : sizeof block;
        rc = os_read_at(&f, at, block, n, path, e);
        if (!rc) SHA256Update(c, (const uint8_t *)block, n);
        at += n;
    }
    os_close(&f);
    return rc;
}

/* The header of a safetensors file: its length in the first 8 bytes, then so many of JSON. */
static enum status hash_header(SHA2_CTX *c, const char *path, struct err *e)
{
    struct os_file f;
    unsigned char b[8];
    enum status rc = os_open(&f, path, false, e);
    if (rc) return rc;
    uint64_t size = f.size, len = 0;
    rc = os_read_at(&f, 0, b, sizeof b, path, e);
    os_close(&f);
    if (rc) return rc;
    for (int i = 7; i >= 0; i--) len = len << 8 | b[i];
    for (unsigned i = 0; i < 8; i++) b[i] = (unsigned char)(size >> (8 * i));
    SHA256Update(c, b, sizeof b);
    return hash_part(c, path, len < size ? len + 8 : size, e);
}

enum status model_id(const char *dir, char sha256[65], struct err *e)
{
    static const char *const small[] = {"config.json", "generation_config.json", "tiktoken.model",
                                        "tokenizer_config.json", "preprocessor_config.json"};
    SHA2_CTX c;
    SHA256Init(&c);
    struct safetensors *s;
    enum status rc = safetensors_open(&s, dir, false, e);
    if (rc) return rc;
    for (size_t i = 0; i < sizeof small / sizeof *small && !rc; i++) {
        struct buf path = {0};
        SHA256Update(&c, (const uint8_t *)small[i], strlen(small[i]) + 1);
        rc = buf_addf(&path, e, "%s/%s", dir, small[i]);
        if (!rc && os_exists(path.data)) rc = hash_part(&c, path.data, UINT64_MAX, e);
        buf_free(&path);
    }
    for (size_t i = 0; i < safetensors_files(s) && !rc; i++)
        rc = hash_header(&c, safetensors_path(s, (unsigned)i), e);
    safetensors_close(s);
    if (rc) return rc;
    SHA256End(&c, sha256);
    return OK;
}
