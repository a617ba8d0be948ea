/* What the training kernels know of their processor, and the buffers they share. See native.h. */
#include "examples/demo-model/train/native.h"

/* Whether this library has the kernels of the text layers: 1 where the processor multiplies BF16.
 */
long bf16_available(void)
{
#if defined(__AVX512BF16__)
    return 1;
#else
    return 0;
#endif
}

void *room(enum room name, size_t bytes)
{
    static _Thread_local void *data[ROOMS];
    static _Thread_local size_t size[ROOMS];
    if (size[name] < bytes) {
        free(data[name]);
        size[name] = (bytes + bytes / 4 + 4095) / 4096 * 4096;
        data[name] = aligned_alloc(4096, size[name]);
        if (!data[name]) abort();
    }
    return data[name];
}
