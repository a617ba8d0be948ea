/* A prompt as rows: token ids with every image's pad repeated for its rows. */
#ifndef NS_PROMPT_H
#define NS_PROMPT_H

#include "src/chat.h"
#include "src/tok.h"

struct prompt_image {
    size_t first, rows; /* the rows ids[first .. first + rows) stand for this image */
};

struct prompt {
    struct ids ids;
    struct prompt_image *images;
    size_t n_images;
};

/* image_rows[i]: embedding rows of image i in order of appearance; n_images must match the
 * segments. pad: the id that stands for one image row. E_INVALID_REQUEST on a mismatch. */
enum status prompt_build(struct prompt *out, const struct tok *t, const struct chat_prompt *c,
                         int32_t pad, const unsigned *image_rows, size_t n_images, struct err *e);
void prompt_free(struct prompt *p);

#endif
