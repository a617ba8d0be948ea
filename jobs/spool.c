/* File: magic, width, checksum of all after it | scope hash, picture_info, rows. Written whole
 * under another name, then renamed; not synced, the checksum tells. Numbers as this machine has
 * them: the scope names the instruction set. */
#include "jobs/spool.h"

#include <dirent.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC      "nsrows1"
#define NAME_BYTES 64 /* hex digits */

struct head {
    char magic[8];
    uint64_t bytes; /* of the rows */
    uint8_t sum[SHA256_DIGEST_LENGTH];
};

struct body {
    uint8_t scope[SHA256_DIGEST_LENGTH];
    struct picture_info info;
};

struct file {
    char name[NAME_BYTES + 1];
    uint64_t bytes;
    int64_t time;
};

struct spool {
    char *dir;
    size_t width;
    uint64_t limit;
    uint8_t scope[SHA256_DIGEST_LENGTH];
    struct file *files; /* [n], the oldest first */
    size_t n, cap;
    bool made; /* the folder is there */
    struct spool_stats stats;
};

static bool is_name(const char *s)
{
    return strlen(s) == NAME_BYTES && strspn(s, "0123456789abcdef") == NAME_BYTES;
}

static bool path_of(const struct spool *s, const char *name, const char *end, struct buf *out)
{
    *out = (struct buf){0};
    return buf_addf(out, NULL, "%s/%s%s", s->dir, name, end) == OK;
}

static bool note(struct spool *s, const struct file *f)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        struct file *p = realloc(s->files, cap * sizeof *p);
        if (!p) return false;
        s->files = p;
        s->cap = cap;
    }
    s->files[s->n++] = *f;
    s->stats.bytes += f->bytes;
    return true;
}

static int by_time(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    return x->time < y->time ? -1 : x->time > y->time;
}

/* What another run left; what it did not finish goes. */
static void look(struct spool *s)
{
    DIR *d = opendir(s->dir);
    if (!d) return;
    s->made = true;
    for (struct dirent *entry; (entry = readdir(d));) {
        struct buf path;
        struct stat st;
        struct file f = {.bytes = 0};
        if (entry->d_name[0] == '.' || !path_of(s, entry->d_name, "", &path)) continue;
        if (!is_name(entry->d_name)) {
            unlink(path.data);
        } else if (stat(path.data, &st) == 0) {
            memcpy(f.name, entry->d_name, sizeof f.name);
            f.bytes = (uint64_t)st.st_size;
            f.time = st.st_mtime;
            note(s, &f);
        }
        buf_free(&path);
    }
    closedir(d);
    if (s->n) qsort(s->files, s->n, sizeof *s->files, by_time);
}

enum status spool_open(struct spool **out, const struct spool_opts *o, struct err *e)
{
    struct spool *s = *out = calloc(1, sizeof *s);
    if (s) s->dir = strdup(o->dir);
    if (!s || !s->dir) {
        free(s);
        *out = NULL;
        return err_set(e, E_NOMEM, "spool of pictures: no memory");
    }
    SHA2_CTX c;
    SHA256Init(&c);
    SHA256Update(&c, (const uint8_t *)o->scope, strlen(o->scope));
    SHA256Final(s->scope, &c);
    s->width = o->width;
    s->limit = o->limit_bytes;
    look(s);
    return OK;
}

static void drop(struct spool *s, size_t i)
{
    struct buf path;
    if (path_of(s, s->files[i].name, "", &path)) unlink(path.data);
    buf_free(&path);
    s->stats.bytes -= s->files[i].bytes;
    s->stats.dropped++;
    memmove(&s->files[i], &s->files[i + 1], (--s->n - i) * sizeof s->files[0]);
}

void spool_close(struct spool *s, bool forget)
{
    if (!s) return;
    while (forget && s->n) drop(s, s->n - 1);
    if (forget && s->made) rmdir(s->dir);
    free(s->files);
    free(s->dir);
    free(s);
}

static size_t index_of(const struct spool *s, const char *sha256)
{
    size_t i = 0;
    while (i < s->n && strcmp(s->files[i].name, sha256) != 0) i++;
    return i;
}

static void checksum(const struct body *b, const float *rows, size_t bytes, uint8_t *out)
{
    SHA2_CTX c;
    SHA256Init(&c);
    SHA256Update(&c, (const uint8_t *)b, sizeof *b);
    SHA256Update(&c, (const uint8_t *)rows, bytes);
    SHA256Final(out, &c);
}

static bool are_texts(const struct picture_info *info)
{
    if (info->n_warnings > sizeof info->warnings / sizeof info->warnings[0]) return false;
    for (unsigned i = 0; i < info->n_warnings; i++)
        if (!memchr(info->warnings[i], 0, sizeof info->warnings[i])) return false;
    return true;
}

/* Whether the head fits what is asked for and the file is as long as it says, before memory is
 * taken for the rows. */
static bool fits(const struct spool *s, const struct head *h, const struct body *b, uint64_t bytes)
{
    return !memcmp(h->magic, MAGIC, sizeof h->magic) &&
           !memcmp(b->scope, s->scope, sizeof b->scope) && b->info.rows > 0 &&
           are_texts(&b->info) && h->bytes == (uint64_t)b->info.rows * s->width * sizeof(float) &&
           bytes == sizeof *h + sizeof *b + h->bytes;
}

static enum status read_rows(const struct spool *s, FILE *f, struct mem *mem, struct body *b,
                             float **rows, struct err *e)
{
    struct stat st;
    struct head h;
    uint8_t sum[SHA256_DIGEST_LENGTH];
    *rows = NULL;
    uint64_t bytes = fstat(fileno(f), &st) ? 0 : (uint64_t)st.st_size;
    if (fread(&h, sizeof h, 1, f) != 1 || fread(b, sizeof *b, 1, f) != 1 || !fits(s, &h, b, bytes))
        return OK;
    enum status rc = mem_array(mem, rows, b->info.rows * s->width, sizeof **rows, "a picture", e);
    if (rc) return rc;
    bool whole = fread(*rows, 1, h.bytes, f) == h.bytes;
    if (whole) checksum(b, *rows, h.bytes, sum);
    if (whole && !memcmp(sum, h.sum, sizeof sum)) return OK;
    mem_free(mem, *rows);
    *rows = NULL;
    return OK;
}

enum status spool_get(struct spool *s, const char *sha256, struct mem *mem,
                      struct picture_info *info, float **rows, struct err *e)
{
    size_t at = index_of(s, sha256);
    struct buf path = {0};
    struct body b;
    *rows = NULL;
    if (at == s->n || !path_of(s, sha256, "", &path)) return OK;
    FILE *f = fopen(path.data, "rb");
    enum status rc = f ? read_rows(s, f, mem, &b, rows, e) : OK;
    if (f) fclose(f);
    buf_free(&path);
    if (rc) return rc;
    if (!*rows) {
        s->stats.damaged++;
        drop(s, at);
        return OK;
    }
    *info = b.info;
    info->format = "";
    s->stats.found++;
    return OK;
}

static bool write_rows(const struct spool *s, const char *path, const struct picture_info *info,
                       const float *rows, size_t bytes)
{
    struct head h = {.magic = MAGIC, .bytes = bytes};
    struct body b;
    memset(&b, 0, sizeof b);
    memcpy(b.scope, s->scope, sizeof b.scope);
    b.info = *info;
    b.info.format = NULL;
    checksum(&b, rows, bytes, h.sum);
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    bool good = fwrite(&h, sizeof h, 1, f) == 1 && fwrite(&b, sizeof b, 1, f) == 1 &&
                fwrite(rows, 1, bytes, f) == bytes;
    return fclose(f) == 0 && good;
}

void spool_put(struct spool *s, const char *sha256, const struct picture_info *info,
               const float *rows)
{
    size_t bytes = info->rows * s->width * sizeof *rows;
    struct file f = {.bytes = bytes + sizeof(struct head) + sizeof(struct body)};
    struct buf path, temp;
    if (f.bytes > s->limit || !is_name(sha256) || index_of(s, sha256) < s->n) return;
    while (s->n && s->stats.bytes + f.bytes > s->limit) drop(s, 0);
    if (!s->made) s->made = mkdir(s->dir, 0700) == 0;
    memcpy(f.name, sha256, sizeof f.name);
    bool named = path_of(s, sha256, "", &path);
    named = path_of(s, sha256, ".new", &temp) && named;
    if (named && write_rows(s, temp.data, info, rows, bytes) && !rename(temp.data, path.data) &&
        note(s, &f))
        s->stats.kept++;
    else if (named)
        unlink(temp.data);
    buf_free(&path);
    buf_free(&temp);
}

void spool_stats(const struct spool *s, struct spool_stats *out)
{
    *out = s->stats;
}
