/* Common beginnings. */
#include "jobs/share.h"

#include <string.h>

uint64_t share_token(int32_t id)
{
    return (uint32_t)id;
}

/* The upper bit tells pictures from tokens. */
uint64_t share_picture(const char *sha256, size_t at)
{
    uint64_t h = 0;
    for (int i = 0; i < 16 && sha256[i]; i++) {
        char c = sha256[i];
        h = h << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    h = (h ^ (at + 1) * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
    return (h ^ h >> 31) | 1ull << 63;
}

static size_t common(const struct share_rows *a, const struct share_rows *b)
{
    size_t n = a->n < b->n ? a->n : b->n, i = 0;
    while (i < n && a->hash[i] == b->hash[i]) i++;
    return i;
}

size_t share_cut(size_t *cuts, size_t n, const struct share_rows *a, const struct share_rows *b)
{
    size_t at = common(a, b), i = 0;
    if (at == a->n) at--;
    if (a->n == 0 || at < SHARE_LEAST) return n;
    while (i < n && cuts[i] < at) i++;
    if (i < n && cuts[i] == at) return n;
    if (n == SHARE_CUTS) {
        if (i == 0) return n;
        memmove(cuts, cuts + 1, --i * sizeof *cuts);
    } else {
        memmove(cuts + i + 1, cuts + i, (n++ - i) * sizeof *cuts);
    }
    cuts[i] = at;
    return n;
}

size_t share_thin(size_t *cuts, size_t n)
{
    size_t kept = 0, last = 0;
    for (size_t i = 0; i < n; i++)
        if (cuts[i] >= last + SHARE_APART) last = cuts[kept++] = cuts[i];
    return kept;
}
