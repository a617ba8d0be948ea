/* A faulty decoder, for LD_PRELOAD: takes the place of libjpeg's jpeg_mem_src and, where a picture
 * says so in a comment, crashes, hangs or eats all memory it can get before it goes on. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

static int says(const unsigned char *bytes, unsigned long len, const char *word)
{
    return memmem(bytes, len, word, strlen(word)) != NULL;
}

void jpeg_mem_src(j_decompress_ptr c, const unsigned char *bytes, unsigned long len)
{
    void (*real)(j_decompress_ptr, const unsigned char *, unsigned long);
    *(void **)&real = dlsym(RTLD_NEXT, "jpeg_mem_src");
    if (says(bytes, len, "trap:crash")) *(volatile int *)16 = 1;
    if (says(bytes, len, "trap:hang"))
        for (volatile unsigned n = 0;; n++) continue;
    if (says(bytes, len, "trap:memory"))
        for (size_t step = 1 << 20; step >= 16; step /= 2)
            for (char *p; (p = malloc(step));) memset(p, 1, step);
    real(c, bytes, len);
}
