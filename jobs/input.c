/* The names given are looked at once at the start; then one source after the other is read: a JSONL
 * file line by line, a folder as a stack of sorted lists of names. */
#include "jobs/input.h"

#include "jobs/jsonl.h"
#include "src/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sha256.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DEPTH 64

struct folder {
    char *path;
    char **names; /* sorted */
    size_t n, at;
};

struct input {
    struct input_opts opts; /* paths and texts borrowed */
    struct input_source *sources;
    size_t source; /* being read */
    struct jsonl *lines;
    struct folder stack[MAX_DEPTH];
    size_t depth;
    struct buf path; /* of the present picture */
    struct job job;
    struct input_item item;
};

static bool has_ending(const char *path, const char *const *endings, size_t n)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    if (!dot || dot == name) return false;
    for (size_t i = 0; i < n; i++)
        if (!strcasecmp(dot + 1, endings[i])) return true;
    return false;
}

static bool is_jsonl(const char *path)
{
    static const char *const endings[] = {"jsonl", "ndjson", "json"};
    return has_ending(path, endings, 3);
}

/* Formats that cannot be read are pictures too: their jobs fail and say so. */
static bool is_picture(const char *path)
{
    static const char *const endings[] = {"jpg", "jpeg", "jpe",  "jfif", "png",  "apng",
                                          "gif", "bmp",  "webp", "heic", "heif", "avif",
                                          "tif", "tiff", "svg",  "jxl",  "jp2"};
    return has_ending(path, endings, sizeof endings / sizeof *endings);
}

/* Whether a file begins like JSON: "{" after blanks and a byte order mark. */
static bool begins_as_json(const char *path)
{
    char head[512];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, head, sizeof head), i = 0;
    close(fd);
    if (n >= 3 && !memcmp(head, "\xef\xbb\xbf", 3)) i = 3;
    while (i < n && (head[i] == ' ' || (head[i] >= '\t' && head[i] <= '\r'))) i++;
    return i < n && head[i] == '{';
}

static enum status look_at(struct input_source *s, const struct input_opts *o, struct err *e)
{
    struct stat st;
    if (stat(s->path, &st) != 0)
        return err_set(e, E_USAGE, "cannot read %s: %s", s->path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        s->kind = INPUT_FOLDER;
    } else if (!S_ISREG(st.st_mode)) {
        return err_set(e, E_USAGE, "%s is neither a file nor a folder", s->path);
    } else if (is_jsonl(s->path) || (!is_picture(s->path) && begins_as_json(s->path))) {
        s->kind = INPUT_LINES;
        s->size = (uint64_t)st.st_size;
    } else {
        s->kind = INPUT_PICTURE;
    }
    if (s->kind != INPUT_LINES && (!o->job.prompt || !*o->job.prompt))
        return err_set(e, E_USAGE, "%s: pictures need a question: --prompt TEXT", s->path);
    return OK;
}

enum status input_open(struct input **out, const struct input_opts *o, struct err *e)
{
    *out = NULL;
    if (o->n_paths == 0)
        return err_set(e, E_USAGE, "no input: give JSONL files, pictures or folders");
    struct input *in = calloc(1, sizeof *in);
    if (in) in->sources = calloc(o->n_paths, sizeof *in->sources);
    if (!in || !in->sources) {
        free(in);
        return err_set(e, E_NOMEM, "no memory for %zu inputs", o->n_paths);
    }
    in->opts = *o;
    if (!in->opts.max_line_bytes) in->opts.max_line_bytes = INPUT_MAX_LINE_BYTES;
    for (size_t i = 0; i < o->n_paths; i++) {
        in->sources[i].path = o->paths[i];
        enum status rc = look_at(&in->sources[i], o, e);
        if (rc) {
            input_close(in);
            return rc;
        }
    }
    *out = in;
    return OK;
}

static void pop_folder(struct input *in)
{
    struct folder *f = &in->stack[--in->depth];
    for (size_t i = 0; i < f->n; i++) free(f->names[i]);
    free(f->names);
    free(f->path);
}

void input_close(struct input *in)
{
    if (!in) return;
    while (in->depth) pop_folder(in);
    jsonl_close(in->lines);
    job_free(&in->job);
    buf_free(&in->path);
    free(in->sources);
    free(in);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum status add_name(struct folder *f, size_t *cap, const char *name, struct err *e)
{
    if (f->n == *cap) {
        size_t more = *cap ? *cap * 2 : 64;
        char **p = realloc(f->names, more * sizeof *p);
        if (!p) return err_set(e, E_NOMEM, "%s: no memory for %zu names", f->path, more);
        f->names = p;
        *cap = more;
    }
    f->names[f->n] = strdup(name);
    if (!f->names[f->n]) return err_set(e, E_NOMEM, "%s: no memory for its names", f->path);
    f->n++;
    return OK;
}

static enum status push_folder(struct input *in, const char *path, struct err *e)
{
    if (in->depth == MAX_DEPTH)
        return err_set(e, E_USAGE, "%s: folders nested deeper than %d", path, MAX_DEPTH);
    struct folder *f = &in->stack[in->depth];
    *f = (struct folder){.path = strdup(path)};
    if (!f->path) return err_set(e, E_NOMEM, "%s: no memory", path);
    in->depth++;
    DIR *dir = opendir(path);
    if (!dir) return err_errno(e, errno, "cannot read the folder %s", path);
    enum status rc = OK;
    size_t cap = 0;
    struct dirent *d;
    while (!rc && (errno = 0, d = readdir(dir)))
        if (d->d_name[0] != '.') rc = add_name(f, &cap, d->d_name, e);
    if (!rc && errno) rc = err_errno(e, errno, "cannot read the folder %s", path);
    closedir(dir);
    if (f->n) qsort(f->names, f->n, sizeof *f->names, compare_names);
    return rc;
}

/* in->path = folder/name, without a "./" in front and without doubled slashes between them */
static enum status set_path(struct input *in, const char *folder, const char *name, struct err *e)
{
    in->path.len = 0;
    while (folder[0] == '.' && folder[1] == '/') folder++, folder += strspn(folder, "/");
    if (!strcmp(folder, ".")) folder = "";
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') n--;
    enum status rc = buf_add(&in->path, folder, n, e);
    if (!rc && n && name && folder[n - 1] != '/') rc = buf_add(&in->path, "/", 1, e);
    return rc || !name ? rc : buf_add(&in->path, name, strlen(name), e);
}

/* The next picture of the folders on the stack, into in->path; *found = false when there is none.
 */
static enum status next_in_folder(struct input *in, bool *found, struct err *e)
{
    *found = false;
    while (in->depth) {
        struct folder *f = &in->stack[in->depth - 1];
        if (f->at == f->n) {
            pop_folder(in);
            continue;
        }
        struct stat st;
        enum status rc = set_path(in, f->path, f->names[f->at++], e);
        if (rc) return rc;
        const char *path = in->path.data;
        bool there = lstat(path, &st) == 0;
        if (there && S_ISDIR(st.st_mode)) {
            rc = push_folder(in, path, e);
            if (rc) return rc;
        } else if (is_picture(path)) {
            *found = true;
            return OK;
        } else {
            in->sources[in->source].skipped++;
        }
    }
    return OK;
}

static const struct input_item *emit(struct input *in, enum status rc)
{
    struct input_source *s = &in->sources[in->source];
    in->item.source = in->source;
    in->item.status = rc;
    in->item.job = &in->job;
    s->items++;
    s->bad += rc != OK;
    return &in->item;
}

static bool is_jobs_fault(enum status rc)
{
    return rc == OK || status_fault(rc) == FAULT_JOB;
}

static enum status emit_picture(struct input *in, const struct input_item **item, struct err *e)
{
    in->item = (struct input_item){.path = in->path.data};
    enum status rc = job_from_file(&in->job, in->path.data, &in->opts.job, &in->item.err);
    if (!is_jobs_fault(rc)) {
        if (e) *e = in->item.err;
        return rc;
    }
    *item = emit(in, rc);
    return OK;
}

static enum status next_line(struct input *in, const struct input_item **item, struct err *e)
{
    struct input_source *s = &in->sources[in->source];
    struct jsonl_line l;
    bool more;
    enum status rc = OK;
    if (!in->lines) rc = jsonl_open(&in->lines, s->path, in->opts.max_line_bytes, in->opts.hash, e);
    if (!rc) rc = jsonl_next(in->lines, &l, &more, e);
    if (rc) return rc;
    if (!more) {
        s->size = jsonl_size(in->lines);
        memcpy(s->sha256, jsonl_sha256(in->lines), JOB_SHA_CHARS);
        s->done = true;
        return OK;
    }
    in->item =
        (struct input_item){.path = s->path, .line = l.line, .offset = l.offset, .len = l.len};
    if (l.text)
        rc = job_parse(&in->job, l.text, l.len, &in->opts.job, &in->item.err);
    else
        rc = err_set(&in->item.err, E_INVALID_JSON,
                     "the line has %" PRIu64 " bytes, at most %" PRIu64 " are accepted", l.len,
                     in->opts.max_line_bytes);
    if (!is_jobs_fault(rc)) {
        if (e) *e = in->item.err;
        return rc;
    }
    *item = emit(in, rc);
    return OK;
}

static enum status next_picture(struct input *in, const struct input_item **item, struct err *e)
{
    struct input_source *s = &in->sources[in->source];
    enum status rc;
    bool found = true;
    if (s->kind == INPUT_PICTURE) {
        found = !s->items;
        rc = set_path(in, s->path, NULL, e);
    } else {
        rc = in->depth || s->items || s->skipped ? OK : push_folder(in, s->path, e);
        if (!rc) rc = next_in_folder(in, &found, e);
    }
    if (!rc && found) rc = emit_picture(in, item, e);
    s->done = !found;
    return rc;
}

enum status input_next(struct input *in, const struct input_item **item, struct err *e)
{
    *item = NULL;
    job_free(&in->job);
    while (in->source < in->opts.n_paths) {
        struct input_source *s = &in->sources[in->source];
        enum status rc =
            s->kind == INPUT_LINES ? next_line(in, item, e) : next_picture(in, item, e);
        if (rc || *item) return rc;
        jsonl_close(in->lines);
        in->lines = NULL;
        in->source++;
    }
    return OK;
}

size_t input_sources(const struct input *in)
{
    return in->opts.n_paths;
}

const struct input_source *input_source(const struct input *in, size_t i)
{
    return &in->sources[i];
}

enum status input_sha256(const char *path, char sha256[JOB_SHA_CHARS], struct err *e)
{
    struct os_file f;
    enum status rc = os_open(&f, path, false, e);
    if (rc) return rc;
    SHA2_CTX sha;
    char block[65536];
    SHA256Init(&sha);
    for (uint64_t at = 0; at < f.size && !rc; at += sizeof block) {
        size_t n = f.size - at < sizeof block ? (size_t)(f.size - at) : sizeof block;
        rc = os_read_at(&f, at, block, n, path, e);
        if (!rc) SHA256Update(&sha, (const uint8_t *)block, n);
    }
    SHA256End(&sha, sha256);
    os_close(&f);
    return rc;
}
