/* Names of files that are not whole yet, "NAME.tmp1a2b3c4d-123": the process that writes one, after
 * a hash of the machine and of where its process numbers count. */
#ifndef NS_OS_TEMP_H
#define NS_OS_TEMP_H

#include <stddef.h>
#include <stdint.h>

#define OS_TEMP_CHARS 40 /* of the suffix, with its NUL */

/* A hash of the machine and of where this process's number counts. */
uint32_t os_temp_machine(void);
/* What this process adds to NAME. */
void os_temp_suffix(char out[OS_TEMP_CHARS]);
/* How long NAME is in such a name of any process; 0: it is none. */
size_t os_temp_base(const char *name);
/* Removes from a folder what processes of this machine that are gone have left there, and closes
 * it; a thread's second sweep of the same folder does nothing. What cannot be removed stays. */
void os_temp_sweep(int folder);

#endif
