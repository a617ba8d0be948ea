/* Walking through folders. Hidden folders of a model are version control and download caches, which
 * may hold all weights once more. */
#include "src/repack_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEPTH_MAX 16
#define FILES_MAX 1000000

struct walk {
    struct repack_list *list;
    const char *root;
    enum repack_which which;
    struct stat except; /* of no folder when st_nlink is 0 */
    struct err *e;
};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static bool is_weights(const char *name)
{
    return !strchr(name, '/') &&
           (ends_with(name, ".safetensors") || ends_with(name, ".safetensors.index.json"));
}

/* Takes name over. */
static enum status add(const struct walk *w, char *name)
{
    struct repack_list *l = w->list;
    if (l->n == FILES_MAX) {
        free(name);
        return err_set(w->e, E_USAGE, "%s holds more than %d files", w->root, FILES_MAX);
    }
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        char **grown = realloc(l->at, cap * sizeof *grown);
        if (!grown) {
            free(name);
            return err_set(w->e, E_NOMEM, "%s: no memory for its files' names", w->root);
        }
        l->at = grown;
        l->cap = cap;
    }
    l->at[l->n++] = name;
    return OK;
}

static enum status walk(const struct walk *w, const char *folder, unsigned depth);

/* entry: of a folder; folder: "" or "a/b/" below the root. */
static enum status visit(const struct walk *w, const char *folder, const char *entry,
                         unsigned depth)
{
    struct stat st;
    char *name = NULL, *path = NULL;
    enum status rc = OK;
    if (asprintf(&name, "%s%s", folder, entry) < 0) name = NULL;
    if (asprintf(&path, "%s/%s", w->root, name ? name : "") < 0) path = NULL;
    if (!name || !path) {
        rc = err_set(w->e, E_NOMEM, "%s: no memory for its files' names", w->root);
    } else if (stat(path, &st) != 0) {
        rc = err_errno(w->e, errno, "cannot look at %s", path);
    } else if (S_ISDIR(st.st_mode)) {
        bool skip = w->which == REPACK_MODEL && entry[0] == '.';
        skip |=
            w->except.st_nlink && st.st_dev == w->except.st_dev && st.st_ino == w->except.st_ino;
        if (!skip) rc = walk(w, name, depth + 1);
    } else if (w->which == REPACK_ALL || (S_ISREG(st.st_mode) && !is_weights(name))) {
        rc = add(w, name);
        name = NULL;
    }
    free(name);
    free(path);
    return rc;
}

static enum status walk(const struct walk *w, const char *folder, unsigned depth)
{
    char *path = NULL, *below = NULL;
    DIR *d = NULL;
    enum status rc = OK;
    if (depth > DEPTH_MAX)
        return err_set(w->e, E_USAGE, "%s/%s: folders are nested too deep", w->root, folder);
    if (asprintf(&path, "%s/%s", w->root, folder) < 0) path = NULL;
    if (asprintf(&below, *folder ? "%s/" : "%s", folder) < 0) below = NULL;
    if (!path || !below) {
        rc = err_set(w->e, E_NOMEM, "%s: no memory for its files' names", w->root);
        goto out;
    }
    d = opendir(path);
    if (!d) {
        rc = err_errno(w->e, errno, "cannot open folder %s", path);
        goto out;
    }
    for (struct dirent *f; !rc && (f = readdir(d)) != NULL;)
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0)
            rc = visit(w, below, f->d_name, depth);
out:
    if (d) closedir(d);
    free(path);
    free(below);
    return rc;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum status repack_list(struct repack_list *l, const char *root, enum repack_which which,
                        const char *except, struct err *e)
{
    struct walk w = {.list = l, .root = root, .which = which, .e = e};
    *l = (struct repack_list){0};
    if (except && stat(except, &w.except) != 0)
        return err_errno(e, errno, "cannot look at %s", except);
    enum status rc = walk(&w, "", 0);
    if (l->n) qsort(l->at, l->n, sizeof *l->at, by_text);
    return rc;
}

void repack_list_free(struct repack_list *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->at[i]);
    free(l->at);
    *l = (struct repack_list){0};
}
