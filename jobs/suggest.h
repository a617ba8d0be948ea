/* The known name nearest to a misspelt one. */
#ifndef NS_SUGGEST_H
#define NS_SUGGEST_H

#include <stddef.h>

/* Remembers the best of the names it is offered; near enough is at most two edits and less than
 * half the word. best: NULL at first. */
struct suggest {
    const char *word;
    const char *best;
    size_t distance;
};

void suggest_offer(struct suggest *s, const char *name);

#endif
