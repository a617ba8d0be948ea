/* A reference is first made a plain path (file:// decoded, --map-path applied), then looked up in
 * its places: as written, and with slashes for backslashes when that finds nothing. */
#include "jobs/image_ref.h"

#include "jobs/base64.h"
#include "src/os.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <sha256.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* file:///a%20b, file://localhost/a, file:/a, file:///C:/a: out gets the path, at most the length
 * of the URL. */
static enum status decode_file_url(const char *url, char *out, struct err *e)
{
    const char *p = url + 5;
    if (!strncmp(p, "//", 2)) {
        p += 2;
        if (!strncasecmp(p, "localhost/", 10)) p += 9;
    }
    if (*p != '/')
        return err_set(e, E_INVALID_REQUEST, "%s: expected file:/// and an absolute path", url);
    if (isalpha((unsigned char)p[1]) && p[2] == ':') p++;
    for (; *p; p++) {
        if (*p != '%') {
            *out++ = *p;
            continue;
        }
        int hi = hex(p[1]), lo = hi < 0 ? -1 : hex(p[2]);
        if (lo < 0 || hi + lo == 0)
            return err_set(e, E_INVALID_REQUEST, "%s: expected two hex digits (not 00) after %%",
                           url);
        *out++ = (char)(hi * 16 + lo);
        p += 2;
    }
    *out = 0;
    return OK;
}

/* Length of a leading "scheme:" that makes ref a URL; 0: a path. One letter is a Windows drive. */
static size_t scheme(const char *ref)
{
    size_t n = 0;
    while (isalnum((unsigned char)ref[n]) || (n && strchr("+-.", ref[n]) && ref[n])) n++;
    if (n < 2 || ref[n] != ':') return 0;
    bool known = (n == 4 && (!strncasecmp(ref, "file", 4) || !strncasecmp(ref, "data", 4)));
    return known || !strncmp(ref + n, "://", 3) ? n : 0;
}

static enum status plain_path(const char *ref, char *out, size_t size, struct err *e)
{
    size_t n = scheme(ref);
    if (!*ref) return err_set(e, E_INVALID_REQUEST, "the path of an image is empty");
    if (strlen(ref) >= size)
        return err_set(e, E_INVALID_REQUEST, "the path of an image has %zu bytes", strlen(ref));
    if (n == 4 && !strncasecmp(ref, "file", 4)) return decode_file_url(ref, out, e);
    if (n)
        return err_set(e, E_INVALID_REQUEST,
                       "%.200s: a URL of scheme %.*s; images are paths, file:// or data: URLs, "
                       "nothing is fetched",
                       ref, (int)(n > 20 ? 20 : n), ref);
    memcpy(out, ref, strlen(ref) + 1);
    return OK;
}

enum status image_ref_check(const char *ref, struct err *e)
{
    char path[PATH_MAX];
    return plain_path(ref, path, sizeof path, e);
}

static bool is_slash(char c)
{
    return c == '/' || c == '\\';
}

/* The rest of path behind `from`, which ends at the end of a name; either slash will do. */
static const char *behind(const char *path, const char *from)
{
    size_t n = strlen(from);
    while (n > 1 && is_slash(from[n - 1])) n--;
    if (n == 0) return NULL;
    for (size_t i = 0; i < n; i++)
        if (path[i] != from[i] && !(is_slash(path[i]) && is_slash(from[i]))) return NULL;
    if (path[n] && !is_slash(path[n]) && !is_slash(from[n - 1])) return NULL;
    return path + n;
}

static enum status join(struct buf *out, const char *dir, const char *path, struct err *e)
{
    out->len = 0;
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    enum status rc = n ? buf_add(out, dir, n, e) : OK;
    if (!rc && n && dir[n - 1] != '/') rc = buf_add(out, "/", 1, e);
    return rc ? rc : buf_add(out, path, strlen(path), e);
}

/* What is looked for, and what was found. */
struct search {
    const char *path;
    struct buf candidate, found;
    struct stat stat;
    struct buf tried; /* for the message */
    struct err *e;
};

/* Look in one folder for path. OK whether or not it is there: found tells. */
static enum status look_as(struct search *s, const char *dir, const char *path)
{
    struct stat st;
    enum status rc = join(&s->candidate, path[0] == '/' ? "" : dir, path, s->e);
    if (rc) return rc;
    const char *name = s->candidate.data;
    if (stat(name, &st) != 0) {
        if (errno == EACCES || errno == EIO)
            return err_set(s->e, E_IMAGE_UNREADABLE, "%s: %s", name, strerror(errno));
        return buf_addf(&s->tried, s->e, "%s%s", s->tried.len ? ", " : "", name);
    }
    if (!S_ISREG(st.st_mode))
        return err_set(s->e, E_IMAGE_UNREADABLE, "%s is not a regular file", name);
    if (s->found.len && (st.st_dev != s->stat.st_dev || st.st_ino != s->stat.st_ino))
        return err_set(s->e, E_INVALID_REQUEST,
                       "%s could be %s or %s; give --image-root or an absolute path", s->path,
                       s->found.data, name);
    s->stat = st;
    if (s->found.len) return OK;
    return buf_add(&s->found, name, s->candidate.len, s->e);
}

static enum status look(struct search *s, const char *dir)
{
    size_t before = s->tried.len;
    enum status rc = look_as(s, dir, s->path);
    if (rc || s->tried.len == before || !strchr(s->path, '\\')) return rc;
    char path[PATH_MAX];
    size_t n = strlen(s->path);
    for (size_t i = 0; i <= n; i++) path[i] = s->path[i] == '\\' ? '/' : s->path[i];
    return look_as(s, dir, path);
}

static bool is_windows_absolute(const char *path)
{
    return (isalpha((unsigned char)path[0]) && path[1] == ':' && is_slash(path[2])) ||
           (path[0] == '\\' && path[1] == '\\');
}

/* Folder of a file name, "" for the working folder. */
static void folder_of(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + (slash == path) : 0;
    if (n >= PATH_MAX) n = 0;
    memcpy(out, path, n);
    out[n] = 0;
}

static enum status look_everywhere(struct search *s, const struct image_ref_opts *o,
                                   const struct image_ref_source *from)
{
    char dir[PATH_MAX];
    if (s->path[0] == '/') return look(s, "");
    if (o && o->root) return look(s, o->root);
    folder_of(from && from->path ? from->path : "", dir);
    enum status rc = *dir ? look(s, dir) : OK;
    return rc ? rc : look(s, "");
}

static enum status absolute(const char *path, char **out, struct err *e)
{
    char cwd[PATH_MAX] = "";
    struct buf b = {0};
    if (path[0] != '/' && !getcwd(cwd, sizeof cwd))
        return err_errno(e, errno, "cannot tell the working folder");
    while (path[0] == '.' && path[1] == '/') path += 2;
    enum status rc = join(&b, cwd, path, e);
    if (rc)
        buf_free(&b);
    else
        *out = b.data;
    return rc;
}

static enum status missing(const struct search *s)
{
    if (is_windows_absolute(s->path))
        return err_set(s->e, E_IMAGE_MISSING,
                       "%s is a path of another machine; give --map-path OLD=NEW", s->path);
    return err_set(s->e, E_IMAGE_MISSING, "no such file: %s", s->tried.data);
}

enum status image_ref_resolve(const struct image_ref_opts *o, const struct image_ref_source *s,
                              const char *ref, char **path, struct err *e)
{
    char plain[PATH_MAX];
    struct buf mapped = {0};
    struct search search = {.path = plain, .e = e};
    *path = NULL;
    enum status rc = plain_path(ref, plain, sizeof plain, e);
    for (size_t i = 0; o && i < o->n_maps && !rc; i++) {
        const char *rest = behind(plain, o->maps[i].from);
        if (!rest) continue;
        while (is_slash(*rest)) rest++;
        rc = *rest ? join(&mapped, o->maps[i].to, rest, e)
                   : buf_add(&mapped, o->maps[i].to, strlen(o->maps[i].to), e);
        search.path = mapped.data;
        if (!rc && mapped.len >= PATH_MAX)
            rc = err_set(e, E_INVALID_REQUEST, "the mapped path of an image has %zu bytes",
                         mapped.len);
        break;
    }
    if (!rc && !is_windows_absolute(search.path)) rc = look_everywhere(&search, o, s);
    if (!rc && !search.found.len) rc = missing(&search);
    if (!rc) rc = absolute(search.found.data, path, e);
    buf_free(&mapped);
    buf_free(&search.candidate);
    buf_free(&search.found);
    buf_free(&search.tried);
    return rc;
}

static void sha256_hex(const unsigned char *bytes, size_t len, char out[JOB_SHA_CHARS])
{
    SHA2_CTX sha;
    SHA256Init(&sha);
    SHA256Update(&sha, bytes, len);
    SHA256End(&sha, out);
}

static enum status check_size(uint64_t bytes, uint64_t max, const char *what, struct err *e)
{
    if (bytes == 0) return err_set(e, E_IMAGE_UNREADABLE, "%s is empty", what);
    if (bytes > max)
        return err_set(e, E_IMAGE_TOO_LARGE,
                       "%s has %" PRIu64 " bytes, at most %" PRIu64 " are accepted", what, bytes,
                       max);
    return OK;
}

/* A file that cannot be read is its job's fault, never the machine's. */
static enum status unreadable(enum status rc, struct err *e)
{
    if (rc != E_IO) return rc;
    if (e) e->code = E_IMAGE_UNREADABLE;
    return E_IMAGE_UNREADABLE;
}

enum status image_ref_stat(const char *path, uint64_t *bytes, int64_t *mtime_ns, struct err *e)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return err_set(e,
                       errno == ENOENT || errno == ENOTDIR ? E_IMAGE_MISSING : E_IMAGE_UNREADABLE,
                       "%s: %s", path, strerror(errno));
    /* Before it is opened: that could wait for ever on a pipe. */
    if (!S_ISREG(st.st_mode))
        return err_set(e, E_IMAGE_UNREADABLE, "%s is not a regular file", path);
    *bytes = (uint64_t)st.st_size;
    *mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return OK;
}

static enum status load_file(struct image_ref_bytes *out, uint64_t max, const char *path,
                             struct err *e)
{
    struct os_file f;
    uint64_t bytes;
    enum status rc = image_ref_stat(path, &bytes, &out->mtime_ns, e);
    if (!rc) rc = unreadable(os_open(&f, path, false, e), e);
    if (rc) return rc;
    rc = check_size(f.size, max, path, e);
    if (!rc) rc = mem_alloc_aligned(out->mem, &out->at, f.size, 64, path, e);
    if (!rc) {
        out->len = f.size;
        rc = unreadable(os_read_at(&f, 0, out->at, out->len, path, e), e);
    }
    os_close(&f);
    return rc;
}

static enum status changed(const struct job_image *image, const char *path, struct err *e)
{
    return err_set(e, E_IMAGE_CHANGED,
                   "%s no longer holds the inline image of %" PRIu64 " bytes that was imported",
                   path, image->bytes);
}

/* Decode the text at offset into out->at, piece by piece. */
static enum status decode(struct image_ref_bytes *out, const struct os_file *f, uint64_t offset,
                          const struct job_image *image, const char *path)
{
    char text[16384];
    struct base64 base64 = {0};
    size_t n;
    for (uint64_t done = 0; done < image->len; done += sizeof text) {
        uint64_t left = image->len - done;
        size_t step = left < sizeof text ? (size_t)left : sizeof text;
        unsigned char bytes[BASE64_ROOM(sizeof text)];
        if (os_read_at(f, offset + done, text, step, path, NULL)) return E_IMAGE_UNREADABLE;
        if (base64_push(&base64, text, step, bytes, &n, NULL) || n > image->bytes - out->len)
            return E_IMAGE_CHANGED;
        memcpy(out->at + out->len, bytes, n);
        out->len += n;
    }
    return base64_end(&base64, NULL) ? E_IMAGE_CHANGED : OK;
}

static enum status load_inline(struct image_ref_bytes *out, uint64_t max,
                               const struct image_ref_source *s, const struct job_image *image,
                               struct err *e)
{
    struct os_file f;
    enum status rc = check_size(image->bytes, max, "the inline image", e);
    if (rc) return rc;
    rc = unreadable(os_open(&f, s->path, false, e), e);
    if (rc) return rc;
    uint64_t offset, end;
    if (__builtin_add_overflow(s->line_offset, image->at, &offset) ||
        __builtin_add_overflow(offset, image->len, &end) || end > f.size) {
        rc = changed(image, s->path, e);
        goto out;
    }
    rc = mem_alloc_aligned(out->mem, &out->at, image->bytes, 64, "inline image", e);
    if (rc) goto out;
    rc = decode(out, &f, offset, image, s->path);
    if (rc == E_IMAGE_UNREADABLE) err_set(e, rc, "cannot read an inline image of %s", s->path);
    if (rc == E_IMAGE_CHANGED) changed(image, s->path, e);
out:
    os_close(&f);
    return rc;
}

enum status image_ref_load(struct image_ref_bytes *out, const struct image_ref_opts *o,
                           const struct image_ref_source *s, const struct job_image *image,
                           const char *path, struct err *e)
{
    uint64_t max = o && o->max_bytes ? o->max_bytes : IMAGE_REF_MAX_BYTES;
    out->at = NULL;
    out->len = 0;
    out->mtime_ns = 0;
    enum status rc = path ? load_file(out, max, path, e) : load_inline(out, max, s, image, e);
    if (!rc) {
        if (!out->trusted) sha256_hex(out->at, out->len, out->sha256);
        if (image->sha256[0] && strcmp(image->sha256, out->sha256)) rc = changed(image, s->path, e);
    }
    if (rc) {
        mem_free(out->mem, out->at);
        out->at = NULL;
    }
    return rc;
}
