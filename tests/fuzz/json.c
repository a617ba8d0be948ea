/* JSON of jobs and models: what is accepted is written as JSON that is accepted again and written
 * the same. */
#include "src/chat.h"
#include "src/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json j, again;
    struct buf once = {0}, twice = {0};
    if (json_parse(&j, (const char *)data, size, NULL)) return 0;
    if (!json_write(&j, 0, &once, NULL)) {
        if (json_parse(&again, once.data, once.len, NULL)) abort();
        if (json_write(&again, 0, &twice, NULL)) abort();
        if (once.len != twice.len || memcmp(once.data, twice.data, once.len)) abort();
        json_free(&again);
    }
    json_free(&j);
    buf_free(&once);
    buf_free(&twice);
    return 0;
}
