/* Names of the files below a folder. */
#ifndef NS_REPACK_LIST_H
#define NS_REPACK_LIST_H

#include "src/err.h"

#include <stdbool.h>
#include <stddef.h>

struct repack_list {
    char **at; /* "config.json", "figures/a.png"; in order */
    size_t n, cap;
};

enum repack_which {
    REPACK_MODEL, /* regular files, but for those in hidden folders and the weights */
    REPACK_ALL,   /* everything that is not a folder */
};

/* Links are followed. except: a folder left out with all that it holds, or NULL. E_IO names the
 * path. End with repack_list_free either way. */
enum status repack_list(struct repack_list *l, const char *root, enum repack_which which,
                        const char *except, struct err *e);
void repack_list_free(struct repack_list *l);

#endif
