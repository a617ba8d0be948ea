/* Edit distance with swaps of neighbours, over one row of each of the last two prefixes. */
#include "jobs/suggest.h"

#include <string.h>

#define MAX_WORD 40

static size_t min2(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t d[3][MAX_WORD + 1];
    for (size_t j = 0; j <= m; j++) d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = min2(min2(up[j], now[j - 1]) + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = min2(now[j], up2[j - 2] + 1);
        }
    }
    return d[n % 3][m];
}

void suggest_offer(struct suggest *s, const char *name)
{
    size_t n = strlen(s->word), m = strlen(name);
    if (n > MAX_WORD || m > MAX_WORD) return;
    size_t d = distance(s->word, n, name, m);
    if (d > 2 || 2 * d >= n || (s->best && d >= s->distance)) return;
    s->best = name;
    s->distance = d;
}
