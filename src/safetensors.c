/* Safetensors headers and positioned reads.
 *
 * A file is 8 bytes of little-endian length N, N bytes of JSON, then data; the JSON maps a name to
 * {"dtype", "shape", "data_offsets": [begin, end)} relative to byte 8 + N. An index file maps each
 * name to its shard. All tensors of all files sit in one array sorted by name, which finds
 * duplicates on the way in and serves every later search.
 *
 * Owns the files' descriptors, the array and the names. Each file may be open twice: buffered, for
 * headers, single tensors and ends of files; and direct, for large aligned reads. What the bytes
 * mean is left to others. */
#include "src/safetensors.h"

#include "src/os.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADER_MAX ((uint64_t)512 << 20)
/* JSON values in one file: each costs cJSON some 80 bytes, however short it is in the text. */
#define VALUES_MAX ((size_t)8 << 20)

struct shard {
    char *path;
    const char *name;            /* the last part of path */
    char *tensor_names;          /* one after the other, each NUL-terminated */
    struct os_file file, direct; /* direct.fd < 0: all reads are buffered */
};

struct safetensors {
    struct shard *shards;
    size_t n_shards;
    struct tensor_info *tensors;
    size_t n;
    uint64_t name_bytes;
};

static const struct {
    const char *name;
    enum dtype type;
    unsigned bytes;
} dtypes[] = {
    {"F32", DT_F32, 4},       {"BF16", DT_BF16, 2},     {"U8", DT_U8, 1},
    {"F16", DT_OTHER, 2},     {"F64", DT_OTHER, 8},     {"I8", DT_OTHER, 1},
    {"I16", DT_OTHER, 2},     {"I32", DT_OTHER, 4},     {"I64", DT_OTHER, 8},
    {"U16", DT_OTHER, 2},     {"U32", DT_OTHER, 4},     {"U64", DT_OTHER, 8},
    {"BOOL", DT_OTHER, 1},    {"F8_E4M3", DT_OTHER, 1}, {"F8_E5M2", DT_OTHER, 1},
    {"F8_E8M0", DT_OTHER, 1},
};

static enum status no_memory(const char *path, struct err *e)
{
    return err_set(e, E_NOMEM, "%s: no memory for its tensor names", path);
}

static char *join(const char *dir, const char *name)
{
    size_t n = strlen(dir) + strlen(name) + 2;
    char *path = malloc(n);
    if (path) snprintf(path, n, "%s/%s", dir, name);
    return path;
}

/* One JSON object that fills the text but for white space. text[len] is 0. */
static enum status parse_object(const char *path, const char *text, size_t len, cJSON **out,
                                struct err *e)
{
    *out = NULL;
    size_t values = 1;
    for (size_t i = 0; i < len; i++) values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    if (values > VALUES_MAX)
        return err_set(e, E_MODEL, "%s: more than %zu JSON values", path, VALUES_MAX);
    const char *end = text;
    cJSON *json = cJSON_ParseWithLengthOpts(text, len, &end, false);
    size_t at = (size_t)(end - text);
    if (json) at += strspn(end, " \t\r\n");
    if (!json || at != len) {
        cJSON_Delete(json);
        return err_set(e, E_MODEL, "%s: bad JSON at byte %zu of %zu", path, at, len);
    }
    if (!cJSON_IsObject(json)) {
        cJSON_Delete(json);
        return err_set(e, E_MODEL, "%s: its JSON is not an object", path);
    }
    *out = json;
    return OK;
}

/* A number that a double holds exactly. */
static bool whole(const cJSON *json, uint64_t *out)
{
    if (!cJSON_IsNumber(json)) return false;
    double d = json->valuedouble;
    if (!(d >= 0 && d < 9007199254740992.0)) return false;
    *out = (uint64_t)d;
    return (double)*out == d;
}

/* A list of at most max such numbers; false when it is not one. */
static bool whole_list(const cJSON *json, uint64_t *out, unsigned max, unsigned *n)
{
    if (!cJSON_IsArray(json)) return false;
    *n = 0;
    for (const cJSON *c = json->child; c; c = c->next, ++*n)
        if (*n == max || !whole(c, &out[*n])) return false;
    return true;
}

/* Fills type and shape of t; *bytes is what they need. */
static enum status parse_shape(const char *path, const cJSON *dtype, const cJSON *shape,
                               struct tensor_info *t, uint64_t *bytes, struct err *e)
{
    *bytes = 0;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes && cJSON_IsString(dtype); i++)
        if (!strcmp(dtype->valuestring, dtypes[i].name)) {
            t->type = dtypes[i].type;
            t->dtype = dtypes[i].name;
            *bytes = dtypes[i].bytes;
        }
    if (!*bytes)
        return err_set(e, E_MODEL, "%s: tensor %s: unknown dtype %s", path, t->name,
                       cJSON_IsString(dtype) ? dtype->valuestring : "(none)");
    if (!whole_list(shape, t->shape, TENSOR_MAX_DIMS, &t->dims))
        return err_set(e, E_MODEL, "%s: tensor %s: shape is not a list of up to %d sizes", path,
                       t->name, TENSOR_MAX_DIMS);
    for (unsigned i = 0; i < t->dims; i++)
        if (__builtin_mul_overflow(*bytes, t->shape[i], bytes))
            return err_set(e, E_MODEL, "%s: tensor %s: its shape is too large", path, t->name);
    return OK;
}

/* data: where the file's data begins. */
static enum status parse_tensor(const struct shard *f, const cJSON *json, uint64_t data,
                                struct tensor_info *t, struct err *e)
{
    const cJSON *dtype = NULL, *shape = NULL, *range = NULL;
    if (!cJSON_IsObject(json))
        return err_set(e, E_MODEL, "%s: tensor %s is not an object", f->path, t->name);
    for (const cJSON *c = json->child; c; c = c->next) {
        const cJSON **to = !strcmp(c->string, "dtype")          ? &dtype
                           : !strcmp(c->string, "shape")        ? &shape
                           : !strcmp(c->string, "data_offsets") ? &range
                                                                : NULL;
        if (to && *to)
            return err_set(e, E_MODEL, "%s: tensor %s has two fields %s", f->path, t->name,
                           c->string);
        if (to) *to = c;
    }
    uint64_t need, at[2];
    unsigned n;
    enum status rc = parse_shape(f->path, dtype, shape, t, &need, e);
    if (rc) return rc;
    if (!whole_list(range, at, 2, &n) || n != 2 || at[0] > at[1])
        return err_set(e, E_MODEL, "%s: tensor %s: data_offsets is not [begin, end]", f->path,
                       t->name);
    t->offset = data + at[0];
    t->bytes = at[1] - at[0];
    if (t->bytes != need)
        return err_set(e, E_MODEL, "%s: tensor %s has %" PRIu64 " bytes, its shape needs %" PRIu64,
                       f->path, t->name, t->bytes, need);
    if (data + at[1] > f->file.size)
        return err_set(e, E_MODEL,
                       "%s ends at byte %" PRIu64 ", tensor %s needs bytes %" PRIu64 " to %" PRIu64,
                       f->path, f->file.size, t->name, t->offset, data + at[1]);
    return OK;
}

/* Appends the tensors of one header to s. */
static enum status add_tensors(struct safetensors *s, unsigned file, const cJSON *json,
                               uint64_t data, struct err *e)
{
    struct shard *f = &s->shards[file];
    size_t n = 0, name_bytes = 0;
    for (const cJSON *c = json->child; c; c = c->next) {
        n++;
        name_bytes += strlen(c->string) + 1;
    }
    struct tensor_info *grown = realloc(s->tensors, (s->n + n + 1) * sizeof *grown);
    if (grown) s->tensors = grown;
    char *name = f->tensor_names = malloc(name_bytes + 1);
    if (!grown || !name) return no_memory(f->path, e);
    s->name_bytes += name_bytes;

    for (const cJSON *c = json->child; c; c = c->next) {
        if (!strcmp(c->string, "__metadata__")) continue;
        struct tensor_info *t = &s->tensors[s->n];
        *t = (struct tensor_info){.name = name, .file = file};
        size_t len = strlen(c->string) + 1;
        memcpy(name, c->string, len);
        enum status rc = parse_tensor(f, c, data, t, e);
        if (rc) return rc;
        if (!strncmp(name, SAFETENSORS_PAD, strlen(SAFETENSORS_PAD))) continue;
        name += len;
        s->n++;
    }
    return OK;
}

static enum status read_header(struct safetensors *s, unsigned file, struct err *e)
{
    struct shard *f = &s->shards[file];
    unsigned char head[8];
    if (f->file.size < sizeof head)
        return err_set(e, E_MODEL, "%s ends at byte %" PRIu64 ", before its header", f->path,
                       f->file.size);
    enum status rc = os_read_at(&f->file, 0, head, sizeof head, f->path, e);
    if (rc) return rc;
    uint64_t len = 0;
    for (int i = 7; i >= 0; i--) len = len << 8 | head[i];
    if (len > HEADER_MAX || len > f->file.size - sizeof head)
        return err_set(e, E_MODEL,
                       "%s ends at byte %" PRIu64 ", its header claims %" PRIu64
                       " bytes (at most %" PRIu64 ")",
                       f->path, f->file.size, len, HEADER_MAX);
    char *text = malloc(len + 1);
    if (!text) return no_memory(f->path, e);
    cJSON *json = NULL;
    rc = os_read_at(&f->file, sizeof head, text, len, f->path, e);
    if (rc) goto out;
    text[len] = 0;
    rc = parse_object(f->path, text, len, &json, e);
    if (rc) goto out;
    rc = add_tensors(s, file, json, sizeof head + len, e);
out:
    cJSON_Delete(json);
    free(text);
    return rc;
}

/* Opens one more file and takes in its header. */
static enum status add_shard(struct safetensors *s, const char *dir, const char *name,
                             bool want_direct, struct err *e)
{
    struct shard *grown = realloc(s->shards, (s->n_shards + 1) * sizeof *grown);
    if (!grown) return no_memory(dir, e);
    s->shards = grown;
    struct shard *f = &grown[s->n_shards];
    *f = (struct shard){.path = join(dir, name), .file.fd = -1, .direct.fd = -1};
    if (!f->path) return no_memory(dir, e);
    f->name = f->path + strlen(dir) + 1;
    s->n_shards++;
    if (access(f->path, F_OK) != 0) return err_set(e, E_MODEL, "%s is missing", f->path);
    enum status rc = os_open(&f->file, f->path, false, e);
    if (rc) return rc;
    if (want_direct) {
        rc = os_open(&f->direct, f->path, true, e);
        if (rc) return rc;
        if (!f->direct.direct) os_close(&f->direct);
    }
    return read_header(s, (unsigned)(s->n_shards - 1), e);
}

static int by_name(const void *a, const void *b)
{
    const struct tensor_info *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static enum status sort_tensors(struct safetensors *s, struct err *e)
{
    if (s->n) qsort(s->tensors, s->n, sizeof *s->tensors, by_name);
    for (size_t i = 1; i < s->n; i++) {
        const struct tensor_info *a = &s->tensors[i - 1], *b = &s->tensors[i];
        if (!strcmp(a->name, b->name))
            return err_set(e, E_MODEL, "tensor %s is twice in the model: in %s and in %s", a->name,
                           s->shards[a->file].path, s->shards[b->file].path);
    }
    return OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Opens every shard that the weight map names. */
static enum status add_mapped_shards(struct safetensors *s, const char *dir, const cJSON *map,
                                     bool want_direct, struct err *e)
{
    size_t n = 0;
    for (const cJSON *c = map->child; c; c = c->next) n++;
    const char **names = malloc((n + 1) * sizeof *names);
    if (!names) return no_memory(dir, e);
    enum status rc = OK;
    n = 0;
    for (const cJSON *c = map->child; c; c = c->next) {
        const char *v = cJSON_IsString(c) ? c->valuestring : "";
        if (!*v || strchr(v, '/') || strstr(v, "..")) {
            rc = err_set(e, E_MODEL, "%s: the index puts tensor %s into \"%s\", no file name", dir,
                         c->string, v);
            goto out;
        }
        /* Neighbours mostly share a shard: this keeps the sort small. */
        if (!n || strcmp(names[n - 1], v)) names[n++] = v;
    }
    if (n) qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n && !rc; i++)
        if (!i || strcmp(names[i - 1], names[i])) rc = add_shard(s, dir, names[i], want_direct, e);
out:
    free(names);
    return rc;
}

/* Every entry of the map is a tensor of the shard it names, and there once. */
static enum status check_map(const struct safetensors *s, const char *path, const cJSON *map,
                             struct err *e)
{
    enum status rc = OK;
    bool *seen = calloc(s->n + 1, sizeof *seen);
    if (!seen) return no_memory(path, e);
    for (const cJSON *c = map->child; c && !rc; c = c->next) {
        const struct tensor_info *t = safetensors_find(s, c->string);
        if (!t || strcmp(s->shards[t->file].name, c->valuestring) != 0)
            rc = err_set(e, E_MODEL, "%s: tensor %s is not in %s", path, c->string, c->valuestring);
        else if (seen[t - s->tensors])
            rc = err_set(e, E_MODEL, "%s: tensor %s is listed twice", path, c->string);
        else
            seen[t - s->tensors] = true;
    }
    free(seen);
    return rc;
}

static enum status open_indexed(struct safetensors *s, const char *dir, const char *index,
                                bool want_direct, struct err *e)
{
    char *text;
    size_t len;
    cJSON *json = NULL;
    enum status rc = os_read_file(index, HEADER_MAX, &text, &len, e);
    if (rc) return rc;
    rc = parse_object(index, text, len, &json, e);
    free(text);
    if (rc) return rc;
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(json, "weight_map");
    if (!cJSON_IsObject(map)) {
        rc = err_set(e, E_MODEL, "%s has no weight_map", index);
        goto out;
    }
    rc = add_mapped_shards(s, dir, map, want_direct, e);
    if (rc) goto out;
    rc = sort_tensors(s, e);
    if (rc) goto out;
    rc = check_map(s, index, map, e);
out:
    cJSON_Delete(json);
    return rc;
}

/* The name of the only *.safetensors in dir, model.safetensors before all others; malloc'ed. */
static enum status only_file(const char *dir, char **out, struct err *e)
{
    DIR *d = opendir(dir);
    if (!d) return err_set(e, E_MODEL, "cannot open folder %s: %s", dir, strerror(errno));
    size_t found = 0;
    bool standard = false;
    enum status rc = OK;
    for (struct dirent *f; !rc && !standard && (f = readdir(d)) != NULL;) {
        size_t n = strlen(f->d_name);
        if (n < 12 || strcmp(f->d_name + n - 12, ".safetensors") != 0) continue;
        standard = !strcmp(f->d_name, "model.safetensors");
        found++;
        free(*out);
        *out = strdup(f->d_name);
        if (!*out) rc = no_memory(dir, e);
    }
    closedir(d);
    if (!rc && !standard && found != 1)
        rc = err_set(e, E_MODEL, "%s has %zu *.safetensors files and no index", dir, found);
    return rc;
}

static enum status open_single(struct safetensors *s, const char *dir, bool want_direct,
                               struct err *e)
{
    char *name = NULL;
    enum status rc = only_file(dir, &name, e);
    if (!rc) rc = add_shard(s, dir, name, want_direct, e);
    if (!rc) rc = sort_tensors(s, e);
    free(name);
    return rc;
}

enum status safetensors_open(struct safetensors **out, const char *dir, bool want_direct,
                             struct err *e)
{
    *out = NULL;
    struct safetensors *s = calloc(1, sizeof *s);
    char *index = join(dir, "model.safetensors.index.json");
    enum status rc = OK;
    if (!s || !index)
        rc = no_memory(dir, e);
    else if (access(index, F_OK) == 0)
        rc = open_indexed(s, dir, index, want_direct, e);
    else
        rc = open_single(s, dir, want_direct, e);
    free(index);
    if (rc)
        safetensors_close(s);
    else
        *out = s;
    return rc;
}

void safetensors_close(struct safetensors *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n_shards; i++) {
        os_close(&s->shards[i].file);
        os_close(&s->shards[i].direct);
        free(s->shards[i].path);
        free(s->shards[i].tensor_names);
    }
    free(s->shards);
    free(s->tensors);
    free(s);
}

const struct tensor_info *safetensors_find(const struct safetensors *s, const char *name)
{
    struct tensor_info key = {.name = name};
    return s->n ? bsearch(&key, s->tensors, s->n, sizeof key, by_name) : NULL;
}

size_t safetensors_count(const struct safetensors *s)
{
    return s->n;
}

const struct tensor_info *safetensors_at(const struct safetensors *s, size_t i)
{
    return &s->tensors[i];
}

size_t safetensors_files(const struct safetensors *s)
{
    return s->n_shards;
}

const char *safetensors_path(const struct safetensors *s, unsigned file)
{
    return s->shards[file].path;
}

bool safetensors_direct(const struct safetensors *s, unsigned file)
{
    return s->shards[file].direct.fd >= 0;
}

uint64_t safetensors_memory(const struct safetensors *s)
{
    return s->n * sizeof *s->tensors + s->name_bytes + s->n_shards * sizeof *s->shards;
}

enum status safetensors_read(const struct safetensors *s, const struct tensor_info *t, void *dst,
                             struct err *e)
{
    const struct shard *f = &s->shards[t->file];
    enum status rc = os_read_at(&f->file, t->offset, dst, t->bytes, f->path, e);
    if (rc) err_wrap(e, "tensor %s", t->name);
    return rc;
}

enum status safetensors_read_raw(const struct safetensors *s, unsigned file, uint64_t offset,
                                 void *dst, size_t len, size_t *got, struct err *e)
{
    const struct shard *f = &s->shards[file];
    uint64_t left = offset < f->file.size ? f->file.size - offset : 0;
    *got = len = left < len ? left : len;
    /* The last part of a file is no multiple of a block, and some file systems take the direct flag
     * but refuse direct reads: both are read through the page cache. */
    if (f->direct.fd >= 0 && offset % OS_DIRECT_ALIGN == 0 &&
        (uintptr_t)dst % OS_DIRECT_ALIGN == 0) {
        size_t body = len - len % OS_DIRECT_ALIGN;
        if (os_read_at(&f->direct, offset, dst, body, f->path, NULL) == OK) {
            offset += body;
            dst = (char *)dst + body;
            len -= body;
        }
    }
    return os_read_at(&f->file, offset, dst, len, f->path, e);
}
