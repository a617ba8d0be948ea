/* Segments to rows: each segment is encoded alone, the pad of an image is repeated. */
#include "src/prompt.h"

#include <stdlib.h>

/* ids: one media block. Its one pad becomes `rows`. */
static enum status add_image(struct prompt *out, const struct ids *ids, int32_t pad, unsigned rows,
                             struct err *e)
{
    enum status rc = OK;
    size_t found = 0;
    if (!rows) return err_set(e, E_INVALID_REQUEST, "image %zu has no rows", out->n_images);
    for (size_t i = 0; i < ids->n && !rc; i++) {
        unsigned times = 1;
        if (ids->at[i] == pad) {
            out->images[out->n_images] = (struct prompt_image){.first = out->ids.n, .rows = rows};
            times = rows;
            found++;
        }
        while (times-- && !rc) rc = ids_add(&out->ids, ids->at[i], e);
    }
    out->n_images++;
    if (!rc && found != 1)
        rc = err_set(e, E_MODEL, "a media block has %zu tokens of id %d, not one", found, pad);
    return rc;
}

enum status prompt_build(struct prompt *out, const struct tok *t, const struct chat_prompt *c,
                         int32_t pad, const unsigned *image_rows, size_t n_images, struct err *e)
{
    *out = (struct prompt){0};
    struct ids block = {0};
    enum status rc = OK;
    size_t blocks = 0;
    for (size_t i = 0; i < c->n; i++) blocks += c->segments[i].image >= 0;
    if (blocks != n_images)
        return err_set(e, E_INVALID_REQUEST, "the prompt has %zu images, %zu are given", blocks,
                       n_images);
    out->images = calloc(n_images + 1, sizeof *out->images);
    if (!out->images) return err_set(e, E_NOMEM, "prompt: no memory for %zu images", n_images);
    for (size_t i = 0; i < c->n && !rc; i++) {
        const struct chat_segment *s = &c->segments[i];
        const char *text = c->text.data + s->at;
        block.n = 0;
        rc = tok_encode(t, text, s->len, s->special, s->image < 0 ? &out->ids : &block, e);
        if (!rc && s->image >= 0) rc = add_image(out, &block, pad, image_rows[out->n_images], e);
    }
    ids_free(&block);
    if (rc) prompt_free(out);
    return rc;
}

void prompt_free(struct prompt *p)
{
    ids_free(&p->ids);
    free(p->images);
    *p = (struct prompt){0};
}
