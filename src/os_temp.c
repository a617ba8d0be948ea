/* Temporary names, and the end of those whose process was killed.
 *
 * A process tells by its number, not by a lock on the file: SQLite and repack open what they wrote
 * a second time, which a lock would forbid them on NFS and SMB. The number means something only
 * where it was given, so files of other machines and containers stay. */
#include "src/os_temp.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MACHINE_AT    4 /* in ".tmp1a2b3c4d-123" */
#define MACHINE_CHARS 8
#define PID_AT        (MACHINE_AT + MACHINE_CHARS + 1)

/* FNV-1a. */
static uint32_t hash(uint32_t h, const char *s)
{
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

uint32_t os_temp_machine(void)
{
    char host[65] = "", numbers[65] = "";
    if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
    ssize_t n = readlink("/proc/self/ns/pid", numbers, sizeof numbers - 1);
    numbers[n > 0 ? n : 0] = 0;
    return hash(hash(2166136261u, host), numbers);
}

void os_temp_suffix(char out[OS_TEMP_CHARS])
{
    snprintf(out, OS_TEMP_CHARS, ".tmp%08x-%ld", os_temp_machine(), (long)getpid());
}

size_t os_temp_base(const char *name)
{
    const char *at = NULL;
    for (const char *s = name; (s = strstr(s, ".tmp")) != NULL; s++) at = s;
    if (!at || strspn(at + MACHINE_AT, "0123456789abcdef") != MACHINE_CHARS) return 0;
    if (at[PID_AT - 1] != '-' || !at[PID_AT]) return 0;
    return at[PID_AT + strspn(at + PID_AT, "0123456789")] ? 0 : (size_t)(at - name);
}

static bool left_over(const char *name, const char *own)
{
    size_t base = os_temp_base(name);
    if (!base || strncmp(name + base, own, PID_AT) != 0) return false;
    long pid = strtol(name + base + PID_AT, NULL, 10);
    return pid > 0 && pid <= INT32_MAX && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

void os_temp_sweep(int folder)
{
    static _Thread_local struct stat swept; /* ten thousand sidecars lie in one folder */
    char own[OS_TEMP_CHARS];
    struct stat st;
    bool again =
        fstat(folder, &st) != 0 || (st.st_dev == swept.st_dev && st.st_ino == swept.st_ino);
    DIR *d = again ? NULL : fdopendir(folder);
    if (!d) {
        close(folder);
        return;
    }
    swept = st;
    os_temp_suffix(own);
    for (struct dirent *f; (f = readdir(d)) != NULL;)
        if (left_over(f->d_name, own)) unlinkat(folder, f->d_name, 0);
    closedir(d);
}
